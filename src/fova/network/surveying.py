"""Before the plan is known: clients that hold tables tell what the agreement on their columns needs.

The width of an observation depends on the vocabularies of all clients. So the server asks for these first, derives
one recipe, and keeps it in the run's directory (`columns.json`) for the case that it is started again.
"""

import time
from collections.abc import Callable

from fova.data.tables.columns import Columns
from fova.data.tables.survey import Agreement, Survey, agree, for_task, stated
from fova.errors import FovaError
from fova.network import messages
from fova.network.asking import Asking, Reply
from fova.network.intake import one_line
from fova.run.config import Config
from fova.run.directory import RunDirectory
from fova.run.records import read_table
from fova.spaces import Discrete, Space
from fova.tasks import registry

AGREED = "columns.json"
SECONDS_TO_ASK_AGAIN = 60.0  # a client that did not answer, or refused


def agreement(
    run: RunDirectory, config: Config, gather: Callable[[Columns], dict[str, Survey]]
) -> Agreement | None:
    """How the clients' tables are encoded: as agreed at an earlier start, or now. None if they hold no tables."""
    if config.columns is None:
        return None
    if (run.path / AGREED).exists():
        return Agreement.from_json(read_table(run, AGREED).content)
    agreed = (
        stated(config.columns) if config.run.privacy != "off" else agree(gather(config.columns), config.columns)
    )
    if config.task:
        agreed = for_task(agreed, config.task, registry.get(config.task).space.action)
    run.write_json(AGREED, agreed.to_json())
    return agreed


def space_of(agreed: Agreement, config: Config) -> Space:
    """The space of tables that are encoded as agreed."""
    if agreed.choices is not None:
        return Space(agreed.recipe.width, Discrete(agreed.choices))
    if not config.run.action_low:
        raise FovaError(
            "The actions are numbers, and nobody has declared their bounds. The server sees no data: give it "
            "--action-low and --action-high."
        )
    return Space.unit(agreed.recipe.width, len(agreed.actions))


class Surveyor:
    """Asks the clients that a grid reaches until enough have told about their tables."""

    def __init__(self, asking: Asking, run_id: str, wanted: int) -> None:
        self.asking, self.run_id, self.wanted = asking, run_id, wanted
        self._asked: dict[int, float] = {}  # node -> when

    def gather(self, columns: Columns, seconds: float, between: float) -> dict[str, Survey]:
        """What each client told, by name. A client that refused is asked again after a while."""
        told: dict[str, Survey] = {}
        shown = -1
        while True:
            told |= self._ask(columns, seconds)
            if len(told) >= self.wanted:
                return told
            if len(told) != shown:
                shown = len(told)
                self.asking.progress.status(
                    f"waiting for clients: {shown} of {self.wanted} told about their columns"
                )
            self.asking.pause(between)

    def _ask(self, columns: Columns, seconds: float) -> dict[str, Survey]:
        now, nodes = time.monotonic(), self.asking.patiently(self.asking.grid.get_node_ids)
        due = [node for node in nodes if now - self._asked.get(node, -SECONDS_TO_ASK_AGAIN) >= SECONDS_TO_ASK_AGAIN]
        self._asked |= dict.fromkeys(due, now)
        questions = {node: messages.survey_question(self.run_id, columns) for node in due}
        told = {}
        for node, reply in self.asking.ask(messages.HELLO, questions, seconds):
            try:
                name, survey = self._read(reply)
            except (FovaError, KeyError, TypeError, ValueError) as error:
                self.asking.progress.note(f"not admitted, node {node}: {one_line(str(error))}")
                continue
            told[name] = survey
        return told

    def _read(self, reply: Reply) -> tuple[str, Survey]:
        if isinstance(reply, Exception):
            raise messages.Refused(f"its message cannot be read ({reply})")
        if reply.has_error():
            raise messages.Refused(f"it failed: {reply.error.reason}")
        return messages.read_survey_answer(reply.content, self.run_id)
