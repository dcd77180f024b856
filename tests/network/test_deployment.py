"""How `fova server` and `fova client` handle processes of Flower, with stand-ins: nothing is started here."""

import os
import signal
import socket
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from fova.errors import FovaError
from fova.machine.interrupts import Interrupted, StopSignal
from fova.network import certificates, deployment, processes, superlink
from fova.network.client import ClientConfig
from fova.network.deployment import Address, SuperLinkDied
from fova.network.journal import Journal, Reader
from fova.progress import Note, Quiet
from fova.run.directory import RunDirectory

HERE = Address("127.0.0.1", 8443, None)


class Heard(Quiet):
    def __init__(self):
        self.events = []

    def handle(self, event):
        self.events.append(event)

    @property
    def notes(self):
        return [event.text for event in self.events if isinstance(event, Note)]


class Clock:
    """Time passes only in pauses, and twice as fast as they say."""

    def __init__(self):
        self.now, self.pauses = 100.0, []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += 2 * seconds


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(deployment, "time", found)
    return found


def process(*ends):
    """A process whose polls say this; the last word stands."""
    said = list(ends)
    return SimpleNamespace(poll=lambda: said.pop(0) if len(said) > 1 else said[0])


# --- The server ---


@pytest.fixture
def serving(monkeypatch, tmp_path, clock):
    """Serve a run once; `looks` are what happens when its journal is read, one after the other."""

    def serve(looks, superlink=None, checks=()):
        asked = SimpleNamespace(runs=[], registered=0, checks=list(checks), checked=[])
        control = SimpleNamespace(StartRun=lambda request: asked.runs.append(request) or SimpleNamespace(run_id=7))
        superlink = superlink or process(None)

        @contextmanager
        def started(*_):
            yield superlink

        @contextmanager
        def connected(*_):
            yield control

        def check(_, number, __):
            asked.checked.append((number, clock.now))
            if asked.checks and (error := asked.checks.pop(0)) is not None:
                raise error

        def ended(*_):
            return looks.pop(0)

        def register(*_):
            asked.registered += 1

        for name, stand_in in (
            ("insist_on_a_free_port", lambda address: None),
            ("_superlink", started),
            ("_control", connected),
            ("_wait_until_up", lambda *_: None),
            ("_register", register),
            ("_insist_on_running", check),
            ("_ended", ended),
        ):
            monkeypatch.setattr(deployment, name, stand_in)
        heard = Heard()
        deployment._serve_once(RunDirectory(tmp_path), HERE, heard)
        return asked, heard

    return serve


def test_a_run_is_started_in_its_directory_and_watched_until_it_ends(serving, tmp_path, clock):
    asked, heard = serving([False, False, True])
    (request,) = asked.runs
    assert request.override_config["directory"].string == str(tmp_path)
    assert len(request.fab.hash_str) == 64
    assert (asked.registered, asked.checked, heard.notes) == (1, [], [])
    assert clock.pauses == [0.5, 0.5]


def test_new_clients_and_the_run_are_looked_at_every_ten_seconds(serving):
    asked, _ = serving([False] * 25 + [True])  # each look takes one second
    assert asked.checked == [(7, 111.0), (7, 122.0)]
    assert asked.registered == 3


def test_a_superlink_that_does_not_answer_is_named_once_until_it_answers_again(serving):
    silent, seconds = httpx.ConnectError("no"), 11
    _, heard = serving([False] * 5 * seconds + [True], checks=[silent, silent, None, silent])
    assert heard.notes == ["the SuperLink does not answer (ConnectError); asking again"] * 2


def test_a_superlink_that_ended_is_noticed(serving, tmp_path):
    with pytest.raises(SuperLinkDied, match=r"ended by itself\. Its log is .*flower\.log"):
        serving([False, False, False, True], process(None, 1))


def test_a_superlink_is_started_five_times(monkeypatch, tmp_path):
    starts, heard = [], Heard()

    def dies(*_):
        starts.append(1)
        raise SuperLinkDied("It died.")

    monkeypatch.setattr(deployment, "_serve_once", dies)
    with pytest.raises(SuperLinkDied):
        deployment.serve(RunDirectory(tmp_path), HERE, heard)
    assert len(starts) == 5
    assert heard.notes == ["It died. Starting it again; the run goes on from its last saved round."] * 4


def test_a_port_can_be_used_again_at_once(monkeypatch):
    """Connections of the last server may still be closing."""
    options = []

    class Probe(socket.socket):
        def setsockopt(self, *option):
            options.append(option)
            super().setsockopt(*option)

    monkeypatch.setattr(deployment.socket, "socket", Probe)
    deployment.insist_on_a_free_port(Address("127.0.0.1", 0, None))
    assert options == [(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)]


