"""One round of secure aggregation as both sides see it: keys, shares of secrets, masked numbers, unmasking.

The four steps of the protocol are pure functions of values that can be written to disk, so that a client may live
in another process at every step. Every step of a client gives the same answer to the same question, and refuses a
different question in the same session: a second answer under the same masks would tell what the first one hides.

    1 announce   a client makes two key pairs and tells their public parts
    2 share      it cuts its mask key and its own seed into shares, one for each client, sealed for that client
    3 mask       it sends its numbers under masks (`masking.py`)
    4 reveal     told who arrived, it opens its shares: of the seeds of clients that arrived, of the mask keys of
                 those that did not; never both of one client

Any `threshold` of the clients can undo the masks of a sum, fewer cannot. A share that cannot be opened stops
nobody: the client masks its numbers all the same, and has nothing to reveal of the one who made the share. No
network, file or clock here.
"""

import base64
import hashlib
import itertools
import json
import math
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidKey, UnsupportedAlgorithm
from cryptography.fernet import InvalidToken
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt, generate_shared_key
from flwr.common.secure_aggregation.secaggplus_utils import (
    share_keys_plaintext_concat,
    share_keys_plaintext_separate,
)
from flwr.supercore.primitives.asymmetric import (
    bytes_to_private_key,
    bytes_to_public_key,
    generate_key_pairs,
    private_key_to_bytes,
    public_key_to_bytes,
)

from fova.network.intake import Refused
from fova.network.masking import SEED_BYTES, Masked, masked, pair_seed, unmasked
from fova.network.secure_rules import FEWEST_CLIENTS

MOST_TRIED = 200  # sets of shares, if some of them are wrong


def threshold(clients: int) -> int:
    """How many of so many clients can undo the masks of a sum: more than two thirds.

    Then nobody gets both secrets of a client, even if the server asks clients differently and up to a third of
    them help it.
    """
    return 2 * clients // 3 + 1


def most_liars(clients: int) -> int:
    """So many of so many clients may lie, and the others can still undo the masks: fewer than a third."""
    return (clients - 1) // 3


class PublicKeys(NamedTuple):
    """What a client announces: one key to agree on masks, one to seal shares, and its signature of both."""

    mask: bytes
    seal: bytes
    signature: bytes = b""  # see `secure_identity.py`

    @property
    def pair(self) -> tuple[bytes, bytes]:
        return self.mask, self.seal


class Shared(NamedTuple):
    """What a client answers in the second step."""

    sealed: dict[str, bytes]  # client -> the shares for it, which only it can open
    commitment: bytes  # a hash of its own seed, so that wrong shares are noticed


class CannotUnmask(Refused):
    """The secrets of some clients cannot be put together from the shares that were revealed."""

    def __init__(self, clients: Sequence[str], words: str) -> None:
        super().__init__(words)
        self.clients = clients


def public_key(key: bytes) -> ec.EllipticCurvePublicKey:
    """The key that a client announced. Only keys of the curve that all clients use are taken."""
    try:
        public = bytes_to_public_key(key)
        if not isinstance(public.curve, ec.SECP384R1):
            raise ValueError("a key of another curve")
    except (ValueError, TypeError, AttributeError, UnsupportedAlgorithm) as error:
        raise Refused("a public key cannot be read, or is of another kind than EC P-384") from error
    return public


def _agree(own: bytes, other: bytes) -> bytes:
    """The key that two clients agree on, from the private key of one and the public key of the other."""
    try:
        return generate_shared_key(bytes_to_private_key(own), public_key(other))
    except (ValueError, InvalidKey) as error:
        raise Refused("no key can be agreed on with a public key of another client") from error


# --- A client ---


