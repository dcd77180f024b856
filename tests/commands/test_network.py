"""What people see of `fova server` and `fova client` before any Flower process is started."""

import json
import signal
import socket
import stat
from types import SimpleNamespace

import httpx
import pytest

from fova.errors import FovaError
from fova.network import certificates, deployment, superlink
from fova.network.client import ClientConfig
from fova.network.server_config import read_server
from fova.progress import Quiet
from fova.run.directory import RunDirectory
from tiny import make_transitions, save_npz

WIDTH = ("--observation", "3", "--action", "2")


@pytest.fixture
def joined(monkeypatch):
    """Who would have taken part, instead of taking part."""
    calls = []
    monkeypatch.setattr(deployment, "participate", lambda *call: calls.append(call[:3]))
    return calls


@pytest.fixture
def served(monkeypatch):
    calls = []
    monkeypatch.setattr(deployment, "serve", lambda run, address, progress: calls.append((run, address)))
    return calls


def test_security_is_the_default_and_its_absence_must_be_typed(fova_command, tmp_path, served, joined):
    code, _, errors = fova_command("server", *WIDTH)
    assert code == 2
    assert "server.crt" in errors
    assert "fova certificates make" in errors
    assert "--insecure" in errors
    assert not (tmp_path / "runs").exists()
    save_npz(tmp_path / "north.npz", make_transitions(0))
    code, _, errors = fova_command("client", "--server", "here:1", "--data", "north.npz")
    assert code == 2
    assert "client.key" in errors
    assert not served
    assert not joined
    assert fova_command("server", *WIDTH, "--insecure", "--plain")[0] == 0
    assert fova_command("client", "--server", "here:1", "--data", "north.npz", "--insecure")[0] == 0
    assert served[0][1].certificates is None
    assert joined[0][2] is None


def test_a_server_whose_clients_have_no_keys_is_pointless(fova_command, tmp_path, served):
    certificates.make(tmp_path / "certificates", ["here"], [])
    code, _, errors = fova_command("server", *WIDTH)
    assert code == 2
    assert "no client could join" in errors


def test_flags_win_over_the_file_and_both_are_remembered(fova_command, tmp_path, served):
    certificates.make(tmp_path / "keys", ["here"], ["north"])
    (tmp_path / "federation.toml").write_text(
        '[server]\nport = 9000\nmin_clients = 5\ncertificates = "keys/server"\nobservation = 3\naction = 2\n'
        '[run]\nrounds = 7\n[algorithm]\nname = "fed-bc"\n[[client]]\nname = "north"\ndata = "n.npz"\n'
    )
    code, _, errors = fova_command(
        "server", "--config", "federation.toml", "--min-clients", 4, "--name", "wards", "--plain"
    )
    assert (code, errors) == (0, "")
    run = RunDirectory(tmp_path / "runs" / "wards")
    _, network = read_server(run)
    assert (network.port, network.min_clients, network.host) == (9000, 4, "0.0.0.0")
    assert "rounds = 7" in (run.path / "config.toml").read_text()
    assert fova_command("server", "--resume", "runs/wards", "--plain")[0] == 0
    assert [address.port for _, address in served] == [9000, 9000]


def test_a_client_finds_itself_in_the_federations_file(fova_command, tmp_path, joined):
    save_npz(tmp_path / "n.npz", make_transitions(0))
    (tmp_path / "federation.toml").write_text(
        '[server]\nhost = "fl.example.org"\n[[client]]\nname = "north"\ndata = "n.npz"\nsize = 20\n'
    )
    assert fova_command("client", "--config", "federation.toml", "--name", "north", "--insecure")[0] == 0
    ((config, address, _),) = joined
    assert address == "fl.example.org:8443"
    assert config == ClientConfig(
        "north", str(tmp_path / "n.npz"), str(tmp_path / "fova-client" / "north"), size=20
    )
    code, _, errors = fova_command("client", "--config", "federation.toml", "--name", "nroth", "--insecure")
    assert code == 2
    assert "'north'" in errors