def test_an_address_that_is_not_of_this_machine_is_refused(monkeypatch, tmp_path):
    def unknown(*_, **__):
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(deployment.socket, "getaddrinfo", unknown)
    away = Address("fl.example.org", 8443, None)
    for refused in (deployment.insist_on_a_free_port, lambda address: deployment._addresses(address.host)):
        with pytest.raises(FovaError, match=r"cannot listen on fl\.example\.org: Name .* Give an address of this"):
            refused(away)


# --- What the training says ---


def ended(folder, *events, stop=None):
    run, heard = RunDirectory(folder), Heard()
    reader, written = Reader(folder / "journal.jsonl"), Journal(folder / "journal.jsonl")
    for event in events:
        event(written)
    stop = stop or StopSignal(heard.note)
    return deployment._ended(reader, run, stop, heard), heard


def test_the_journal_is_shown_until_the_training_has_ended(tmp_path):
    note = [lambda journal: journal.note("north joined")]
    assert ended(tmp_path)[0] is False
    found, heard = ended(tmp_path, *note)
    assert (found, heard.notes) == (False, ["north joined"])
    found, heard = ended(tmp_path, *note, lambda journal: journal.finish())
    assert (found, heard.notes) == (True, ["north joined"])


def test_a_training_that_failed_says_how_to_go_on(tmp_path):
    failed = [lambda journal: journal.fail("The disk is full.")]
    with pytest.raises(FovaError, match=r"The disk is full\.\nContinue with: fova server --resume"):
        ended(tmp_path, *failed)
    assert not (tmp_path / "stop-request").exists()


def test_a_wish_to_stop_is_passed_on_and_its_end_is_no_failure(tmp_path):
    heard = Heard()
    stop = StopSignal(heard.note)
    stop.ask()
    assert ended(tmp_path, stop=stop)[0] is False
    assert (tmp_path / "stop-request").exists()
    assert len(heard.notes) == 1
    with pytest.raises(Interrupted, match="Stopped after round 3"):
        ended(tmp_path, lambda journal: journal.fail("Stopped after round 3"), stop=stop)


# --- The control interface ---


def test_a_superlink_is_asked_until_it_answers(tmp_path, clock):
    answers = [httpx.ConnectError("no"), httpx.ReadTimeout("no"), None]

    def list_runs(request):
        if (error := answers.pop(0)) is not None:
            raise error

    deployment._wait_until_up(process(None), SimpleNamespace(ListRuns=list_runs), RunDirectory(tmp_path))
    assert (answers, clock.pauses) == ([], [0.5, 0.5])


@pytest.mark.parametrize(("ends", "words"), [((None, 1), "ended at once"), ((None,), "did not start within 60 s")])
def test_a_superlink_that_does_not_start_shows_its_last_words(tmp_path, clock, ends, words):
    (tmp_path / "flower.log").write_text("\n".join(f"line {i}" for i in range(40)))

    def list_runs(request):
        raise httpx.ConnectError("no")

    with pytest.raises(FovaError, match=words) as error:
        deployment._wait_until_up(process(*ends), SimpleNamespace(ListRuns=list_runs), RunDirectory(tmp_path))
    assert str(error.value).splitlines()[1:] == [f"line {i}" for i in range(25, 40)]
    assert sum(clock.pauses) == (0.5 if len(ends) == 2 else 30.0)  # time passes twice as fast


def test_every_client_is_registered_once_and_problems_are_named_once(tmp_path):
    certificates.make(tmp_path, ["here"], ["east", "north"])
    (tmp_path / "server" / "clients" / "zero.pub").write_bytes(b"")
    asked, heard, known = [], Heard(), set()

    def register(request):
        asked.append(request.name)
        if request.name == "north":
            response = httpx.Response(409, text="key in use", request=httpx.Request("POST", "https://here"))
            raise httpx.HTTPStatusError("no", request=response.request, response=response)

    address = Address("127.0.0.1", 8443, tmp_path / "server")
    for _ in range(2):
        deployment._register(SimpleNamespace(RegisterNode=register), address, known, heard)
    assert asked == ["east", "north"]
    assert len(heard.notes) == 2
    assert "zero.pub cannot be read" in heard.notes[0]
    assert heard.notes[1] == "north cannot be registered and cannot join: key in use"
    certificates.make(tmp_path, [], ["west"])
    deployment._register(SimpleNamespace(RegisterNode=register), address, known, heard)
    assert asked == ["east", "north", "west"], "clients may be added while the server runs"
    deployment._register(None, HERE, set(), heard)  # without certificates nobody has a key


