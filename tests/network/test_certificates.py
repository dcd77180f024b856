"""Certificates are held to Python's own TLS, and keys to Flower's own signatures."""

import os
import shutil
import ssl
import stat
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.supercore.primitives.asymmetric import (
    bytes_to_public_key,
    sign_message,
    uses_nist_ec_curve,
    verify_signature,
)

from fova.errors import FovaError
from fova.network import certificates
from fova.network.certificates import insist_on_sound_client, insist_on_sound_server, make, registered


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("federation") / "certificates"
    make(folder, ["fl.example.org", "10.0.0.5"], ["north", "south"])
    return folder


def handshake(directory, host, authority):
    """TLS between two contexts in memory; raises what the client would raise."""
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(directory / "server" / "server.crt", directory / "server" / "server.key")
    client_side = ssl.create_default_context(cafile=authority)
    pipes = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_side.wrap_bio(*pipes, server_hostname=host)
    server = server_side.wrap_bio(*reversed(pipes), server_side=True)
    done = set()
    while len(done) < 2:
        for side in (client, server):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                continue
    return client.version()


@pytest.mark.parametrize("host", ["fl.example.org", "10.0.0.5", "localhost", "127.0.0.1", "::1"])
def test_clients_trust_the_server_under_its_names(directory, host):
    assert handshake(directory, host, directory / "north" / "ca.crt") == "TLSv1.3"


def test_another_name_or_another_authority_is_not_trusted(directory, tmp_path):
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(directory, "evil.example.org", directory / "north" / "ca.crt")
    make(tmp_path, ["fl.example.org"], [])
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(directory, "fl.example.org", tmp_path / "server" / "ca.crt")


def test_the_server_knows_each_client_by_its_own_key(directory):
    known = registered(directory / "server")
    assert list(known) == ["north", "south"]
    signatures = {
        name: sign_message(load_ssh_private_key((directory / name / "client.key").read_bytes(), None), b"now")
        for name in known
    }
    for name, key in known.items():
        public = bytes_to_public_key(key)
        assert uses_nist_ec_curve(public)
        assert [verify_signature(public, b"now", signatures[other]) for other in known] == [
            other == name for other in known
        ]


def test_secrets_are_readable_by_their_owner_only(directory):
    keys = sorted(directory.rglob("*.key"))
    assert len(keys) == 4
    assert {path.stat().st_mode & 0o777 for path in keys} == {0o600}
    assert not list((directory / "north").glob("*server*"))
    assert not list((directory / "server").rglob("client.key")), "a client's secret does not go to the server"


def test_folders_with_secrets_are_open_to_their_owner_only(directory):
    folders = [directory / name for name in ("authority", "server", "server/clients", "north")]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}


def extensions(file):
    certificate = x509.load_pem_x509_certificate(file.read_bytes())
    return certificate, {extension.oid._name: extension.value for extension in certificate.extensions}


def test_an_authority_signs_servers_and_no_further_authorities(directory):
    authority, about = extensions(directory / "authority" / "ca.crt")
    assert about["basicConstraints"] == x509.BasicConstraints(ca=True, path_length=0)
    assert (about["keyUsage"].key_cert_sign, about["keyUsage"].crl_sign) == (True, True)
    assert not about["keyUsage"].digital_signature
    assert authority.not_valid_after_utc - authority.not_valid_before_utc == timedelta(days=1 + 3650)
    server, about = extensions(directory / "server" / "server.crt")
    server.verify_directly_issued_by(authority)
    assert about["basicConstraints"] == x509.BasicConstraints(ca=False, path_length=None)
    assert (about["keyUsage"].digital_signature, about["keyUsage"].key_cert_sign) == (True, False)
    assert server.not_valid_after_utc - server.not_valid_before_utc == timedelta(days=1 + 825)
    assert timedelta(0) < datetime.now(UTC) - timedelta(days=1) - server.not_valid_before_utc < timedelta(days=1)


def test_running_again_adds_clients_and_overwrites_nothing(tmp_path):
    make(tmp_path, ["here"], ["north"])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    made = make(tmp_path, [], ["north", "west"])
    assert {path.parent.name for path in made} == {"west", "clients"}
    assert all(path.read_bytes() == content for path, content in before.items())
    assert make(tmp_path, [], ["north", "west"]) == []


@pytest.mark.parametrize("name", ["../north", "server", "a b", "", "n" * 64])
def test_names_that_could_not_be_folders_are_refused(tmp_path, name):
    with pytest.raises(FovaError, match="cannot be called"):
        make(tmp_path, ["here"], [name])


