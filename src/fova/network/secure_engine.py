"""Rounds of secure aggregation over Flower: the server learns the mean of a round and no single client's part.

The steps are those of `secure_session.py`. A client that does not answer a step is left out of the next ones. After
the third step nothing is lost if a client disappears, as long as enough others answer the last one.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from flwr.app import RecordDict

from fova.errors import FovaError
from fova.federation import rounds
from fova.federation.engine import RoundReport, State
from fova.federation.wire import payload_bytes
from fova.network import messages, secure_messages
from fova.network.engine import ATTEMPTS, COUNTED, OFFENCES, FlowerEngine, counted
from fova.network.masking import WORD
from fova.network.members import Refusal
from fova.network.plan import Plan
from fova.network.secure_messages import Reader
from fova.network.secure_payload import Mean, Payload
from fova.network.secure_session import ServerSession

T = TypeVar("T")


class NotEnough(FovaError):
    """Too few clients are left to unmask the sum of this attempt at a round."""


@dataclass
class Attempt:
    """One attempt at a round."""

    state: State
    nodes: dict[str, int]  # the clients that were asked, by name
    session: ServerSession = field(default_factory=lambda: ServerSession(secrets.token_hex(16)))
    rejected: dict[str, str] = field(default_factory=dict)  # client that does not count -> why
    unhelpful: dict[str, str] = field(default_factory=dict)  # client that counts but does not unmask -> why
    missing: set[str] = field(default_factory=set)

    @property
    def number(self) -> int:
        return self.state.round


class SecureEngine(FlowerEngine):
    """Rounds of one run in which the server sees only sums."""

    def __init__(self, grid: Any, plan: Plan, *options: Any) -> None:
        super().__init__(grid, plan, *options)
        self.payload = Payload(self.like, plan.run.aggregation)

    def round(self, state: State) -> tuple[State, RoundReport]:
        """One round. An attempt with too few clients is repeated; only attempts with rubbish are counted."""
        self.record.offences |= {name: int(count) for name, count in state.memo.get(OFFENCES, {}).items()}
        failed = 0
        while failed < ATTEMPTS:
            present = self.record.playing(self.wait_for_clients(), state.round, self.network.min_clients)
            attempt = Attempt(state, self._choose(state.round, present))
            try:
                return self._finished_round(attempt, self._mean(attempt))
            except FovaError as error:
                failed += bool(attempt.rejected or attempt.unhelpful) or not isinstance(error, NotEnough)
                self.progress.status(f"round {state.round + 1} is tried again: {error}")
            finally:
                self._remember(attempt)
        reasons = "\n".join(f"  - {name}: {why}" for name, why in (attempt.rejected | attempt.unhelpful).items())
        raise FovaError(f"Round {state.round + 1} failed {ATTEMPTS} times.\n{reasons}".rstrip())

    def _remember(self, attempt: Attempt) -> None:
        self.record.answered(set(attempt.nodes) - attempt.missing)
        self.record.missed(sorted(attempt.missing), attempt.number)

    # --- The four steps ---

    def _mean(self, attempt: Attempt) -> Mean:
        session, plan, number = attempt.session, self.plan, attempt.number

        def keys(name: str) -> RecordDict:
            return secure_messages.keys_question(plan, number, session.session)

        session.keys = self._step(attempt, list(attempt.nodes), keys, lambda reader, reply: reader.keys(reply))
        self._insist_on(len(session.keys), self.network.min_clients, "announced their keys")
        clients = sorted(session.keys)
        session.keys = {name: session.keys[name] for name in clients}

        def shares(name: str) -> RecordDict:
            return secure_messages.shares_question(plan, number, session.session, session.keys)

        session.shared = self._step(attempt, clients, shares, lambda reader, reply: reader.shared(reply, clients))
        self._insist_on(len(session.shared), session.needed, "shared their secrets")
        self._add_up(attempt)
        self._insist_on(len(session.arrived), max(session.needed, self.network.min_clients), "sent an update")
        self._unmask(attempt)
        return self.payload.mean(session.unmask(), attempt.state.broadcast, len(session.arrived))

    def _add_up(self, attempt: Attempt) -> None:
        """Ask for the round's masked updates. Each is added to the sum when it arrives, and forgotten."""
        session, state = attempt.session, attempt.state

        def train(name: str) -> RecordDict:
            return secure_messages.masked_question(
                self.plan,
                state.round,
                counted(state).get(name, 0),
                state.broadcast,
                self.statistics,
                session.session,
                session.sealed_for(name),
            )

        def add(reader: Reader, reply: RecordDict) -> None:
            session.add(reader.client, reader.masked(reply, self.payload.length))

        self._step(attempt, list(session.shared), train, add, messages.ROUND)

    def _unmask(self, attempt: Attempt) -> None:
        session, clients = attempt.session, list(attempt.session.shared)

        def unmask(name: str) -> RecordDict:
            return secure_messages.unmask_question(self.plan, attempt.number, session.session, session.arrived)

        def revealed(reader: Reader, reply: RecordDict) -> dict[str, bytes]:
            return reader.revealed(reply, clients)

        session.revealed = self._step(attempt, list(session.arrived), unmask, revealed, leave_out=False)
        self._insist_on(len(session.revealed), session.needed, "helped to unmask the sum")

    def _step(
        self,
        attempt: Attempt,
        clients: list[str],
        question: Callable[[str], RecordDict],
        read: Callable[[Reader, RecordDict], T],
        kind: str = messages.HELLO,
        leave_out: bool = True,
    ) -> dict[str, T]:
        """What clients answer to a step, by name. `leave_out`: who does not answer is missing in the round."""
        names = {attempt.nodes[name]: name for name in clients}
        questions = {node: question(name) for node, name in names.items()}
        answers: dict[str, T] = {}
        for node, reply in self.asking.ask(kind, questions, self.network.deadline):
            name = names.pop(node)
            reader = Reader(self.plan, attempt.session.session, name)
            answer = self.read(reply, lambda content, reader=reader: read(reader, content))  # type: ignore[misc]
            if not isinstance(answer, Refusal):
                answers[name] = answer
                continue
            (attempt.rejected if leave_out else attempt.unhelpful)[name] = answer.why
            if answer.offence:
                self._offended(name, answer.why)
        if leave_out:
            attempt.missing |= set(names.values())
        return answers

    def _insist_on(self, count: int, needed: int, what: str) -> None:
        if count < needed:
            raise NotEnough(f"{count} clients {what}, but {needed} are needed")

    # --- The end of a round ---

    def _finished_round(self, attempt: Attempt, mean: Mean) -> tuple[State, RoundReport]:
        state, number = attempt.state, attempt.number + 1
        server = rounds.aggregate(self.plan.algorithm, state.server, rounds.alone(mean.parameters))
        arrived: Mapping[str, Any] = {name: {} for name in sorted(attempt.session.arrived)}
        memo = {COUNTED: counted(state) | dict.fromkeys(arrived, number), OFFENCES: dict(self.record.offences)}
        traffic = rounds.Traffic(payload_bytes(state.broadcast), WORD.itemsize * self.payload.length)
        missing = tuple(sorted(attempt.missing))
        report = RoundReport(arrived, attempt.rejected, missing, traffic, mean.metrics)
        return State(number, server, memo=memo), report