@dataclass
class ClientSession:
    """A client's secrets of one round."""

    session: str
    round: int
    client: str
    mask_key: bytes  # private, as PEM
    seal_key: bytes
    own_seed: bytes
    peers: dict[str, PublicKeys] = field(default_factory=dict)
    sealed: dict[str, bytes] = field(default_factory=dict)  # what it sent in the second step
    own_shares: tuple[bytes, bytes] | None = None
    partners: list[str] = field(default_factory=list)  # whose masks are in what it sent, itself included
    shares: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)  # client -> of its seed, of its mask key
    sent: str = ""  # a hash of what it sent under masks
    survivors: list[str] = field(default_factory=list)  # whom it was told about in the last step

    @staticmethod
    def start(session: str, number: int, client: str) -> "ClientSession":
        keys = [private_key_to_bytes(generate_key_pairs()[0]) for _ in range(2)]
        return ClientSession(session, number, client, keys[0], keys[1], os.urandom(SEED_BYTES))

    def announce(self) -> PublicKeys:
        """Step 1."""
        mask, seal = (bytes_to_private_key(key).public_key() for key in (self.mask_key, self.seal_key))
        return PublicKeys(public_key_to_bytes(mask), public_key_to_bytes(seal))

    def share(self, peers: Mapping[str, PublicKeys]) -> Shared:
        """Step 2: shares of both secrets for all clients of the round, the client itself included."""
        if self.peers and self.peers != dict(peers):
            raise Refused("it was given other keys of the same clients before")
        if not self.peers:
            self._insist_on_sound(peers)
            self.peers = {name: PublicKeys(*peers[name]) for name in sorted(peers)}
            self._make_shares()
        return Shared(self.sealed, hashlib.sha256(self.own_seed).digest())

    def _insist_on_sound(self, peers: Mapping[str, PublicKeys]) -> None:
        if len(peers) < FEWEST_CLIENTS:
            raise Refused(
                f"the round has {len(peers)} clients. Secure aggregation needs {FEWEST_CLIENTS}: of two, each "
                "could subtract its own part from the mean"
            )
        if self.client not in peers or peers[self.client].pair != self.announce().pair:
            raise Refused("the keys that are given out in its name are not its own")
        keys = [key for announced in peers.values() for key in announced.pair]
        if len(set(keys)) < len(keys):
            raise Refused("two clients of the round have the same key")

    def _make_shares(self) -> None:
        names = list(self.peers)
        count, number = threshold(len(names)), names.index(self.client)
        seed_shares = create_shares(self.own_seed, count, len(names))
        key_shares = create_shares(self.mask_key, count, len(names))
        for i, (name, of_seed, of_key) in enumerate(zip(names, seed_shares, key_shares)):
            if name == self.client:
                self.own_shares = of_seed, of_key
                continue
            self.sealed[name] = encrypt(
                self._channel(name), share_keys_plaintext_concat(number, i, of_seed, of_key)
            )

    def _channel(self, other: str) -> bytes:
        """The key that this client and another one seal shares with.

        It depends on the keys of all clients of the round. So clients that were told of different rounds cannot
        open one another's shares: a server gains nothing by showing a client a smaller round than the others.
        """
        round_keys = json.dumps([[name, *map(bytes.hex, keys.pair)] for name, keys in sorted(self.peers.items())])
        agreed = _agree(self.seal_key, self.peers[other].seal)
        mixed = b"fova seal " + self.session.encode() + hashlib.sha256(round_keys.encode()).digest() + agreed
        return base64.urlsafe_b64encode(hashlib.sha256(mixed).digest())

    def mask(self, numbers: Masked, received: Mapping[str, bytes]) -> Masked:
        """Step 3: the numbers under masks. `received` are the sealed shares from the clients that made some."""
        self._open(received)
        others = [name for name in self.partners if name != self.client]
        seeds = {name: pair_seed(_agree(self.mask_key, self.peers[name].mask), self.session) for name in others}
        hidden = masked(numbers, self.client, self.own_seed, seeds)
        digest = hashlib.sha256(hidden.tobytes()).hexdigest()
        if self.sent not in ("", digest):
            raise Refused("it has sent other numbers under the same masks; a second answer would tell both")
        self.sent = digest
        return hidden

    def _open(self, received: Mapping[str, bytes]) -> None:
        if self.own_shares is None:
            raise Refused("it has not made its shares yet")
        names = list(self.peers)
        if not set(received) <= set(names) - {self.client}:
            raise Refused("it is given shares of clients that are not in the round")
        if len(received) + 1 < threshold(len(names)):
            raise Refused(
                f"{len(received) + 1} of {len(names)} clients made shares, but {threshold(len(names))} are needed"
            )
        partners, opened = sorted([self.client, *received]), {self.client: self.own_shares}
        for name, sealed in received.items():
            if (pair := self._opened(name, sealed)) is not None:
                opened[name] = pair
        if self.partners and (self.partners, self.shares) != (partners, opened):
            raise Refused("it was given other shares before")
        self.partners, self.shares = partners, opened

    def _opened(self, name: str, sealed: bytes) -> tuple[bytes, bytes] | None:
        """The shares that a client made for this one; None if they cannot be opened or are not for it."""
        names = list(self.peers)
        try:
            plain = decrypt(self._channel(name), sealed)
            source, target, of_seed, of_key = share_keys_plaintext_separate(plain)
        except (InvalidToken, ValueError, TypeError):
            return None
        return (of_seed, of_key) if (source, target) == (names.index(name), names.index(self.client)) else None

    def reveal(self, survivors: Sequence[str]) -> dict[str, bytes]:
        """Step 4: a share of the seed of every survivor, and of the mask key of every client that dropped out."""
        arrived = sorted(set(survivors))
        if not self.sent or self.client not in arrived or not set(arrived) <= set(self.partners):
            raise Refused("the clients that arrived are not among those of the round")
        if len(arrived) < threshold(len(self.peers)):
            raise Refused(
                f"{len(arrived)} of {len(self.peers)} clients arrived, but {threshold(len(self.peers))} are needed"
            )
        if self.survivors and self.survivors != arrived:
            raise Refused("it was told that other clients arrived; a second answer would tell single updates")
        self.survivors = arrived
        return {name: of_seed if name in arrived else of_key for name, (of_seed, of_key) in self.shares.items()}

    # --- As plain values, for the client's disk ---

    def to_json(self) -> dict[str, Any]:
        return _hexed(asdict(self) | {"peers": {name: list(keys) for name, keys in self.peers.items()}})

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "ClientSession":
        known = _unhexed(content)
        known["peers"] = {name: PublicKeys(*keys) for name, keys in known["peers"].items()}
        known["shares"] = {name: tuple(pair) for name, pair in known["shares"].items()}
        known["own_shares"] = None if known["own_shares"] is None else tuple(known["own_shares"])
        return ClientSession(**known)