@pytest.mark.parametrize(
    "host",
    ["", "two words", "line\n", "*", "a.*.org", "x" * 254, "https://fl.example.org", "a..b", "-x", "1.2.3.400"],
)
def test_hosts_that_no_client_could_call_are_refused(tmp_path, host):
    with pytest.raises(FovaError, match="is no name or address of a server"):
        make(tmp_path, [host], ["north"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("days", [0, -1, 36_501, 10**30])
def test_a_certificate_is_valid_for_a_day_to_a_century(tmp_path, days):
    with pytest.raises(FovaError, match=r"at least 1 and at most 36,500"):
        make(tmp_path, ["here"], ["north"], days)


def test_the_command_teaches(fova_command, tmp_path):
    code, _, errors = fova_command("certificates", "make", "--clients", "north")
    assert code == 2
    assert "--hosts fl.example.org" in errors
    code, out, _ = fova_command("certificates", "make", "--hosts", "fl.example.org", "--clients", "north")
    assert code == 0
    assert "scp -r certificates/north NORTH:certificate" in out
    assert (tmp_path / "certificates" / "north" / "client.key").exists()
    code, _, errors = fova_command("certificates")
    assert code == 2
    assert "fova certificates make" in errors


def test_bad_and_double_keys_are_skipped_with_a_warning(directory, tmp_path):
    server = shutil.copytree(directory / "server", tmp_path / "server")
    clients, warnings = server / "clients", []
    known = registered(server)
    name = sorted(known)[0]
    (clients / "empty.pub").write_bytes(b"")
    (clients / "zz-twin.pub").write_bytes((clients / f"{name}.pub").read_bytes())
    assert registered(server, warnings.append) == known
    assert len(warnings) == 2
    assert "empty.pub cannot be read" in warnings[0]
    assert f"zz-twin.pub holds the key of {name}, too. It is skipped" in warnings[1]


# --- Files that cannot be used are found before a federation starts ---


@pytest.fixture
def copies(directory, tmp_path):
    """The server's and a client's folder, to be damaged."""
    shutil.copytree(directory, tmp_path / "copies")
    return tmp_path / "copies"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "localhost", "127.0.0.1", "fl.example.org"])
def test_what_make_makes_is_sound(directory, host):
    insist_on_sound_server(directory / "server", host)
    insist_on_sound_client(directory / "north")


def test_a_server_certificate_for_other_addresses(directory):
    with pytest.raises(
        FovaError, match=r"connect to 10\.0\.0\.6 .* not valid for '10\.0\.0\.6'.*--hosts 10\.0\.0\.6"
    ):
        insist_on_sound_server(directory / "server", "10.0.0.6")


@pytest.mark.parametrize(
    ("days", "words"), [(-10, "certificate has expired"), (+10, "certificate is not yet valid")]
)
def test_a_server_certificate_of_another_time(copies, monkeypatch, days, words):
    class Then(datetime):
        @classmethod
        def now(cls, zone):
            return datetime.now(UTC) + timedelta(days=days)

    for name in ("server.crt", "server.key"):
        (copies / "server" / name).unlink()
    with monkeypatch.context() as then:
        then.setattr(certificates, "datetime", Then)
        make(copies, ["fl.example.org"], [], days=5)
    with pytest.raises(FovaError, match=words):
        insist_on_sound_server(copies / "server", "127.0.0.1")


@pytest.mark.parametrize("name", ["server.crt", "server.key", "ca.crt"])
@pytest.mark.parametrize("damage", ["cut off", "zeros", "of another federation", "a folder", "a pipe"])
def test_a_damaged_file_of_the_server(copies, tmp_path, name, damage):
    file = copies / "server" / name
    content = file.read_bytes()
    file.unlink()
    if damage == "of another federation":
        make(tmp_path / "other", ["fl.example.org"], [])
        content = (tmp_path / "other" / "server" / name).read_bytes()
    {
        "cut off": lambda: file.write_bytes(content[:200]),
        "zeros": lambda: file.write_bytes(bytes(2000)),
        "of another federation": lambda: file.write_bytes(content),
        "a folder": file.mkdir,
        "a pipe": lambda: os.mkfifo(file),
    }[damage]()
    with pytest.raises((FovaError, OSError), match=name.replace(".", r"\.")):
        insist_on_sound_server(copies / "server", "127.0.0.1")


def test_a_key_that_asks_for_a_passphrase_is_refused_without_asking(copies):
    from cryptography.hazmat.primitives import serialization

    file = copies / "server" / "server.key"
    key = serialization.load_pem_private_key(file.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"secret")
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked))
    with pytest.raises(FovaError, match="be encrypted"):
        insist_on_sound_server(copies / "server", "127.0.0.1")


@pytest.mark.parametrize("name", ["client.key", "ca.crt"])
@pytest.mark.parametrize("damage", ["cut off", "zeros", "the server's key", "a folder", "a pipe"])
def test_a_damaged_file_of_a_client(copies, name, damage):
    file = copies / "north" / name
    content = file.read_bytes()
    file.unlink()
    {
        "cut off": lambda: file.write_bytes(content[:200]),
        "zeros": lambda: file.write_bytes(bytes(2000)),
        "the server's key": lambda: shutil.copy(copies / "server" / "server.key", file),
        "a folder": file.mkdir,
        "a pipe": lambda: os.mkfifo(file),
    }[damage]()
    with pytest.raises((FovaError, OSError), match=name.replace(".", r"\.")):
        insist_on_sound_client(copies / "north")


def test_a_pipe_among_the_public_keys_is_skipped(copies):
    (copies / "server" / "clients" / "north.pub").unlink()
    os.mkfifo(copies / "server" / "clients" / "north.pub")
    words = []
    assert list(registered(copies / "server", words.append)) == ["south"]
    assert "Not a regular file" in words[0]


@pytest.mark.parametrize("full_at", ["ca.key", "ca.crt", "server.key", "server.crt", "client.key", "north.pub"])
def test_on_a_full_disk_nothing_half_made_is_left(tmp_path, monkeypatch, full_at):
    """A key without its certificate would be taken for finished at the next start."""
    write = certificates._write

    def full(path, content, mode):
        write(path, content[: len(content) // 2] if path.name == full_at else content, mode)
        if path.name == full_at:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as full_disk:
        full_disk.setattr(certificates, "_write", full)
        with pytest.raises(OSError, match="No space left"):
            make(tmp_path, ["fl.example.org"], ["north"])
    make(tmp_path, ["fl.example.org"], ["north"])
    insist_on_sound_server(tmp_path / "server", "127.0.0.1")
    insist_on_sound_client(tmp_path / "north")
    assert list(registered(tmp_path / "server")) == ["north"]
