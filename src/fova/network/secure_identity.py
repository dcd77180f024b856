"""Who announced the keys of a round: a client signs them with the key that it joins the federation with.

Clients receive one another's keys from the server. A server that gives out keys of its own in their place could
read what they send under masks. A client that has the public keys of the others from elsewhere (`--peers`) checks
the signatures and refuses such a round.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, sign_message, verify_signature

from fova.errors import FovaError
from fova.network import certificates
from fova.network.intake import Refused
from fova.network.secure_session import PublicKeys


def statement(run_id: str, session: str, number: int, client: str, keys: PublicKeys) -> bytes:
    """What a client signs: its name and keys, for one attempt at one round of one run."""
    return json.dumps(["fova keys", run_id, session, number, client, *(key.hex() for key in keys.pair)]).encode()


def signed(key: Path, statement: bytes) -> bytes:
    """The signature of a statement with a client's secret key, `client.key`."""
    try:
        secret = load_ssh_private_key(key.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise FovaError(f"The key {key} cannot be read: {error}") from error
    if not isinstance(secret, ec.EllipticCurvePrivateKey):
        raise FovaError(f"{key} is not a key as `fova certificates make` makes it.")
    return sign_message(secret, statement)


def is_signed(public: bytes, statement: bytes, signature: bytes) -> bool:
    """Whether the owner of a public key, in PEM form, signed the statement."""
    try:
        return verify_signature(bytes_to_public_key(public), statement, signature)
    except (ValueError, TypeError, AttributeError, UnsupportedAlgorithm):
        return False


def insist_on_peers(
    folder: Path, run_id: str, session: str, number: int, announced: Mapping[str, PublicKeys], own: str
) -> None:
    """Refuse keys of other clients than `own` that the owners of the public keys in `folder` did not sign."""
    known = certificates.public_keys(folder)
    for name, keys in announced.items():
        if name == own:  # compared with the real ones elsewhere
            continue
        if name not in known:
            raise Refused(f"it has no public key of {name} among its --peers, and the round has {name}")
        if not is_signed(known[name], statement(run_id, session, number, name, keys), keys.signature):
            raise Refused(f"the keys that the server gives out in the name of {name} are not signed by {name}")
