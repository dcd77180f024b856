"""A client's side of secure aggregation: its secrets of the round on its own disk, one file that only it can read.

Flower may start a new process for every message, and may start one twice. So the secrets are written before an
answer leaves, and the same question gets the same answer.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from flwr.app import RecordDict

from fova.algorithms.base import Submission
from fova.errors import FovaError
from fova.machine.files import write_atomically
from fova.network import secure_messages as messages
from fova.network.intake import Refused
from fova.network.plan import Plan
from fova.network.secure_identity import insist_on_peers, signed, statement
from fova.network.secure_payload import Payload
from fova.network.secure_session import ClientSession, PublicKeys

T = TypeVar("T")

SECRETS, REVEALED = "secure-round.json", "secure-revealed.json"
MOST_CLIENTS = 10_000


class SecureClient:
    """One client in one run.

    `key` is the file with the secret key that it signs with, `peers` the folder with the public keys of the others.
    """

    def __init__(
        self, plan: Plan, name: str, folder: Path, key: Path | None = None, peers: Path | None = None
    ) -> None:
        self.plan, self.name, self.folder, self.key, self.peers = plan, name, folder, key, peers

    def answer(self, content: RecordDict) -> RecordDict:
        """The reply to a query of the server: keys, shares or unmasking."""
        if not self.plan.secure:
            raise Refused("the plan of this run has no secure aggregation")
        session, number = messages.session_of(content)
        step = messages.step_of(content)
        if step == messages.KEYS:
            secrets = self._begin(session, number)
            return messages.keys_answer(self.plan, session, self.name, self._announced(secrets))
        secrets = self._secrets(session)
        if step == messages.SHARES:
            announced = messages.read_shares_question(content, MOST_CLIENTS)
            if self.peers is not None:
                insist_on_peers(self.peers, self.plan.run_id, session, secrets.round, announced, self.name)
            shared = secrets.share(announced)
            self._keep(secrets)
            return messages.shares_answer(self.plan, session, self.name, shared)
        if step == messages.UNMASK:
            return self._unmask(secrets, messages.read_unmask_question(content, MOST_CLIENTS))
        raise Refused("the server asks for a step that this client does not know")

    def _announced(self, secrets: ClientSession) -> PublicKeys:
        keys = secrets.announce()
        if self.key is None:
            return keys
        said = statement(self.plan.run_id, secrets.session, secrets.round, self.name, keys)
        return keys._replace(signature=signed(self.key, said))

    def masked(self, content: RecordDict, sent: Submission, broadcast: Any) -> RecordDict:
        """The reply to a round: the submission under masks."""
        session, sealed = messages.read_masked_question(content, MOST_CLIENTS)
        secrets = self._secrets(session)
        payload = Payload(self.plan.submission_like(), self.plan.run.aggregation)
        hidden = secrets.mask(payload.encode(sent, broadcast, len(secrets.peers)), sealed)
        self._keep(secrets)
        return messages.masked_answer(self.plan, session, self.name, hidden)

    def _unmask(self, secrets: ClientSession, arrived: list[str]) -> RecordDict:
        revealed = secrets.reveal(arrived)
        self._insist_on_the_same_sum(secrets)
        self._keep(secrets)
        return messages.unmask_answer(self.plan, secrets.session, self.name, revealed)

    def _insist_on_the_same_sum(self, secrets: ClientSession) -> None:
        """A round is unmasked once, or again for the same clients: two sums of a round differ by single updates."""
        file = self.folder / REVEALED
        number, survivors = _read(file, _unmasked) if file.exists() else (None, [])
        if number == secrets.round and survivors != secrets.survivors:
            raise Refused(
                f"round {secrets.round + 1} was unmasked for {', '.join(survivors)} before. It can be repeated "
                "with the same clients only: the difference of two sums would tell about single clients"
            )
        _write(file, {"round": secrets.round, "survivors": secrets.survivors})

    # --- Secrets on disk ---

    def _begin(self, session: str, number: int) -> ClientSession:
        known = self._known()
        if known is not None and known.session == session:
            return known
        secrets = ClientSession.start(session, number, self.name)
        self._keep(secrets)
        return secrets

    def _secrets(self, session: str) -> ClientSession:
        known = self._known()
        if known is None or known.session != session:
            raise Refused("it does not know this attempt at the round")
        return known

    def _known(self) -> ClientSession | None:
        file = self.folder / SECRETS
        return _read(file, ClientSession.from_json) if file.exists() else None

    def _keep(self, secrets: ClientSession) -> None:
        _write(self.folder / SECRETS, secrets.to_json())


def _unmasked(content: Any) -> tuple[int, list[str]]:
    """The round that was unmasked last, and for whom."""
    return int(content["round"]), [str(name) for name in content["survivors"]]


def _read(file: Path, make: Callable[[Any], T]) -> T:
    """What `make` makes of a file that this client wrote."""
    try:
        return make(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FovaError(f"{file} cannot be read: {error}. Delete it; the next round writes it anew.") from error


def _write(file: Path, content: Any) -> None:
    """Write secrets that nobody else on this machine may read."""
    file.parent.mkdir(parents=True, exist_ok=True)
    before = os.umask(0o077)
    try:
        write_atomically(file, json.dumps(content).encode())
    finally:
        os.umask(before)