def test_a_run_that_flower_ended_is_noticed(tmp_path):
    def insist(status, sub_status, details=""):
        found = SimpleNamespace(status=SimpleNamespace(status=status, sub_status=sub_status, details=details))
        control = SimpleNamespace(ListRuns=lambda request: SimpleNamespace(run_dict={request.run_id: found}))
        deployment._insist_on_running(control, 7, RunDirectory(tmp_path))

    insist("running", "")
    insist("finished", "completed")
    with pytest.raises(FovaError, match=r"stopped early: out of memory\nContinue with: fova server --resume"):
        insist("finished", "failed", "out of memory")
    with pytest.raises(FovaError, match="stopped early: stopped"):
        insist("finished", "stopped")


def test_a_refusal_of_our_own_superlink_needs_no_proof():
    """Flower answers it before the door has put its proof there."""
    context = SimpleNamespace(request=httpx.Request("POST", "https://server/v1/control/list-runs"))
    refused = httpx.Response(500)
    assert deployment.OwnSuperLink("a secret").intercept(context, lambda context: refused) is refused


# --- A client ---


def test_a_client_tries_again_and_says_each_reason_once(monkeypatch, tmp_path, clock):
    reasons = iter(["Connection refused", "Connection refused", "Name or service not known", ""])
    started, heard = [], Heard()

    @contextmanager
    def supernode(config, *_):
        started.append(config)
        yield process(0)

    def last_words(state):
        if len(started) == 4:
            raise KeyboardInterrupt
        return next(reasons)

    monkeypatch.setattr(deployment, "_supernode", supernode)
    monkeypatch.setattr(deployment, "_watch", lambda *_: None)
    monkeypatch.setattr(deployment, "_last_words", last_words)
    config = ClientConfig("north", "north.npz", str(tmp_path / "state"))
    with pytest.raises(KeyboardInterrupt):
        deployment.participate(config, "here:8443", None, heard)
    assert heard.notes == [
        "here:8443 does not answer. Trying again every 5 s.",
        "here:8443 is an address that cannot be found. Trying again every 5 s.",
    ]
    assert clock.pauses == [5.0] * 3
    assert started == [config] * 4


def test_a_client_signs_with_the_key_that_it_joins_with(monkeypatch, tmp_path):
    def supernode(config, *_):
        assert config.key == str(tmp_path / "keys" / "client.key")
        raise KeyboardInterrupt

    monkeypatch.setattr(deployment, "_supernode", supernode)
    config = ClientConfig("north", "north.npz", str(tmp_path / "state"))
    with pytest.raises(KeyboardInterrupt):
        deployment.participate(config, "here:8443", tmp_path / "keys", Heard())


def test_a_worker_that_dies_at_once_is_not_started_again_and_again(tmp_path, clock):
    """Clocks go 1 s from look to look; a worker is replaced at the earliest after more than 5 s."""
    heard, started = Heard(), []

    def start_worker():
        started.append(clock.now)
        return SimpleNamespace(poll=lambda: 1, send_signal=lambda number: None, wait=lambda seconds: 0)

    supernode = process(*[None] * 13, 0)
    deployment._watch(supernode, start_worker, Reader(tmp_path / "journal.jsonl"), heard)
    assert started == [100.0, 106.0, 112.0]
    assert len(heard.notes) == 2


def test_a_supernode_of_a_federation_without_keys_is_told_so(monkeypatch, tmp_path):
    found = []
    monkeypatch.setattr(deployment, "_flower", lambda *arguments: found.append(arguments))
    config = ClientConfig("north", "north.npz", str(tmp_path))
    deployment._supernode(config, "here:8443", None, tmp_path, 4711, tmp_path / "secret")
    ((part, command, folder, environment),) = found
    assert (part, folder, environment) == ("supernode", tmp_path, {})
    assert "--insecure" in command
    assert not any("key" in word for word in command)
    assert command[command.index("--max-wait-time") + 1] == "30"


def test_a_worker_is_told_where_its_supernode_is(monkeypatch, tmp_path):
    found = []
    monkeypatch.setattr(deployment, "_start", lambda *arguments: found.append(arguments) or "process")
    assert deployment._worker(tmp_path, 4711, tmp_path / "secret") == "process"
    ((command, environment, _),) = found
    assert command[:4] == [sys.executable, "-m", "fova.network.worker", "--insecure"]
    assert command[4:] == [
        *("--runtime-api-address", "127.0.0.1:4711"),
        *("--superexec-auth-secret-file", str(tmp_path / "secret")),
    ]
    assert environment["FLWR_HOME"] == str(tmp_path / ".flwr")


def test_a_free_port_can_be_listened_on():
    with socket.create_server(("127.0.0.1", deployment._free_port())) as listening:
        assert listening.getsockname()[1] > 1023


# --- Processes ---


