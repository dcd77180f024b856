"""Asking the nodes of a grid, and waiting for their answers."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import httpx
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fova.network.intake import one_line
from fova.network.pace import Pace
from fova.progress import Progress

Pause = Callable[[float], None]
Reply = Message | Exception  # what came back for a question, or the error that it caused
T = TypeVar("T")

# How often the server looks for answers, and how long it waits before it asks its own SuperLink again.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 3.0
SECONDS_TO_RETRY = 5.0
MOST_PUSHED = 64  # messages in one request


class Asking:
    """Sends questions to nodes.

    `pause` is called while our own SuperLink does not answer, `sleep` while nodes do not.
    """

    def __init__(
        self, grid: Grid, progress: Progress, pause: Pause = time.sleep, sleep: Pause = time.sleep
    ) -> None:
        self.grid, self.progress, self.pause, self.sleep = grid, progress, pause, sleep

    def ask(self, kind: str, questions: dict[int, RecordDict], seconds: float) -> Iterator[tuple[int, Reply]]:
        """Every node's answer within so many seconds; Flower's word that a node is gone is none.

        Answers are fetched one by one. One that Flower itself cannot read then costs no other answer, and it is
        known whose it is; the error takes its place.
        """
        if not questions:
            return
        # Undelivered questions expire: a node that comes back does not train a round that is long over.
        asked = [Message(content, node, kind, ttl=seconds) for node, content in questions.items()]
        numbers: list[str] = []
        for start in range(0, len(asked), MOST_PUSHED):
            numbers += self.patiently(partial(self.grid.push_messages, asked[start : start + MOST_PUSHED]))
        waiting = {number: node for number, node in zip(numbers, questions) if number is not None}
        began, waited, pace = time.monotonic(), 0.0, Pace(SHORTEST_PAUSE, LONGEST_PAUSE)
        while waiting:
            for number, node in list(waiting.items()):
                reply = self._pull(number)
                if reply is None:
                    continue
                del waiting[number]
                if isinstance(reply, Exception) or reply.metadata.src_node_id == node:
                    yield node, reply
            if not waiting or max(waited, time.monotonic() - began) >= seconds:
                return
            pause = pace.next()
            self.sleep(pause)
            waited += pause

    def _pull(self, number: str) -> Reply | None:
        """The answer to a question, or the error that it causes; None while there is none."""
        try:
            return next(iter(self.grid.pull_messages([number])), None)
        except httpx.TransportError as error:  # about the SuperLink, not about the answer: ask again later
            self.progress.status(f"the SuperLink does not answer: {error}")
            return None
        except Exception as error:  # noqa: BLE001  Flower fetched the answer and cannot read it
            return error

    def patiently(self, call: Callable[[], T]) -> T:
        """The result of a call to our own SuperLink. A SuperLink that does not answer is asked again."""
        while True:
            try:
                return call()
            except httpx.HTTPError as error:
                self.progress.status(f"the SuperLink does not answer ({one_line(str(error))}); asking again")
                self.pause(SECONDS_TO_RETRY)
