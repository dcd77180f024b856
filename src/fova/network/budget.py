"""A client's own privacy: what it insists on, and what it has spent, on its own disk.

The server's plan says how much noise a client adds. A client that insists on privacy refuses a plan below its
floor. It keeps an account of all rounds of all runs of all servers in its state folder. The account is written
before an answer leaves, so a crash can only make it too high.
"""

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fova.errors import FovaError
from fova.federation import accountant
from fova.federation.privacy import Privacy
from fova.machine.files import write_atomically
from fova.network.intake import Refused

BUDGET, ANSWER, QUESTION = "privacy-budget.json", "last-answer.npz", "question"


@dataclass(frozen=True)
class Floor:
    """What a client insists on, for instance clip=1,noise=2,epsilon=8."""

    clip: float  # the largest norm of its update that it lets out
    noise: float  # the least noise, as a multiple of that norm
    epsilon: float  # all that it ever spends
    delta: float = 1e-5

    @staticmethod
    def parse(text: str) -> "Floor":
        """The floor in a text such as clip=1,noise=2,epsilon=8; delta may be added."""
        names = [field.name for field in fields(Floor)]
        try:
            given = {name.strip(): float(value) for name, value in (part.split("=") for part in text.split(","))}
            floor = Floor(**given)
        except (TypeError, ValueError) as error:
            raise FovaError(
                f"insist_privacy is {text!r}, but must be {'=...,'.join(names[:3])}=..., for instance "
                "clip=1,noise=2,epsilon=8"
            ) from error
        for name, value in given.items():
            if not (math.isfinite(value) and value > 0.0):
                raise FovaError(f"insist_privacy has {name}={value:g}, but it must be a number above 0.")
        accountant.epsilon(floor.noise / 2, 1.0, 1, floor.delta)  # refuses noise and delta without a meaning
        return floor

    def check(self, privacy: Privacy | None) -> None:
        """Refuse a plan that promises less."""
        if privacy is None or privacy.noise_at != "client":
            raise Refused("it insists on privacy, and this run has none at the client: --privacy client")
        if privacy.clip > self.clip:
            raise Refused(f"it insists on --privacy-clip {self.clip:g} or less, and this run has {privacy.clip:g}")
        if privacy.noise < self.noise:
            raise Refused(
                f"it insists on --privacy-noise {self.noise:g} or more, and this run has {privacy.noise:g}"
            )


class Budget:
    """What a client has spent so far: how many answers it gave with how much noise."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / BUDGET

    def answers(self) -> dict[float, int]:
        """The number of answers, by the noise that they carried."""
        if not self.file.exists():
            return {}
        try:
            content = json.loads(self.file.read_text(encoding="utf-8"))["answers"]
            found = {float(noise): int(count) for noise, count in content.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise FovaError(
                f"{self.file} cannot be read: {error}. It holds what this client has spent of its privacy. Restore "
                "it from a backup; without it the client does not answer."
            ) from error
        if not all(noise / 2 >= accountant.LEAST_NOISE and count >= 1 for noise, count in found.items()):
            raise FovaError(f"{self.file} holds noise or counts that no client writes. Restore it from a backup.")
        return found

    def epsilon(self, delta: float, further: Mapping[float, int] | None = None) -> float:
        """The epsilon of all answers so far and `further` ones. One client's data moves an answer by two norms."""
        counts = self.answers()
        for noise, count in (further or {}).items():
            counts[noise] = counts.get(noise, 0) + count
        return accountant.epsilon_of({noise / 2: count for noise, count in counts.items()}, delta)

    def spend(self, noise: float) -> None:
        """Write down one more answer, before it leaves."""
        counts = self.answers()
        counts[noise] = counts.get(noise, 0) + 1
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.file, json.dumps({"answers": {str(n): c for n, c in counts.items()}}).encode())

    def insist_on_room(self, floor: Floor, privacy: Privacy) -> None:
        """Refuse an answer that would spend more than the client allows."""
        needed = self.epsilon(floor.delta, {privacy.noise: 1})
        if needed > floor.epsilon:
            raise Refused(
                f"its privacy budget is spent: one more answer makes epsilon {needed:.2f}, and it allows "
                f"{floor.epsilon:g}"
            )


# --- One answer for one question ---


def question_digest(run_id: str, number: int, broadcast: Mapping[str, NDArray[Any]]) -> str:
    """A hash of what a client is asked in a round."""
    found = hashlib.sha256(f"{run_id} {number}".encode())
    for name in sorted(broadcast):
        found.update(name.encode() + np.ascontiguousarray(broadcast[name]).tobytes())
    return found.hexdigest()


def keep_answer(folder: Path, question: str, parameters: Mapping[str, NDArray[Any]]) -> None:
    """Keep the answer to a question, so that the same question gets the same bytes and spends nothing."""
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **{QUESTION: np.array(question)}, **parameters)
    write_atomically(folder / ANSWER, stream.getvalue())


def kept_answer(folder: Path, question: str) -> dict[str, NDArray[Any]] | None:
    """The arrays of the last answer, if it was to this question."""
    file = folder / ANSWER
    if not file.exists():
        return None
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise FovaError(f"{file} cannot be read: {error}. Delete it; the next answer then spends again.") from error
    return arrays if str(arrays.pop(QUESTION, "")) == question else None
