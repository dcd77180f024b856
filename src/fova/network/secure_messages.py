"""The wire format of secure aggregation, as Flower records. Everything else is as in `messages.py`.

Every message has a ConfigRecord `about` with version, run and, from the server, the plan. `session` is a random
number of one attempt at a round; an answer with another one is stale.

    1 keys (query)     server -> client   about: round, session, step "keys"
                       client -> server   ConfigRecord keys: mask, seal (public keys), signature (of both)
    2 shares (query)   server -> client   ConfigRecord keys: names, mask, seal, signature (of all clients of the
                                          round)
                       client -> server   ConfigRecord shares: names, sealed, commitment
    3 round (train)    server -> client   what a plain round has, and ConfigRecord shares: session, names, sealed
                       client -> server   ArrayRecord masked: numbers (64-bit, under masks)
    4 unmask (query)   server -> client   ConfigRecord arrived: names
                       client -> server   ConfigRecord shares: names, revealed
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fova.federation.statistics import Statistics
from fova.network import intake, messages, secure_identity
from fova.network.intake import Refused, one_line
from fova.network.masking import Masked
from fova.network.plan import Plan
from fova.network.secure_session import PublicKeys, Shared, public_key
from fova.version import __version__

KEYS, SHARES, UNMASK = "keys", "shares", "unmask"
LONGEST_BYTES = 8192  # of one key or share


def _question(plan: Plan, number: int, session: str, step: str) -> ConfigRecord:
    facts: dict[str, Any] = {"plan": plan.to_json(), "round": number, "session": session, "step": step}
    return ConfigRecord({"version": __version__, "run": plan.run_id, **facts})


def _answer(plan: Plan, session: str, client: str) -> ConfigRecord:
    return ConfigRecord({"version": __version__, "run": plan.run_id, "client": client, "session": session})


def _list(record: ConfigRecord, name: str, kind: type[str] | type[bytes], most: int) -> list[Any]:
    """A list in a record: of at most so many texts or bytes of limited length."""
    values: Any = record.get(name, [])
    if not isinstance(values, list) or len(values) > most:
        raise Refused(f"its {one_line(name, 20)} are no list of at most {most}")
    if not all(isinstance(value, kind) and len(value) <= LONGEST_BYTES for value in values):
        raise Refused(f"its {one_line(name, 20)} hold something else than {kind.__name__}")
    return values


def _bytes(record: ConfigRecord, name: str) -> bytes:
    value = record.get(name)
    if not isinstance(value, bytes) or len(value) > LONGEST_BYTES:
        raise Refused(f"its {name} is missing, too long or no bytes")
    return value


def _by_name(record: ConfigRecord, name: str, most: int) -> dict[str, bytes]:
    names, values = _list(record, "names", str, most), _list(record, name, bytes, most)
    if len(names) != len(values) or len(set(names)) != len(names):
        raise Refused(f"its names and its {name} do not fit together")
    return dict(zip(names, values))


def _record(content: RecordDict, name: str) -> ConfigRecord:
    if name not in content.config_records:
        raise Refused(f"the message has no {name}")
    return content.config_records[name]


def step_of(content: RecordDict) -> str:
    """Which step of secure aggregation a query is; nothing if it is another question."""
    return str(content.config_records["about"].get("step", ""))


def session_of(content: RecordDict) -> tuple[str, int]:
    """The session and the round that a query of the server is about."""
    about = _record(content, "about")
    return str(about["session"]), int(about["round"])  # type: ignore[arg-type]


# --- From the server ---


def keys_question(plan: Plan, number: int, session: str) -> RecordDict:
    return RecordDict({"about": _question(plan, number, session, KEYS)})


def shares_question(plan: Plan, number: int, session: str, keys: Mapping[str, PublicKeys]) -> RecordDict:
    values: dict[str, Any] = {
        "names": list(keys),
        "mask": [pair.mask for pair in keys.values()],
        "seal": [pair.seal for pair in keys.values()],
        "signature": [pair.signature for pair in keys.values()],
    }
    return RecordDict({"about": _question(plan, number, session, SHARES), "keys": ConfigRecord(values)})


def read_shares_question(content: RecordDict, most: int) -> dict[str, PublicKeys]:
    record = _record(content, "keys")
    masks, seals, signatures = (_by_name(record, name, most) for name in PublicKeys._fields)
    return {name: PublicKeys(masks[name], seals[name], signatures[name]) for name in masks}


def masked_question(
    plan: Plan,
    number: int,
    counted: int,
    broadcast: Any,
    statistics: Statistics,
    session: str,
    sealed: Mapping[str, bytes],
) -> RecordDict:
    question = messages.round_question(plan, number, counted, broadcast, statistics)
    shares: dict[str, Any] = {"session": session, "names": list(sealed), "sealed": list(sealed.values())}
    question["shares"] = ConfigRecord(shares)
    return question


def read_masked_question(content: RecordDict, most: int) -> tuple[str, dict[str, bytes]]:
    """The session, and the sealed shares of other clients."""
    record = _record(content, "shares")
    return str(record.get("session")), _by_name(record, "sealed", most)


def unmask_question(plan: Plan, number: int, session: str, arrived: Sequence[str]) -> RecordDict:
    about = _question(plan, number, session, UNMASK)
    return RecordDict({"about": about, "arrived": ConfigRecord({"names": list(arrived)})})


def read_unmask_question(content: RecordDict, most: int) -> list[str]:
    return _list(_record(content, "arrived"), "names", str, most)


# --- From a client ---


def keys_answer(plan: Plan, session: str, client: str, keys: PublicKeys) -> RecordDict:
    return RecordDict({"about": _answer(plan, session, client), "keys": ConfigRecord({**keys._asdict()})})


def shares_answer(plan: Plan, session: str, client: str, shared: Shared) -> RecordDict:
    values: dict[str, Any] = {
        "names": list(shared.sealed),
        "sealed": list(shared.sealed.values()),
        "commitment": shared.commitment,
    }
    return RecordDict({"about": _answer(plan, session, client), "shares": ConfigRecord(values)})


def masked_answer(plan: Plan, session: str, client: str, numbers: Masked) -> RecordDict:
    record = ArrayRecord({"numbers": Array(numbers)})
    return RecordDict({"about": _answer(plan, session, client), "masked": record})


def unmask_answer(plan: Plan, session: str, client: str, revealed: Mapping[str, bytes]) -> RecordDict:
    values: dict[str, Any] = {"names": list(revealed), "revealed": list(revealed.values())}
    return RecordDict({"about": _answer(plan, session, client), "shares": ConfigRecord(values)})


class Reader:
    """Reads the answers of one client in one session."""

    def __init__(self, plan: Plan, session: str, client: str) -> None:
        self.plan, self.session, self.client = plan, session, client

    def keys(self, content: RecordDict, number: int, identity: bytes, taken: set[bytes]) -> PublicKeys:
        """Its keys of this round, which must be new.

        `identity` is the public key that the client joined with; if there is one, it must have signed them. The
        other clients would refuse anything else, and the round would fail.
        """
        self._insist(content, "keys")
        record = _record(content, "keys")
        keys = PublicKeys(*(_bytes(record, name) for name in PublicKeys._fields))
        for key in keys.pair:
            public_key(key)
        if len({*keys.pair} - taken) < len(keys.pair):
            raise Refused("its keys are equal, or another client's")
        taken.update(keys.pair)
        statement = secure_identity.statement(self.plan.run_id, self.session, number, self.client, keys)
        if identity and not secure_identity.is_signed(identity, statement, keys.signature):
            raise Refused("its keys are not signed with the key that it joined with")
        return keys

    def shared(self, content: RecordDict, clients: Sequence[str]) -> Shared:
        """A sealed share for each of the other clients."""
        self._insist(content, "shares")
        record = _record(content, "shares")
        sealed = _by_name(record, "sealed", len(clients))
        if set(sealed) != set(clients) - {self.client}:
            raise Refused("its shares are not one for each other client")
        return Shared(sealed, _bytes(record, "commitment"))

    def masked(self, content: RecordDict, length: int) -> Masked:
        self._insist(content, "masked")
        if "masked" not in content.array_records:
            raise Refused("the message has no masked numbers")
        expected = {"numbers": ((length,), np.uint64)}
        return intake.arrays(content.array_records["masked"], expected, "masked")["numbers"]

    def revealed(self, content: RecordDict, clients: Sequence[str]) -> dict[str, bytes]:
        self._insist(content, "shares")
        shares = _by_name(_record(content, "shares"), "revealed", len(clients))
        # It may lack shares that it could not open; its own it always has.
        if not {self.client} <= set(shares) <= set(clients):
            raise Refused("it does not reveal one share for each client")
        return shares

    def _insist(self, content: RecordDict, record: str) -> None:
        if messages.read_client(content, self.plan) != self.client:
            raise Refused("it answers in another client's name")
        if content.config_records["about"].get("session") != self.session:
            raise Refused("stale: it answers another attempt at the round")
        if set(content) != {"about", record}:
            raise Refused(f"the message does not hold about and {record}")