def test_a_client_hears_of_bad_data_at_once(fova_command, tmp_path, joined):
    data = make_transitions(0)
    data.rewards[3] = float("nan")
    save_npz(tmp_path / "broken.npz", data)
    code, _, errors = fova_command("client", "--server", "here:1", "--data", "broken.npz", "--insecure")
    assert code == 2
    assert "row 3" in errors
    for missing, words in ((("--data", "x.npz"), "--server"), (("--server", "here:1"), "--data")):
        code, _, errors = fova_command("client", *missing, "--insecure")
        assert code == 2
        assert words in errors
    assert not joined


@pytest.mark.parametrize(
    "address", ["here", "here:", ":8443", "here:0", "here:65536", "here:http", "https://here:1"]
)
def test_an_address_that_would_be_tried_for_ever_is_refused(fova_command, tmp_path, joined, address):
    save_npz(tmp_path / "north.npz", make_transitions(0))
    code, _, errors = fova_command("client", "--server", address, "--data", "north.npz", "--insecure")
    assert code == 2
    assert "must be HOST:PORT" in errors
    assert not joined


def test_prepare_only_makes_the_directory(fova_command, tmp_path, served):
    code, out, _ = fova_command("server", *WIDTH, "--insecure", "--prepare", "--name", "wards")
    assert code == 0
    assert out.strip() == str(tmp_path / "runs" / "wards")
    assert len(json.loads((tmp_path / "runs" / "wards" / "server.json").read_text())["run_id"]) == 32
    assert not served


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ("--privacy", "server", "--privacy-clip", 1, "--privacy-noise", 2, "--participation", 0.5),
            "Leave --participation out",
        ),
        (("--port", 0), "port"),
        (("--min-clients", 0), "min_clients"),
        (("--mode", "local"), "federated"),
    ],
)
def test_settings_that_make_no_sense_over_a_network(fova_command, tmp_path, served, flags, words):
    if "--privacy" in flags:
        flags = (*flags, "--aggregation", "uniform", "--no-normalise", "--reward-unit", 1)
    code, _, errors = fova_command("server", *WIDTH, "--insecure", *flags)
    assert code == 2
    assert words in errors
    assert not (tmp_path / "runs").exists()


# --- The processes' command lines ---


def commands(monkeypatch):
    found = []
    monkeypatch.setattr(
        deployment, "_flower", lambda part, command, folder, env: found.append((part, command, env))
    )
    return found


def test_a_superlink_asks_for_keys_and_installs_nothing(monkeypatch, tmp_path):
    found = commands(monkeypatch)
    address = deployment.Address("0.0.0.0", 8443, tmp_path, ("10.0.0.7",))
    deployment._superlink(RunDirectory(tmp_path), address, "a secret")
    ((part, command, environment),) = found
    assert part == "superlink"
    assert {"--enable-supernode-auth", "--disable-runtime-dependency-installation"} <= set(command)
    assert command[command.index("--ssl-certfile") + 1] == str(tmp_path / "server.crt")
    assert environment == {
        "FOVA_CONTROL_HOSTS": "10.0.0.7",
        "FOVA_OWN_HOSTS": "0.0.0.0",
        "FOVA_CONTROL_SECRET": "a secret",
    }
    assert deployment.QUIET_FLOWER["FLWR_TELEMETRY_ENABLED"] == "0"


def test_a_supernode_is_told_who_it_is_in_a_form_that_flower_reads(monkeypatch, tmp_path):
    from flwr.common.config import parse_config_args

    found = commands(monkeypatch)
    config = ClientConfig("north", str(tmp_path / "my data.npz"), str(tmp_path), size=500)
    deployment._supernode(config, "here:8443", tmp_path, tmp_path, 4711, tmp_path / "secret")
    ((part, command, _),) = found
    assert part == "supernode"
    assert command[command.index("--port") + 1] == "4711"
    assert command[command.index("--superexec-auth-secret-file") + 1] == str(tmp_path / "secret")
    assert "--insecure" not in command
    read = parse_config_args([command[command.index("--node-config") + 1]])
    assert ClientConfig.of(read) == config


def test_the_secret_of_the_control_interface_is_in_the_environment_and_not_in_the_arguments(monkeypatch, tmp_path):
    found = commands(monkeypatch)
    deployment._superlink(RunDirectory(tmp_path), deployment.Address("127.0.0.1", 8443, None), "a secret")
    ((_, command, environment),) = found
    assert "a secret" not in " ".join(command)
    assert environment["FOVA_CONTROL_SECRET"] == "a secret"


