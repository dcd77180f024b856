"""Rounds of secure aggregation over Flower: the server learns the mean of a round and no single client's part.

The steps are those of `secure_session.py`. A client that does not answer a step is left out of the next ones. After
the third step nothing is lost if a client disappears, as long as enough others answer the last one.

An attempt that fails before the last step is repeated. One that fails later is not: clients unmask a round once, so
the round is skipped, and the next one starts from the same broadcast.
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
from fova.network.secure_session import CannotUnmask, PublicKeys, ServerSession, most_liars

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
    missing: set[str] = field(default_factory=set)
    spoilers: set[str] = field(default_factory=set)  # clients whose shares do not fit: they sit out the next round

    @property
    def number(self) -> int:
        return self.state.round


class SecureEngine(FlowerEngine):
    """Rounds of one run in which the server sees only sums."""

    def __init__(self, grid: Any, plan: Plan, *options: Any) -> None:
        super().__init__(grid, plan, *options)
        self.payload = Payload(self.like, plan.run.aggregation)
        self.skipped = 0  # rounds in a row

    def round(self, state: State) -> tuple[State, RoundReport]:
        """One round. An attempt with too few clients is repeated; only attempts with rubbish are counted."""
        self.record.offences |= {name: int(count) for name, count in state.memo.get(OFFENCES, {}).items()}
        failed = 0
        while failed < ATTEMPTS:
            present = self.record.playing(self.wait_for_clients(), state.round, self.network.min_clients)
            attempt = Attempt(state, self._choose(state.round, present))
            try:
                self._gather(attempt)
                mean = self._mean(attempt)
            except NotEnough as error:
                failed += bool(attempt.rejected)
                self.progress.status(f"round {state.round + 1} is tried again: {error}")
            else:
                return self._skipped_round(attempt) if mean is None else self._finished_round(attempt, mean)
            finally:
                self._remember(attempt)
        reasons = "\n".join(f"  - {name}: {why}" for name, why in attempt.rejected.items())
        raise FovaError(f"Round {state.round + 1} failed {ATTEMPTS} times.\n{reasons}".rstrip())

    def _remember(self, attempt: Attempt) -> None:
        silent = attempt.missing | attempt.spoilers
        self.record.answered(set(attempt.nodes) - silent)
        self.record.missed(sorted(silent), attempt.number)

    # --- The four steps ---

    def _gather(self, attempt: Attempt) -> None:
        """The first three steps: keys, shares and the sum of the masked updates."""
        session, plan, number = attempt.session, self.plan, attempt.number
        identities, taken = self._identities(), set[bytes]()

        def keys(name: str) -> RecordDict:
            return secure_messages.keys_question(plan, number, session.session)

        def read_keys(reader: Reader, reply: RecordDict) -> PublicKeys:
            return reader.keys(reply, number, identities.get(attempt.nodes[reader.client], b""), taken)

        session.keys = self._step(attempt, list(attempt.nodes), keys, read_keys)
        self._insist_on(len(session.keys), self.network.min_clients, "announced their keys")
        clients = sorted(session.keys)
        session.keys = {name: session.keys[name] for name in clients}

        def shares(name: str) -> RecordDict:
            return secure_messages.shares_question(plan, number, session.session, session.keys)

        session.shared = self._step(attempt, clients, shares, lambda reader, reply: reader.shared(reply, clients))
        self._insist_on(len(session.shared), session.needed, "shared their secrets")
        self._add_up(attempt)
        self._insist_on(len(session.arrived), max(session.needed, self.network.min_clients), "sent an update")

    def _identities(self) -> dict[int, bytes]:
        """The public keys that nodes joined with; none without authentication."""
        nodes = self.asking.patiently(self.grid.get_nodes)
        return {info.node_id: info.public_key for info in nodes if info.name}

    def _mean(self, attempt: Attempt) -> Mean | None:
        """The mean of the sum, after the fourth step; None if the masks cannot be undone or the sum is rubbish."""
        try:
            self._unmask(attempt)
            total = attempt.session.unmask()
            return self.payload.mean(total, attempt.state.broadcast, len(attempt.session.arrived))
        except CannotUnmask as error:
            self._blame(attempt, error)
            words = str(error)
        except FovaError as error:
            words = str(error)
        self.progress.note(f"round {attempt.number + 1} is skipped: {words}")
        return None

    def _blame(self, attempt: Attempt, error: CannotUnmask) -> None:
        """Those whose shares do not fit sit out. It is an offence if fewer than a third can be made to look so."""
        session = attempt.session
        certain = len(session.revealed) >= session.needed + most_liars(len(session.keys))
        for name in error.clients:
            attempt.rejected[name] = "its masks cannot be undone: the shares of its secret do not fit"
            attempt.spoilers.add(name)
            if certain:
                self._offended(name, attempt.rejected[name])

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
            if leave_out:
                attempt.rejected[name] = answer.why
            else:
                self.progress.note(f"{name} counts, but does not help to unmask the sum: {answer.why}")
            if answer.offence:
                self._offended(name, answer.why)
        if leave_out:
            attempt.missing |= set(names.values())
        return answers

    def _insist_on(self, count: int, needed: int, what: str) -> None:
        if count < needed:
            raise NotEnough(f"{count} clients {what}, but {needed} are needed")

    # --- The end of a round ---

    def _skipped_round(self, attempt: Attempt) -> tuple[State, RoundReport]:
        """The next round with the same broadcast. Nobody counts in this one."""
        self.skipped += 1
        if self.skipped == ATTEMPTS:
            members = ", ".join(sorted(attempt.session.arrived))
            raise FovaError(
                f"{ATTEMPTS} rounds in a row could not be added up. One of {members} does not follow the protocol, "
                "and under the masks nobody can say who. Leave some of them out, or train without "
                "--secure-aggregation, where every client is judged."
            )
        state = attempt.state
        memo = dict(state.memo) | {OFFENCES: dict(self.record.offences)}
        report = RoundReport({}, attempt.rejected, tuple(sorted(attempt.missing)), self._traffic(state))
        return State(attempt.number + 1, state.server, memo=memo), report

    def _traffic(self, state: State) -> rounds.Traffic:
        return rounds.Traffic(payload_bytes(state.broadcast), WORD.itemsize * self.payload.length)

    def _finished_round(self, attempt: Attempt, mean: Mean) -> tuple[State, RoundReport]:
        self.skipped = 0
        state, number = attempt.state, attempt.number + 1
        server = rounds.aggregate(self.plan.algorithm, state.server, rounds.alone(mean.parameters))
        arrived: Mapping[str, Any] = {name: {} for name in sorted(attempt.session.arrived)}
        memo = {COUNTED: counted(state) | dict.fromkeys(arrived, number), OFFENCES: dict(self.record.offences)}
        missing = tuple(sorted(attempt.missing))
        report = RoundReport(arrived, attempt.rejected, missing, self._traffic(state), mean.metrics)
        return State(number, server, memo=memo), report
