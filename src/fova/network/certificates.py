"""Certificates and keys for a federation: an authority, a server certificate, one key pair per client.

    DIRECTORY/authority/   ca.key, ca.crt                           keep where only you can read it
    DIRECTORY/server/      ca.crt, server.crt, server.key, clients/ copy to the server
    DIRECTORY/NAME/        ca.crt, client.key                       copy to client NAME

Clients authenticate the server by its certificate (TLS). The server authenticates clients by their public keys in
server/clients/NAME.pub. Existing files are never overwritten, so the command can be run again to add clients.
"""

import ipaddress
import os
import re
import ssl
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fova.errors import FovaError
from fova.machine.files import insist_on_regular
from fova.network.addresses import is_host

CLIENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# Reserved folder names: a client cannot use them.
TAKEN = ("authority", "server")
# The server's own processes connect over these addresses.
LOOPBACK = ("localhost", "127.0.0.1", "::1")
AUTHORITY_DAYS = 3650
MOST_DAYS = 36_500
WILDCARD = "*."
MOST_FLIGHTS = 10  # messages of a handshake, in each direction
REMEDY = "Make the files with `fova certificates make`, or copy them again."


def make(directory: Path, hosts: Sequence[str], clients: Sequence[str], days: int = 825) -> list[Path]:
    """Make the missing files in `directory` and return the paths of the new ones."""
    for name in clients:
        if not CLIENT_NAME.fullmatch(name) or name in TAKEN:
            raise FovaError(
                f"A client cannot be called {name!r}. Take at most 63 letters, digits, '-', '_' and '.'; "
                f"{' and '.join(TAKEN)} are taken."
            )
    for host in hosts:
        if not is_host(host.removeprefix(WILDCARD)):
            raise FovaError(f"{host[:80]!r} is no name or address of a server. For example: --hosts fl.example.org")
    if not 1 <= days <= MOST_DAYS:
        raise FovaError(f"days is {str(days)[:40]}, but must be at least 1 and at most {MOST_DAYS:,}.")
    authority = directory / "authority"
    made: list[Path] = []
    if not (authority / "ca.key").exists():
        made += _make_authority(authority)
    ca_key, ca = _read_authority(authority)
    server = directory / "server"
    if not (server / "server.crt").exists():
        if not hosts:
            raise FovaError("Name the address that clients will use for the server: --hosts fl.example.org")
        made += _make_server(server, hosts, days, ca_key, ca)
    for name in clients:
        if not (directory / name / "client.key").exists():
            made += _make_client(directory / name, server, ca)
    return made


def registered(server: Path, warn: Callable[[str], None] = lambda words: None) -> dict[str, bytes]:
    """The clients registered with a server: name -> public key in PEM form, as Flower's control interface needs.

    A key that cannot be read, or that another client has already, is skipped with a warning.
    """
    return public_keys(server / "clients", warn)


def public_keys(folder: Path, warn: Callable[[str], None] = lambda words: None) -> dict[str, bytes]:
    """The public keys in a folder, as NAME.pub: name -> key in PEM form."""
    found: dict[str, bytes] = {}
    for path in sorted(folder.glob("*.pub")):
        try:
            key = _public_pem(path)
        except FovaError as error:
            warn(f"{error} It is skipped.")
            continue
        twin = next((name for name, other in found.items() if other == key), None)
        if twin is not None:
            warn(f"{path} holds the key of {twin}, too. It is skipped: make a key for each client.")
            continue
        found[path.stem] = key
    return found


