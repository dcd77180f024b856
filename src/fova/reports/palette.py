"""The colours of every picture and page: Okabe and Ito's palette, which colour-blind readers can distinguish.

One colour means one thing wherever a run is shown: a client's own policy, its data, the server's policy. Lines
that differ in colour differ in their dashes, too.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import cycle

BLUE, ORANGE, GREEN = "#0072B2", "#E69F00", "#009E73"
VERMILION, PURPLE, SKY = "#D55E00", "#CC79A7", "#56B4E9"
BLACK, GREY = "#000000", "#767676"

NAMES = {
    "blue": BLUE,
    "orange": ORANGE,
    "green": GREEN,
    "vermilion": VERMILION,
    "purple": PURPLE,
    "sky": SKY,
    "grey": GREY,
    "ink": BLACK,
}

CLIENT, DATA, SERVER = "blue", "orange", "green"
VOTERS = {"local": CLIENT, "behaviour": DATA, "global": SERVER}
VOTER_WORDS = {"local": "its own policy", "behaviour": "its data", "global": "the global policy"}

Style = tuple[str, tuple[float, ...]]  # a colour and dashes as lengths of strokes and gaps

# An algorithm looks the same in every chart that shows several.
ALGORITHMS: dict[str, Style] = {
    "fova": ("blue", ()),
    "fedora": ("vermilion", (7, 3)),
    "drpo": ("green", (2, 2)),
    "cql-fl": ("purple", (7, 2, 2, 2)),
    "fed-td3bc": ("sky", (4, 2)),
    "fed-iql": ("grey", (10, 4)),
    "fed-bc": ("ink", (1, 3)),
}


def styles(algorithms: Sequence[str]) -> list[Style]:
    """The style of each line of a chart, given each line's algorithm.

    Several lines of one algorithm share its colour and differ in their dashes. Where a chart has one algorithm
    only, and for algorithms of the user's own, lines take the styles that no algorithm of the chart has.
    """
    names = list(algorithms)
    if len(set(names)) == 1 < len(names):
        names = [f"line {number}" for number in range(len(names))]
    all_styles = list(ALGORITHMS.values())
    free = cycle([style for name, style in ALGORITHMS.items() if name not in names] or all_styles)
    own = {name: ALGORITHMS[name] if name in ALGORITHMS else next(free) for name in dict.fromkeys(names)}
    all_dashes = [dashes for _, dashes in all_styles]
    used: Counter[Style] = Counter()
    found = []
    for name in names:
        colour, dashes = own[name]
        found.append((colour, all_dashes[(all_dashes.index(dashes) + used[own[name]]) % len(all_dashes)]))
        used[own[name]] += 1
    return found


def css() -> str:
    """One class per colour; what is drawn takes it from `var(--colour)`. A page may give "ink" its own colour."""
    return "\n".join(f".{name} {{ --colour: {value}; }}" for name, value in NAMES.items())
