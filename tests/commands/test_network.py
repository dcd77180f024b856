"""What people see of `fova server` and `fova client` before any Flower process is started."""

import json
import socket

import pytest

from fova.network import certificates, deployment
from fova.network.client import ClientConfig
from fova.network.server_config import read_server
from fova.run.directory import RunDirectory
from tiny import make_transitions, save_npz

WIDTH = ("--observation", "3", "--action", "2")
PRIVATE = (
    "--privacy-clip",
    1,
    "--privacy-noise",
    2,
    "--aggregation",
    "uniform",
    "--no-normalise",
    "--reward-unit",
    1,
)
TABLE = ("episode=p", "time=h", "observations=a,b", "action=d", "reward=r", "terminal=t")


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
    monkeypatch.setattr(deployment, "insist_on_a_free_port", lambda address: None)
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
        (("--algorithm", "fqe"), "evaluates a policy and trains none"),
        (("--task", "hopper"), "observation is 3, but the task says it already."),
        (("--columns", *TABLE), "observation is 3, but the columns say it already."),
        (("--judge-rounds", 5), "Add --judge"),
        (("--host", "127.0.0.1:9000"), "without a port"),
        (("--host", "a\nb"), "must be a name or an address of this machine"),
        (("--host", "x" * 300), "must be a name or an address of this machine"),
        (("--control-hosts", "10.0.0.1 10.0.0.2"), "must be addresses such as 10.0.0.7"),
        (("--control-hosts", "fl.example.org"), "must be addresses such as 10.0.0.7"),
        (("--control-hosts", "0.0.0.0/0"), "must be addresses such as 10.0.0.7"),
        (("--certificates=",), "--certificates is empty"),
    ],
)
def test_settings_that_make_no_sense_over_a_network(fova_command, tmp_path, served, flags, words):
    if "--privacy" in flags:
        flags = (*flags, "--aggregation", "uniform", "--no-normalise", "--reward-unit", 1)
    code, _, errors = fova_command("server", *WIDTH, "--insecure", *flags)
    assert code == 2
    assert words in errors
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--action-names", "low", "high"), "discrete actions are asked for"),
        (("--actions", "discrete"), "discrete actions are asked for"),
        (("--discrete-actions", 3), "discrete_actions is 3, but the task says it already"),
    ],
)
def test_a_task_has_its_own_actions(fova_command, tmp_path, served, flags, words):
    code, _, errors = fova_command("server", "--task", "maze2d-umaze", "--insecure", *flags)
    assert (code, words in errors) == (2, True)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "flags",
    [
        ("--rounds", 99),
        ("--seed=1",),
        ("--name", "other"),
        ("--no-secure-aggregation",),
        ("--min_clients", 9),
        (*PRIVATE, "--privacy", "client"),
    ],
)
def test_a_resumed_run_keeps_its_settings_and_says_so(fova_command, tmp_path, served, flags):
    assert fova_command("server", *WIDTH, "--insecure", "--prepare", "--name", "wards")[0] == 0
    before = (tmp_path / "runs" / "wards" / "server.json").read_bytes()
    code, _, errors = fova_command("server", "--resume", "runs/wards", "--insecure", *flags)
    assert code == 2
    assert "--resume takes its settings from the run; leave out --" in errors
    assert (tmp_path / "runs" / "wards" / "server.json").read_bytes() == before
    assert not served


def test_a_resumed_run_may_listen_elsewhere(fova_command, tmp_path, served):
    assert fova_command("server", *WIDTH, "--insecure", "--prepare", "--name", "wards")[0] == 0
    where = ("--host", "127.0.0.1", "--port", 9001, "--insecure", "--plain")
    assert fova_command("server", "--resume", "runs/wards", *where)[0] == 0
    assert fova_command("server", "--resume", "runs/wards", "--insecure", "--plain")[0] == 0
    assert [(address.host, address.port) for _, address in served] == [("127.0.0.1", 9001)] * 2