def _public_pem(path: Path) -> bytes:
    try:
        key = serialization.load_ssh_public_key(insist_on_regular(path).read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise FovaError(f"The public key {path} cannot be read: {error}") from error
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


# --- Checks before a federation starts ---
#
# Flower finds such faults, too, but late: a server waits for a minute, and a client tries again for ever.


def insist_on_sound_server(folder: Path, host: str) -> None:
    """Refuse the server's certificate and key if its own processes, and so its clients, could not use them."""
    certificate, key, authority = (
        insist_on_regular(folder / name) for name in ("server.crt", "server.key", "ca.crt")
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        server.load_cert_chain(certificate, key, password=lambda: "")  # without it OpenSSL asks the terminal
    except (OSError, ValueError) as error:
        raise FovaError(
            f"{certificate} and {key} cannot be used together: {_reason(error)}. The key may belong to another "
            f"certificate, be encrypted, or one of them is damaged. {REMEDY}"
        ) from error
    own = reached_by(host)
    try:
        _shake_hands(server, _trusting(authority), own)
    except ssl.SSLError as error:
        raise FovaError(
            f"The server's own processes connect to {own} and would not trust {certificate}: {_reason(error)}. Is "
            f"this machine's clock right? Did the authority of {authority} issue it for this address? To make it "
            f"anew, remove server.crt and server.key, then: fova certificates make --hosts {own} NAME"
        ) from error


def _trusting(authority: Path) -> ssl.SSLContext:
    """What a client believes that has only this authority."""
    try:
        return ssl.create_default_context(cafile=insist_on_regular(authority))
    except OSError as error:
        raise FovaError(f"{authority} holds no certificate of an authority: {_reason(error)}. {REMEDY}") from error


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """A TLS handshake in memory. Raises an SSLError where the real one would fail."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(MOST_FLIGHTS):
        for side in list(sides):
            try:
                side.do_handshake()
                sides.remove(side)
            except ssl.SSLWantReadError:
                continue


def _reason(error: Exception) -> str:
    return getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)


def insist_on_sound_client(folder: Path) -> None:
    """Refuse a client's files that no server would accept."""
    _trusting(folder / "ca.crt")
    path = folder / "client.key"
    try:
        key = serialization.load_ssh_private_key(insist_on_regular(path).read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise FovaError(f"{path} is not a key as `fova certificates make` makes it: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise FovaError(f"{path} is not an elliptic-curve key, as `fova certificates make` makes it.")


def reached_by(host: str) -> str:
    """The address that processes of the server's machine use for it."""
    own = {"0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"}
    return own.get(host, host)


# --- Keys ---


def _make_authority(folder: Path) -> list[Path]:
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fova federation authority")])
    certificate = (
        _valid_for(AUTHORITY_DAYS)
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )
    return _write_all({folder / "ca.key": _pem(key), folder / "ca.crt": _certificate_pem(certificate)})


def _make_server(
    folder: Path, hosts: Sequence[str], days: int, ca_key: ec.EllipticCurvePrivateKey, ca: x509.Certificate
) -> list[Path]:
    key = ec.generate_private_key(ec.SECP384R1())
    names = x509.SubjectAlternativeName([_alternative(host) for host in dict.fromkeys((*hosts, *LOOPBACK))])
    certificate = (
        _valid_for(days)
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fova federation server")]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()),
            critical=False,
        )
        .sign(ca_key, hashes.SHA384())
    )
    files = {"server.key": _pem(key), "server.crt": _certificate_pem(certificate), "ca.crt": _certificate_pem(ca)}
    return _write_all({folder / name: content for name, content in files.items()})


def _make_client(folder: Path, server: Path, ca: x509.Certificate) -> list[Path]:
    key = ec.generate_private_key(ec.SECP384R1())
    # Flower reads node keys in OpenSSH's formats.
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    registered_key = server / "clients" / f"{folder.name}.pub"
    files = {folder / "client.key": secret, folder / "ca.crt": _certificate_pem(ca), registered_key: public + b"\n"}
    return _write_all(files)


# --- Pieces of a certificate ---


def _valid_for(days: int) -> x509.CertificateBuilder:
    yesterday = datetime.now(UTC) - timedelta(days=1)  # the clocks of the machines may differ
    return (
        x509.CertificateBuilder()
        .serial_number(x509.random_serial_number())
        .not_valid_before(yesterday)
        .not_valid_after(yesterday + timedelta(days=1 + days))
    )


def _usage(**allowed: bool) -> x509.KeyUsage:
    kinds = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{kind: allowed.get(kind, False) for kind in kinds})


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


# --- Files ---


def _read_authority(folder: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    try:
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
        certificate = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    except (OSError, ValueError) as error:
        raise FovaError(f"The authority in {folder} cannot be read: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise FovaError(f"{folder / 'ca.key'} is not an elliptic-curve key.")
    return key, certificate


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write_all(files: dict[Path, bytes]) -> list[Path]:
    """Write files that belong together: all of them or, where a disk is full, none. Secrets are for their owner."""
    made: list[Path] = []
    try:
        for path, content in files.items():
            made.append(path)
            _write(path, content, 0o600 if path.suffix == ".key" else 0o666)
    except OSError:
        for path in made:
            path.unlink(missing_ok=True)
        raise
    return made


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a file. Its permissions are set when it is created."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(content)
