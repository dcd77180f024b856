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
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fova.errors import FovaError

CLIENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# Reserved folder names: a client cannot use them.
TAKEN = ("authority", "server")
# The server's own processes connect over these addresses.
LOOPBACK = ("localhost", "127.0.0.1")
AUTHORITY_DAYS = 3650
MOST_DAYS = 36_500
HOST = re.compile(r"(\*\.)?[A-Za-z0-9_.:-]{1,253}")  # a name, with one leading wildcard at most, or an address


def make(directory: Path, hosts: Sequence[str], clients: Sequence[str], days: int = 825) -> list[Path]:
    """Make the missing files in `directory` and return the paths of the new ones."""
    for name in clients:
        if not CLIENT_NAME.fullmatch(name) or name in TAKEN:
            raise FovaError(
                f"A client cannot be called {name!r}. Take at most 63 letters, digits, '-', '_' and '.'; "
                f"{' and '.join(TAKEN)} are taken."
            )
    for host in hosts:
        if not HOST.fullmatch(host):
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
        if not (directory / name).exists():
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
        key = serialization.load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise FovaError(f"The public key {path} cannot be read: {error}") from error
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


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
    return [_write_secret(folder / "ca.key", _pem(key)), _write(folder / "ca.crt", _certificate_pem(certificate))]


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
    return [
        _write_secret(folder / "server.key", _pem(key)),
        _write(folder / "server.crt", _certificate_pem(certificate)),
        _write(folder / "ca.crt", _certificate_pem(ca)),
    ]


def _make_client(folder: Path, server: Path, ca: x509.Certificate) -> list[Path]:
    key = ec.generate_private_key(ec.SECP384R1())
    # Flower reads node keys in OpenSSH's formats.
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return [
        _write_secret(folder / "client.key", secret),
        _write(folder / "ca.crt", _certificate_pem(ca)),
        _write(server / "clients" / f"{folder.name}.pub", public + b"\n"),
    ]


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


def _write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_bytes(content)
    return path


def _write_secret(path: Path, content: bytes) -> Path:
    """Write a file that only its owner can read. The permissions are set when the file is created."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    return path