_BYTES = "bytes:"


def _hexed(value: Any) -> Any:
    if isinstance(value, bytes):
        return _BYTES + value.hex()
    if isinstance(value, Mapping):
        return {name: _hexed(item) for name, item in value.items()}
    return [_hexed(item) for item in value] if isinstance(value, list | tuple) else value


def _unhexed(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_BYTES):
        return bytes.fromhex(value.removeprefix(_BYTES))
    if isinstance(value, Mapping):
        return {name: _unhexed(item) for name, item in value.items()}
    return [_unhexed(item) for item in value] if isinstance(value, list) else value


# --- The server ---


@dataclass
class ServerSession:
    """What the server holds of one round: keys, sealed shares and one running sum. Never one client's numbers."""

    session: str
    keys: dict[str, PublicKeys] = field(default_factory=dict)
    shared: dict[str, Shared] = field(default_factory=dict)
    arrived: list[str] = field(default_factory=list)
    total: Masked | None = None
    revealed: dict[str, dict[str, bytes]] = field(default_factory=dict)  # who revealed -> of whom -> share

    @property
    def needed(self) -> int:
        return threshold(len(self.keys))

    def sealed_for(self, client: str) -> dict[str, bytes]:
        """The sealed shares that others made for a client."""
        return {name: shared.sealed[client] for name, shared in self.shared.items() if name != client}

    def add(self, client: str, hidden: Masked) -> None:
        """Add a client's masked numbers to the sum."""
        self.total = hidden.copy() if self.total is None else self.total + hidden
        self.arrived.append(client)

    def unmask(self) -> Masked:
        """The sum of the numbers of all clients that arrived."""
        assert self.total is not None
        restored = {name: self._restored(name) for name in self.shared}
        if failed := [name for name, secret in restored.items() if secret is None]:
            raise CannotUnmask(failed, f"the masks of {', '.join(failed)} cannot be undone: shares do not fit")
        seeds = {name: secret for name, secret in restored.items() if secret is not None}
        dropped = {name: self._pair_seeds(seeds.pop(name)) for name in self.shared if name not in self.arrived}
        return unmasked(self.total, list(seeds.values()), dropped)

    def _pair_seeds(self, mask_key: bytes) -> dict[str, bytes]:
        """The seeds that a client which dropped out shares with those that arrived."""
        return {name: pair_seed(_agree(mask_key, self.keys[name].mask), self.session) for name in self.arrived}

    def _restored(self, client: str) -> bytes | None:
        """A client's secret from the shares that were revealed: its seed if it arrived, else its mask key.

        Wrong shares are left out if there are enough others.
        """
        fits = self._is_seed if client in self.arrived else self._is_mask_key
        shares = [told[client] for told in self.revealed.values() if client in told]
        for chosen in _subsets(shares, self.needed):
            if fits(client, secret := _combined(chosen)):
                return secret
        return None

    def _is_seed(self, client: str, secret: bytes) -> bool:
        return len(secret) == SEED_BYTES and hashlib.sha256(secret).digest() == self.shared[client].commitment

    def _is_mask_key(self, client: str, secret: bytes) -> bool:
        try:
            return public_key_to_bytes(bytes_to_private_key(secret).public_key()) == self.keys[client].mask
        except (ValueError, TypeError, AttributeError, UnsupportedAlgorithm):
            return False


def _subsets(shares: list[bytes], size: int) -> Iterator[list[bytes]]:
    """Sets of so many shares: all of them if they are few, else some by chance, so that no share is in all."""
    if math.comb(len(shares), size) <= MOST_TRIED:
        yield from map(list, itertools.combinations(shares, size))
        return
    chance = random.Random(0)
    for _ in range(MOST_TRIED):
        yield chance.sample(shares, size)


def _combined(shares: list[bytes]) -> bytes:
    """The secret that shares make; nothing if they do not fit together."""
    try:
        return combine_shares(shares)
    except (ValueError, TypeError, IndexError):
        return b""