def test_a_port_in_use_leaves_no_run_behind(fova_command, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        where = ("--host", "127.0.0.1", "--port", other.getsockname()[1], "--insecure")
        code, _, errors = fova_command("server", *WIDTH, *where)
    assert (code, "cannot be used" in errors) == (2, True)
    assert not (tmp_path / "runs").exists()


def test_keys_that_cannot_be_used_are_found_before_anything_starts(fova_command, tmp_path, served, joined):
    certificates.make(tmp_path / "keys", ["here"], ["north"])
    save_npz(tmp_path / "north.npz", make_transitions(0))
    server = ("server", *WIDTH, "--certificates", "keys/server", "--plain")
    client = ("client", "--server", "here:1", "--data", "north.npz", "--certificates", "keys/north")
    assert [fova_command(*command)[0] for command in (server, client)] == [0, 0]
    (tmp_path / "keys" / "server" / "clients" / "north.pub").write_text("no key")
    assert "holds no public key that can be used" in fova_command(*server)[2]
    for file in ("keys/server/server.key", "keys/north/client.key"):
        (tmp_path / file).write_bytes(bytes(100))
    for command in (server, client):
        code, _, errors = fova_command(*command)
        assert (code, ".key" in errors) == (2, True)
    assert len(served) == len(joined) == 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--insist-privacy=",), "--insist-privacy is empty"),
        (("--insist-privacy", ""), "--insist-privacy is empty"),
        (("--name=",), "--name is empty"),
        (("--state=",), "--state is empty"),
        (("--task", " "), "--task is empty"),
        (("--action-high", 1, 1), "Give --action-low and --action-high together."),
        (("--peers", "keys"), "holds no public keys"),
    ],
)
def test_a_flag_that_would_be_ignored_is_refused(fova_command, tmp_path, joined, flags, words):
    save_npz(tmp_path / "north.npz", make_transitions(0))
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "south.pub").write_text("no key")
    code, _, errors = fova_command("client", "--server", "here:1", "--data", "north.npz", "--insecure", *flags)
    assert code == 2
    assert words in errors
    assert not joined


@pytest.mark.parametrize(
    ("server", "client", "words"),
    [
        ("host = 3", "", "host of [server] is 3, but must be a text"),
        ('host = "here"\nport = "8443"', "", "port of [server] is '8443'"),
        ('host = "here"\nnodes = 3', "", "There is no setting of [server] called 'nodes'"),
        ('host = "0.0.0.0"', "", "no client can connect"),
        ('host = "here"', '[[client]]\nname = "north"\ndata = "n.npz"\n', "Two clients are called 'north'"),
    ],
)
def test_a_client_checks_the_federations_file(fova_command, tmp_path, joined, server, client, words):
    save_npz(tmp_path / "n.npz", make_transitions(0))
    north = '[[client]]\nname = "north"\ndata = "n.npz"\n'
    (tmp_path / "federation.toml").write_text(f"[server]\n{server}\n{north}{client}")
    code, _, errors = fova_command("client", "--config", "federation.toml", "--name", "north", "--insecure")
    assert (code, words in errors) == (2, True)
    assert not joined


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--size", 900), "which has 200"),
        (("--actions", "discrete"), "discrete"),
        (("--action-low", 0, "--action-high", 0.1), "outside the declared bounds"),
        (("--task", "hopper"), "Is this another task's data?"),
    ],
)
def test_a_clients_table_is_checked_like_other_data(fova_command, tmp_path, joined, flags, words):
    rows = (f"{i // 10},{i % 10},{i * 0.1},{(i % 7) * 0.1},{i % 3},{int(i % 10 == 9)}" for i in range(200))
    (tmp_path / "t.csv").write_text("\n".join(["p,h,a,d,r,t", *rows]))
    columns = ("--columns", *(each.replace("a,b", "a") for each in TABLE))
    client = ("client", "--server", "here:1", "--data", "t.csv", "--insecure", *columns)
    assert fova_command(*client)[0] == 0
    code, _, errors = fova_command(*client, *flags)
    assert (code, words in errors) == (2, True)
    assert len(joined) == 1


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
