"""Pauses between two looks for something: short at first, longer while nothing happens.

What comes soon is found at once, and waiting for something late costs few requests: a look comes at most 30 % later
than the wait lasts anyway.
"""

GROWTH = 1.3


class Pace:
    """The pauses between looks, from `first` seconds up to `longest`."""

    def __init__(self, first: float, longest: float) -> None:
        self.first, self.longest, self.seconds = first, longest, first

    def restart(self) -> None:
        """Something happened, so the next thing may come soon."""
        self.seconds = self.first

    def next(self) -> float:
        """The seconds of the next pause."""
        pause, self.seconds = self.seconds, min(self.seconds * GROWTH, self.longest)
        return pause
