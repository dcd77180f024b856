"""The engine on Flower: rounds of one run over whatever clients a grid reaches.

Rounds call the same functions as in a simulation. What a member sends is read by `messages.py` and `intake.py`; who
is asked, and who is out, is in `members.py`. Nothing that a member sends ends the server.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from flwr.app import RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fova.algorithms.base import Submission
from fova.data.normalise import Normaliser
from fova.errors import FovaError
from fova.federation import aggregation, rounds
from fova.federation.engine import RoundReport, State
from fova.federation.gathered import Gathered
from fova.federation.privacy import secret_key
from fova.federation.statistics import (
    ClientStatistics,
    Statistics,
    common_normaliser,
    derive,
    weights_by_returns,
)
from fova.federation.wire import payload_bytes
from fova.machine import runtime
from fova.network import intake, messages
from fova.network.asking import Asking, Pause, Reply
from fova.network.basket import Basket
from fova.network.intake import Refused, one_line
from fova.network.members import Door, Record, Refusal
from fova.network.messages import SaidNo
from fova.network.plan import Plan
from fova.network.server_config import ServerConfig
from fova.progress import Progress
from fova.run.config import unit_of_reward

T = TypeVar("T")

# How often the server looks for clients while it waits for enough of them.
SECONDS_BETWEEN_LOOKS = 3.0
# A newcomer has so long to load its data and say who it is.
HELLO_SECONDS = 300.0
# So many times in a row enough clients may answer without enough good answers, then the run ends.
ATTEMPTS = 3
# Clients of a large round are compared with at least about half as many others.
SMALLEST_GROUP = 16
LONGEST_REASON = 400  # characters of a reason in the log


@dataclass
class Answers:
    """What came back in one round."""

    sent: Basket = field(default_factory=Basket)  # submissions as they travelled
    rejected: dict[str, str] = field(default_factory=dict)  # client -> why
    missing: list[str] = field(default_factory=list)


class FlowerEngine:
    """Rounds of one run over whatever clients a grid reaches."""

    def __init__(
        self,
        grid: Grid,
        plan: Plan,
        network: ServerConfig,
        progress: Progress,
        pause: Pause = time.sleep,
        sleep: Pause = time.sleep,
        folder: Path | None = None,
    ) -> None:
        """`pause` is called while the server waits for clients, `sleep` while it waits for answers in a round.

        The answers of a large round wait in `folder`; without one, in memory.
        """
        runtime.prepare()
        self.grid, self.plan, self.network, self.progress, self.pause = grid, plan, network, progress, pause
        self.asking, self.folder = Asking(grid, progress, pause, sleep), folder
        self.space, self.recipe = plan.space, plan.agreed.recipe if plan.agreed else None
        self.aggregation = aggregation.for_algorithm(plan.run.aggregation, plan.algorithm, plan.run.largest_share)
        self.group = max(plan.run.cohort, SMALLEST_GROUP)
        self.like = plan.submission_like()
        intake.limit_messages(payload_bytes(self.like), len(jax.tree.leaves(self.like)))
        self.members: dict[int, str] = {}  # node -> client
        self.door, self.record = Door(), Record(network.eject_after)
        self.told: dict[str, ClientStatistics] = {}  # what each client said about its data

    # --- The engine ---

    def prepare(self, saved: Mapping[str, Any] | None) -> Statistics:
        """Statistics of the clients that were there at the start; they stay for the whole run."""
        self.statistics = Statistics.from_json(saved) if saved is not None else self._gather_statistics()
        return self.statistics

    def _gather_statistics(self) -> Statistics:
        unit, columns = unit_of_reward(self.plan.run, self.plan.algorithm), self.space.observation
        if not self.plan.gathers_statistics:
            assert unit is not None  # a private run says its unit
            return Statistics(Normaliser.identity(columns), unit)
        present = sorted(self.wait_for_clients())
        told = {name: self.told[name] for name in present}
        share = self.plan.run.largest_share
        normaliser, remarks = common_normaliser(told, columns, share)
        derived = derive(told, normaliser, self.plan.algorithm.discount, unit, share)
        return replace(derived, remarks=remarks + derived.remarks)

    def start(self) -> State:
        return State(0, self.plan.start()[1])

    def round(self, state: State) -> tuple[State, RoundReport]:
        """One round. Clients that fail are left out; if too few are left, the round is tried again."""
        self.record.offences |= {name: int(count) for name, count in state.memo.get(OFFENCES, {}).items()}
        for attempt in range(1, ATTEMPTS + 1):
            answers, needed = self._collect(state)
            while len(answers.sent) + len(answers.rejected) < needed:  # nothing is wrong, but too few are there
                self.progress.status(f"round {state.round + 1}: no answer from {', '.join(answers.missing)}; again")
                answers, needed = self._collect(state)
            server, metrics = self._judge(state, answers)
            if len(metrics) >= needed:
                return self._finished(state, server, metrics, answers)
            self.progress.status(
                f"round {state.round + 1}, attempt {attempt} of {ATTEMPTS}: {len(metrics)} good submissions, "
                f"but {needed} are needed"
            )
        reasons = "\n".join(f"  - {name}: {why}" for name, why in answers.rejected.items())
        raise FovaError(
            f"Round {state.round + 1} failed {ATTEMPTS} times: too few clients sent something that can be used.\n"
            f"{reasons}\nIf parameters are not finite, lower the learning rates or the rewards' scale."
        )

    def data_changes_after(self, rounds: int) -> bool:
        return False

    def clients(self) -> dict[str, dict[str, Any]]:
        """What clients said about their data, in order of their names; under privacy they say nothing."""
        return {
            name: {
                "rows": client.rows,
                "episodes": client.episodes,
                "behaviour_return": client.behaviour_return,
            }
            for name, client in sorted(self.told.items())
        }

    def local_learners(self, state: State) -> dict[str, Any]:
        """Clients keep their learners to themselves."""
        return {}

    # --- Who is there ---

    def _present(self) -> dict[str, int]:
        """Clients that are connected and fit, by name; newcomers are asked who they are first."""
        here = set(self.asking.patiently(self.grid.get_node_ids))
        self.members = {node: name for node, name in self.members.items() if node in here}
        strangers = sorted(here - set(self.members) - self.door.closed(time.monotonic()))
        questions = {node: messages.hello(self.plan) for node in strangers}
        for node, reply in self.asking.ask(messages.HELLO, questions, min(HELLO_SECONDS, self.network.deadline)):
            self._greet(node, reply)
            strangers.remove(node)
        for node in strangers:  # somebody who never answers must not hold up every round
            self._refuse(node, "it does not say who it is")
        return {name: node for node, name in self.members.items() if not self.record.is_out(name)}

    def _greet(self, node: int, reply: Reply) -> None:
        registered = self._registered_name(node)

        def read(content: RecordDict) -> tuple[str, ClientStatistics | None]:
            name = messages.read_client(content, self.plan)
            if name in self.members.values():
                raise Refused(f"another client is called {name!r} already")
            if registered and registered != name:
                raise Refused(f"it calls itself {name!r}, but its key is registered for {registered!r}")
            if self.record.is_out(name):
                raise SaidNo(f"it is out of this run after {self.record.offences[name]} offences")
            return name, messages.read_statistics(content, self.plan)

        answer = self.read(reply, read)
        if isinstance(answer, Refusal):
            self._refuse(node, answer.why)
            if answer.offence:
                self._offended(registered or f"node {node}", answer.why)
            return
        name, statistics = answer
        self.members[node] = name
        if statistics is not None:
            self.told[name] = statistics
        self.progress.note(f"{name} joined")

    def _refuse(self, node: int, why: str) -> None:
        self.door.refuse(node, time.monotonic())
        self.progress.note(f"not admitted, {self._registered_name(node) or f'node {node}'}: {why}")

    def _registered_name(self, node: int) -> str:
        """The name that the administrator gave a node's key; none without authentication."""
        nodes = self.asking.patiently(self.grid.get_nodes)
        return one_line(next((info.name for info in nodes if info.node_id == node), ""))

    def wait_for_clients(self) -> dict[str, int]:
        """Wait until as many clients are connected as the server wants."""
        shown = -1
        while len(clients := self._present()) < self.network.min_clients:
            if len(clients) != shown:
                shown = len(clients)
                self.progress.status(f"waiting for clients: {shown} of {self.network.min_clients} are here")
            self.pause(SECONDS_BETWEEN_LOOKS)
        return clients

    # --- One round ---

    def _collect(self, state: State) -> tuple[Answers, int]:
        """Ask this round's clients, and sort what comes back before the deadline."""
        present = self.record.playing(self.wait_for_clients(), state.round, self.network.min_clients)
        clients = self._choose(state.round, present)
        question = messages.round_questions(self.plan, state.round, state.broadcast, self.statistics)
        questions = {node: question(counted(state).get(name, 0)) for name, node in clients.items()}
        answers = Answers(self._basket(len(clients)))
        names = {node: name for name, node in clients.items()}
        for node, reply in self.asking.ask(messages.ROUND, questions, self.network.deadline):
            name = names.pop(node)
            answer = self.read(reply, partial(self._submission, name, state.round))
            if not isinstance(answer, Refusal):
                answers.sent.put(name, answer)
                continue
            answers.rejected[name] = answer.why
            if answer.offence:
                self._offended(name, answer.why)
        answers.missing = sorted(names.values())
        self.record.answered(set(clients) - set(answers.missing))
        self.record.missed(answers.missing, state.round)
        return answers, min(self.network.min_clients, len(clients))

    def _submission(self, name: str, number: int, content: RecordDict) -> Submission:
        if messages.read_client(content, self.plan) != name:
            raise Refused("it answers in another client's name")
        return messages.read_round_answer(content, self.plan, number, self.like)

    def _offended(self, name: str, why: str) -> None:
        if self.record.offend(name):
            self.progress.note(
                f"{name} is out of the run after {self.record.eject_after} offences, the last: {why}"
            )

    def read(self, reply: Reply, read: Callable[[RecordDict], T]) -> T | Refusal:
        """What `read` makes of a member's reply, or why it cannot be used. Nothing in a reply ends the server."""
        try:
            if isinstance(reply, Exception):
                raise reply
            if reply.has_error():
                raise SaidNo(f"Flower reports: {one_line(reply.error.reason)}")
            return read(reply.content)
        except FovaError as error:
            return Refusal(one_line(str(error), LONGEST_REASON), not isinstance(error, SaidNo))
        except Exception as error:  # noqa: BLE001  whatever it is, it is about this member's message
            return Refusal(f"its message cannot be read ({type(error).__name__}: {one_line(str(error))})")

    def _choose(self, number: int, clients: dict[str, int]) -> dict[str, int]:
        wanted = max(self.network.min_clients, round(self.plan.run.participation * len(clients)))
        if wanted >= len(clients):
            return clients
        order = jax.random.permutation(rounds.participation_key(self.plan.root_key, number), len(clients))
        names = sorted(clients)
        return {names[int(i)]: clients[names[int(i)]] for i in order[:wanted]}

    def _basket(self, clients: int) -> Basket:
        """Where the answers of so many clients wait: on disk, if they are judged in several groups."""
        if clients <= self.group:
            return Basket()
        if not self._whole_rounds():
            return Basket(self.folder)
        megabytes = clients * payload_bytes(self.like) / 1e6
        self.progress.status(f"all {clients} answers are compared with one another: {megabytes:,.0f} MB of memory")
        return Basket()

    def _whole_rounds(self) -> bool:
        """Whether all submissions of a round are needed at once. Otherwise means of groups are merged."""
        return self.aggregation.whole_rounds or not self.plan.algorithm.mergeable

    def _groups(self, number: int, names: list[str]) -> list[list[str]]:
        """The clients of a round in groups that are judged one after another: all in one, if they are few.

        Groups are about equal and dealt out by chance, anew in every round. Clients that lie together are then a
        minority of every group if they are one of the round.
        """
        if len(names) <= self.group or self._whole_rounds():
            return [names]
        order = jax.random.permutation(rounds.groups_key(self.plan.root_key, number), len(names))
        dealt = np.array_split(np.asarray(order), -(-len(names) // self.group))
        return [sorted(names[int(i)] for i in group) for group in dealt]

    def _judge(self, state: State, answers: Answers) -> tuple[Any, dict[str, dict[str, float]]]:
        """The server's next state and the metrics of the accepted clients, in order of their names."""
        names = answers.sent.names()
        places, by_returns = {name: i for i, name in enumerate(names)}, self._log_weights(names)
        gathered, groups = Gathered(), self._groups(state.round, names) if names else []
        for group in groups:
            members = [places[name] for name in group]
            judged = self._judged(state, answers.sent, group, by_returns[members], len(groups[0]))
            verdicts, log_weights = np.asarray(judged.verdicts)[: len(group)], np.asarray(judged.log_weights)
            gathered.add(members, verdicts, judged.metrics, log_weights)
            if rounds.ACCEPTED in gathered.verdicts[-len(group) :]:
                gathered.merge(judged.submissions, judged.log_total)
        answers.sent.clear()
        for member, verdict in sorted(zip(gathered.members, gathered.verdicts)):
            if verdict != rounds.ACCEPTED:
                answers.rejected[names[member]] = rounds.WHY_REJECTED[verdict]
                self._offended(names[member], answers.rejected[names[member]])
        table = gathered.metrics()
        if self.plan.privacy is None and self.aggregation.combine is None:
            table["server_weight"] = rounds.server_weights(gathered.log_weights)
        metrics = {
            names[member]: {name: float(values[i]) for name, values in table.items()}
            for member, i in sorted(zip(gathered.members, range(len(names))))
            if names[member] not in answers.rejected
        }
        submissions, privacy = gathered.submissions, self.plan.privacy
        if submissions is None:
            return state.server, metrics
        if privacy is not None and privacy.noise_at == "server":
            # How many are connected is no secret. The sum is divided by that, whether or not all were accepted.
            privacy = replace(privacy, clients=max(privacy.clients, len(names)))
            submissions = gathered.published(privacy, state.broadcast, secret_key())
        return rounds.aggregate(self.plan.algorithm, state.server, submissions), metrics

    def _judged(
        self, state: State, sent: Basket, group: list[str], by_returns: NDArray[np.float32], size: int
    ) -> rounds.Judged:
        """The verdict on a group, filled up to `size` with clients that count for nothing: one compilation."""

        def filled(leaf: NDArray[Any]) -> NDArray[Any]:
            return np.concatenate([leaf, np.repeat(leaf[:1], size - len(group), axis=0)])

        return rounds.judge_submissions(
            self.plan.algorithm,
            self.aggregation,
            self.plan.envelope,
            state.broadcast,
            jax.tree.map(filled, sent.stacked(group)) if len(group) < size else sent.stacked(group),
            np.arange(size) < len(group),
            filled(by_returns),
        )

    def _log_weights(self, names: list[str]) -> NDArray[np.float32]:
        """By the returns in the data of every client that joined so far and is not out of the run."""
        told = {name: said for name, said in self.told.items() if not self.record.is_out(name)}
        known = weights_by_returns(told, self.plan.algorithm.discount, self.plan.run.largest_share)
        return np.array([known.get(name, 0.0) for name in names], np.float32)

    def _finished(
        self, state: State, server: Any, metrics: dict[str, dict[str, float]], answers: Answers
    ) -> tuple[State, RoundReport]:
        number = state.round + 1
        memo = {COUNTED: counted(state) | dict.fromkeys(metrics, number), OFFENCES: dict(self.record.offences)}
        state = State(number, server, memo=memo)
        traffic = rounds.Traffic(payload_bytes(state.broadcast), payload_bytes(self.like))
        return state, RoundReport(metrics, answers.rejected, tuple(answers.missing), traffic)


COUNTED, OFFENCES = "counted", "offences"


def counted(state: State) -> dict[str, int]:
    """For each client the rounds that were finished when it last counted: it goes on from its state of then."""
    return dict(state.memo.get(COUNTED, {}))