def test_flowers_processes_know_where_they_belong_and_keep_quiet(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin")
    found = deployment._environment(tmp_path / "run")
    assert found["FLWR_HOME"] == str(tmp_path / "run" / ".flwr")
    assert found[processes.MARK] == processes.mark_of(tmp_path / "run")
    assert found[processes.PARENT] == str(os.getpid())
    assert found["PATH"] == f"{Path(sys.executable).parent}{os.pathsep}/usr/bin"
    assert (found["FLWR_TELEMETRY_ENABLED"], found["FLWR_DISABLE_UPDATE_CHECK"]) == ("0", "1")
    assert found["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"


@pytest.mark.parametrize("raises", [False, True])
def test_a_process_of_flower_ends_with_all_that_it_started(monkeypatch, tmp_path, raises):
    done = []
    monkeypatch.setattr(processes, "end", lambda mark: done.append(f"end {mark == processes.mark_of(tmp_path)}"))
    monkeypatch.setattr(deployment, "_stop", lambda *arguments: done.append(arguments))

    def start(command, environment, log):
        log.write(b"words")
        assert command == [sys.executable, "-m", "fova.network.superlink", "--port", "1"]
        assert (environment["OWN"], environment["FLWR_TELEMETRY_ENABLED"]) == ("x", "0")
        return "process"

    monkeypatch.setattr(deployment, "_start", start)
    (tmp_path / "flower.log").write_bytes(b"earlier ")
    try:
        with deployment._flower("superlink", ["--port", "1"], tmp_path, {"OWN": "x"}) as started:
            assert started == "process"
            assert done == ["end True"], "what an earlier start left behind"
            if raises:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert raises
    assert done == ["end True", ("process", signal.SIGINT, 15.0), "end True"]
    assert deployment._last_words(tmp_path) == "earlier words"


@pytest.mark.parametrize("heeds", [True, False])
def test_a_process_that_does_not_heed_is_killed(heeds):
    done = []

    def wait(*seconds):
        done.append(("wait", *seconds))
        if seconds and not heeds:
            raise subprocess.TimeoutExpired("flower", *seconds)

    stubborn = SimpleNamespace(
        send_signal=lambda number: done.append(number), wait=wait, kill=lambda: done.append("kill")
    )
    deployment._stop(stubborn, signal.SIGTERM, 5.0)
    assert done == [signal.SIGTERM, ("wait", 5.0), *([] if heeds else ["kill", ("wait",)])]


def test_ctrl_c_does_not_reach_a_process_that_we_start(monkeypatch):
    found = []
    monkeypatch.setattr(deployment.subprocess, "Popen", lambda command, **options: found.append((command, options)))
    deployment._start(["a", "b"], {"X": "1"}, "log")
    ((command, options),) = found
    assert command == ["a", "b"]
    assert options.pop("stdin") == subprocess.DEVNULL
    assert options == {"env": {"X": "1"}, "stdout": "log", "stderr": "log", "start_new_session": True}


# --- Command lines and secrets ---


def commands(monkeypatch):
    found = []
    monkeypatch.setattr(
        deployment, "_flower", lambda part, command, folder, env: found.append((part, command, env)) or "process"
    )
    return found


def test_a_superlink_asks_for_keys_and_installs_nothing(monkeypatch, tmp_path):
    found = commands(monkeypatch)
    address = deployment.Address("0.0.0.0", 8443, tmp_path, ("10.0.0.7",))
    assert deployment._superlink(RunDirectory(tmp_path), address, "a secret") == "process"
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
    data = str(tmp_path / "my \"own\" d\\ata 'x' size=3.npz")
    config = ClientConfig('no"rth', data, str(tmp_path), size=500, insist_secure_aggregation=True)
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


def test_the_control_interface_is_asked_at_an_address_of_this_machine(monkeypatch, tmp_path):
    asked = []

    class Control:
        @staticmethod
        @contextmanager
        def from_server_address(*where, interceptors):
            asked.append((where, [each.secret for each in interceptors if hasattr(each, "secret")]))
            yield "control"

    monkeypatch.setattr(deployment, "ControlHttpClient", Control)
    for address in (Address("0.0.0.0", 8443, None), Address("::", 8443, tmp_path)):
        with deployment._control(address, "a secret") as control:
            assert control == "control"
    authority = str(tmp_path / "ca.crt")
    assert asked == [
        (("127.0.0.1:8443", True, None), ["a secret"]),
        (("[::1]:8443", False, authority), ["a secret"]),
    ]


def test_a_folder_is_made_for_the_log(monkeypatch, tmp_path):
    monkeypatch.setattr(processes, "end", lambda mark: None)
    monkeypatch.setattr(deployment, "_stop", lambda *_: None)
    monkeypatch.setattr(deployment, "_start", lambda *_: "process")
    for _ in range(2):
        with deployment._flower("supernode", [], tmp_path / "a" / "b", {}):
            assert (tmp_path / "a" / "b" / "flower.log").exists()