def test_a_port_in_use_is_refused_before_anything_is_started(monkeypatch, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = deployment.Address("127.0.0.1", other.getsockname()[1], None)
        monkeypatch.setattr(deployment, "_flower", lambda *arguments: pytest.fail("something was started"))
        with pytest.raises(
            FovaError, match=r"Port \d+ of 127.0.0.1 cannot be used: .* choose another port: --port"
        ):
            deployment.serve(RunDirectory(tmp_path), address, Quiet())


def test_an_answer_from_another_superlink_is_not_believed():
    """It answers as it does to anybody; it does not know our secret."""

    def call_next(context):
        return httpx.Response(200, headers={"x-fova-proof": "0" * 64})

    context = SimpleNamespace(request=httpx.Request("POST", "https://server/v1/control/list-runs"))
    with pytest.raises(FovaError, match="Another program answers in the name of our SuperLink"):
        deployment.OwnSuperLink("a secret").intercept(context, call_next)
    assert context.request.headers["x-fova-secret"] == "a secret"

    def own(context):
        shown = superlink.proof("a secret", context.request.headers["x-fova-nonce"])
        return httpx.Response(200, headers={"x-fova-proof": shown})

    assert deployment.OwnSuperLink("a secret").intercept(context, own).status_code == 200


def test_a_superlink_that_dies_is_started_again(monkeypatch, tmp_path):
    ends = [deployment.SuperLinkDied("It died."), deployment.SuperLinkDied("It died."), None]

    def once(run, address, progress):
        if (end := ends.pop(0)) is not None:
            raise end

    monkeypatch.setattr(deployment, "_serve_once", once)
    deployment.serve(RunDirectory(tmp_path), deployment.Address("127.0.0.1", 1, None), Quiet())
    assert ends == []
    ends += [deployment.SuperLinkDied("It died.")] * deployment.STARTS
    with pytest.raises(FovaError, match="It died"):
        deployment.serve(RunDirectory(tmp_path), deployment.Address("127.0.0.1", 1, None), Quiet())


def test_a_worker_that_died_is_started_again_and_ends_with_the_supernode(monkeypatch, tmp_path):
    monkeypatch.setattr(deployment, "SECONDS_TO_RECONNECT", 0.0)
    monkeypatch.setattr(deployment.time, "sleep", lambda seconds: None)
    alive = iter([None, None, None, 1])
    supernode = SimpleNamespace(poll=lambda: next(alive))
    ended, signals = iter([9, None, None]), []
    worker = SimpleNamespace(poll=lambda: next(ended), wait=lambda *_: 0, send_signal=signals.append)
    started = []
    deployment._watch(
        supernode,
        lambda: started.append(1) or worker,
        deployment.journal.Reader(tmp_path / "journal.jsonl"),
        Quiet(),
    )
    assert len(started) == 2
    assert signals == [signal.SIGTERM]


def test_the_secret_of_a_worker_is_new_at_every_start_and_for_this_user_only(tmp_path):
    first = deployment._secret(tmp_path)
    content = first.read_bytes()
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    assert deployment._secret(tmp_path) == first
    assert first.read_bytes() != content


@pytest.mark.parametrize("name", ["../../x", "a/b", "line\nbreak"])
def test_a_name_with_path_parts_is_refused(fova_command, tmp_path, name):
    save_npz(tmp_path / "north.npz", make_transitions(0))
    code, _, errors = fova_command("client", "--server", "127.0.0.1:1", "--data", "north.npz", "--name", name)
    assert code == 2
    assert "cannot be the name of a client" in errors


def test_a_floor_without_meaning_is_refused_before_the_server_is_contacted(fova_command, tmp_path):
    save_npz(tmp_path / "north.npz", make_transitions(0))
    flags = ("--server", "127.0.0.1:1", "--data", "north.npz", "--insist-privacy", "noise=2")
    code, _, errors = fova_command("client", *flags)
    assert code == 2
    assert "for instance clip=1,noise=2,epsilon=8" in errors
