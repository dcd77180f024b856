"""D4RL's reference returns, for normalised scores: 0 is a random policy, 100 the reference expert.

Source: `REF_MIN_SCORE` and `REF_MAX_SCORE` in d4rl/infos.py of Farama-Foundation/D4RL. All datasets of a task have
the same pair there. fova measured none of these numbers; `docs/tasks.md` describes where today's environments
differ.
"""

from typing import NamedTuple


class ReferenceScores(NamedTuple):
    """The returns that count as 0 and as 100."""

    random: float
    expert: float


REFERENCE_SCORES = {
    "ant": ReferenceScores(-325.6, 3879.7),
    "halfcheetah": ReferenceScores(-280.178953, 12135.0),
    "hopper": ReferenceScores(-20.272305, 3234.3),
    "walker2d": ReferenceScores(1.629008, 4592.3),
    "maze2d-umaze": ReferenceScores(23.85, 161.86),
    "maze2d-umaze-dense": ReferenceScores(68.537689, 193.66285642381482),
    "maze2d-medium": ReferenceScores(13.13, 277.39),
    "maze2d-medium-dense": ReferenceScores(44.264742, 297.4552547777125),
    "maze2d-large": ReferenceScores(6.7, 273.99),
    "maze2d-large-dense": ReferenceScores(30.569041, 303.4857382709002),
    "pen": ReferenceScores(96.262799, 3076.8331017826877),
    "door": ReferenceScores(-56.512833, 2880.5693087298737),
    "hammer": ReferenceScores(-274.856578, 12794.134825156867),
    "relocate": ReferenceScores(-6.425911, 4233.877797728884),
}
