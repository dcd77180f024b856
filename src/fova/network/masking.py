"""Sums that are known while their terms are not: the arithmetic of secure aggregation. No network, file or clock.

Client u holds a vector of numbers x_u. It sends

    y_u = q_u + P(b_u) + sum over v > u of P(s_uv) - sum over v < u of P(s_uv)      (mod 2^64)

where q_u is x_u in fixed point, b_u a secret of the client, s_uv a secret that the clients u and v share, and P(s)
a vector of random 64-bit numbers with the seed s. Each y_u alone is random. In the sum over all clients the shared
masks cancel, and the sum of all P(b_u) is subtracted once the seeds b_u are known (Bonawitz et al., "Practical
Secure Aggregation for Privacy-Preserving Machine Learning", 2017).

Flower's own generator of masks is not used: it shortens every seed to 32 bits, which a server could try one by one.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from jaxtyping import Float64, UInt64

from fova.errors import FovaError

Masked = UInt64[np.ndarray, " numbers"]
SEED_BYTES = 32
WORD = np.dtype("<u8")
ROOM = 2.0**62  # of 2^63: the sum stays clear of the sign bit


# --- Fixed point ---


@dataclass(frozen=True)
class FixedPoint:
    """Real numbers as multiples of 2^-bits, modulo 2^64."""

    bits: int

    def largest(self, clients: int) -> float:
        """The largest absolute number that each of so many clients may add to a sum."""
        return ROOM / 2.0**self.bits / clients

    def error(self, clients: int) -> float:
        """The largest error of a sum of so many numbers: every one is rounded to the nearest multiple."""
        return clients * 2.0 ** -(self.bits + 1)

    def encode(self, numbers: Float64[np.ndarray, " numbers"], clients: int) -> Masked:
        """The numbers of one of so many clients. Too large ones are refused: they would turn the sum around."""
        largest = np.max(np.abs(numbers), initial=0.0)
        if not largest <= self.largest(clients):
            raise FovaError(
                f"A number of this round is {largest:.3g}, but with {clients} clients secure aggregation adds up "
                f"numbers to {self.largest(clients):.3g} only. Lower the learning rates or the scale of rewards."
            )
        return np.rint(numbers * 2.0**self.bits).astype(np.int64).view(np.uint64)

    def decode(self, total: Masked) -> Float64[np.ndarray, " numbers"]:
        """The real numbers of a sum without masks."""
        return total.view(np.int64) / 2.0**self.bits


# --- Masks ---


def mask(seed: bytes, length: int) -> Masked:
    """`length` random numbers that only those know who know the seed: the key stream of ChaCha20."""
    if len(seed) != SEED_BYTES:
        raise ValueError(f"a seed has {SEED_BYTES} bytes, not {len(seed)}")
    stream = Cipher(ChaCha20(seed, bytes(16)), mode=None).encryptor().update(bytes(WORD.itemsize * length))
    return np.frombuffer(stream, WORD).astype(np.uint64)


def pair_seed(shared_key: bytes, session: str) -> bytes:
    """The seed of the mask that two clients share in a session, from the key that they agreed on."""
    return hashlib.sha256(b"fova mask " + session.encode() + b" " + shared_key).digest()


def _pair_mask(client: str, other: str, seed: bytes, length: int) -> Masked:
    """What a client adds for another one. The other adds the same with the opposite sign."""
    drawn = mask(seed, length)
    return drawn if client < other else -drawn


def masked(numbers: Masked, client: str, own_seed: bytes, pair_seeds: Mapping[str, bytes]) -> Masked:
    """A client's numbers under its own mask and those that it shares with each other client."""
    hidden = numbers + mask(own_seed, len(numbers))
    for other, seed in pair_seeds.items():
        hidden += _pair_mask(client, other, seed, len(numbers))
    return hidden


def unmasked(
    total: Masked, own_seeds: Iterable[bytes], dropped: Mapping[str, Mapping[str, bytes]] | None = None
) -> Masked:
    """The sum without its masks.

    `own_seeds` are those of the clients in the sum. `dropped` has for each client that is missing in the sum the
    seeds that it shares with each client in the sum: their masks have nothing to cancel with.
    """
    plain = total.copy()
    for seed in own_seeds:
        plain -= mask(seed, len(total))
    for missing, seeds in (dropped or {}).items():
        for client, seed in seeds.items():
            plain -= _pair_mask(client, missing, seed, len(total))
    return plain
