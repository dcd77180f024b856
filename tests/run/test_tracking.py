"""Runs in tracking services: what is sent, resumed, and what happens when a service fails.

Small stand-ins for the services' clients record what they get. The real ones run in their offline modes where the
extra `track` is installed.
"""

import sys
from types import ModuleType, SimpleNamespace

import pytest

import fova
from fova.errors import FovaError
from fova.progress import Note, Progress
from made_runs import NETWORKS, entries
from tiny import make_transitions

TINY = NETWORKS | {"rounds": 3, "local_steps": 2, "checkpoint_seconds": 0.0}


def federation():
    return fova.Federation.of({name: make_transitions(i) for i, name in enumerate("ab")})


def train(directory, **settings):
    return fova.train(clients=federation(), directory=directory, **TINY | settings)


class FakeWandb(ModuleType):
    def __init__(self):
        super().__init__("wandb")
        self.started, self.logged, self.ended, self.fails_at = [], [], [], None

    def init(self, **given):
        self.started.append(given)
        return SimpleNamespace(
            id=given["id"] or "first", log=self.log, finish=lambda exit_code: self.ended.append(exit_code)
        )

    def log(self, figures, step):
        if step == self.fails_at:
            raise OSError("no network")
        self.logged.append((step, figures))


class FakeMlflow(ModuleType):
    """Module and client in one."""

    def __init__(self):
        super().__init__("mlflow")
        self.metrics, self.params, self.states, self.experiments = [], {}, [], {}
        self.MlflowClient = lambda: self
        self.entities = ModuleType("mlflow.entities")
        self.entities.Metric = lambda key, value, timestamp, step: (key, value, step)
        self.entities.Param = lambda key, value: (key, value)

    def get_experiment_by_name(self, name):
        return self.experiments.get(name)

    def create_experiment(self, name):
        self.experiments[name] = SimpleNamespace(experiment_id=name)
        return name

    def create_run(self, experiment, run_name):
        self.states.append((experiment, run_name))
        return SimpleNamespace(info=SimpleNamespace(run_id="run-1"))

    def update_run(self, identity, state):
        self.states.append((identity, state))

    def log_batch(self, identity, metrics=(), params=()):
        assert identity == "run-1"
        self.metrics += metrics
        self.params |= dict(params)

    def set_terminated(self, identity, state):
        self.states.append((identity, state))


@pytest.fixture
def wandb(monkeypatch):
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


@pytest.fixture
def mlflow(monkeypatch):
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    fake = FakeMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    monkeypatch.setitem(sys.modules, "mlflow.entities", fake.entities)
    return fake


def test_every_round_is_sent_with_the_settings_and_without_paths(tmp_path, wandb, mlflow):
    train(tmp_path / "run", track=("wandb", "mlflow"))
    (given,) = wandb.started
    assert (given["project"], given["name"], given["id"]) == ("fova", "run", None)
    assert (given["config"]["run.rounds"], given["config"]["algorithm.hidden"]) == (3, (8,))
    assert str(tmp_path) not in str(given["config"])
    line = entries(tmp_path / "run")[2]
    expected = {f"clients/{name}/training/q_data": line["clients"][name]["q_data"] for name in "ab"}
    (figures,) = (figures for step, figures in wandb.logged if step == 2)
    assert expected.items() <= figures.items()
    assert {(key, value, 2) for key, value in figures.items()} == {
        entry for entry in mlflow.metrics if entry[2] == 2
    }
    assert mlflow.params["run.rounds"] == "3"
    assert wandb.ended == [0]
    assert mlflow.states == [("fova", "run"), ("run-1", "FINISHED")]


def test_the_final_evaluation_is_sent(tmp_path, wandb):
    settings = TINY | {"evaluate_every": 2, "episodes": 1, "final_episodes": 1, "track": ("wandb",)}
    result = fova.train("maze2d-umaze", ["expert", "random"], 400, directory=tmp_path / "run", **settings)
    step, figures = wandb.logged[-1]
    assert (step, figures["server/evaluation/return"]) == (3, result.server.mean_return)
    assert figures["clients/expert-1/evaluation/return"] == result.clients["expert-1"].mean_return


def test_a_resumed_run_goes_on_in_the_same_place(tmp_path, wandb, mlflow):
    def on_round(report):
        assert report.round < 2

    with pytest.raises(AssertionError):
        train(tmp_path / "run", track=("wandb", "mlflow"), on_round=on_round)
    assert wandb.ended == [1]
    assert mlflow.states[-1] == ("run-1", "KILLED")
    fova.resume(tmp_path / "run", federation=federation())
    assert [given["id"] for given in wandb.started] == [None, "first"]
    assert mlflow.states[-2:] == [("run-1", "RUNNING"), ("run-1", "FINISHED")]
    assert wandb.ended == [1, 0]


def test_a_service_that_fails_is_left_out_with_a_note(tmp_path, wandb):
    class Notes(Progress):
        def __init__(self):
            self.notes = []

        def handle(self, event):
            if isinstance(event, Note):
                self.notes.append(event.text)

    wandb.fails_at, progress = 2, Notes()
    train(tmp_path / "run", track=("wandb",), progress=progress)
    assert progress.notes == ["wandb accepts no more metrics (no network). All metrics are in metrics.jsonl."]
    assert [step for step, _ in wandb.logged] == [0, 1]
    assert len(entries(tmp_path / "run")) == 4


def test_a_service_that_cannot_be_used_is_one_message(tmp_path, wandb, monkeypatch):
    def refuse(**given):
        raise ValueError("no API key")

    wandb.init = refuse
    with pytest.raises(FovaError, match="wandb cannot be used: no API key"):
        train(tmp_path / "run", track=("wandb",))
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(FovaError, match=r"mlflow, which is not installed .* pip install 'fova\[track\]'"):
        train(tmp_path / "other", track=("mlflow",))
    assert not (tmp_path / "other").exists()


def test_wandb_itself_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="the extra track is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    train(tmp_path / "run", track=("wandb",))
    assert list((tmp_path / "run/wandb").glob("offline-run-*/*.wandb"))


def test_mlflow_itself_with_a_database(tmp_path, monkeypatch):
    pytest.importorskip("sqlalchemy", reason="the package mlflow is not installed whole")
    client = pytest.importorskip("mlflow", reason="the extra track is not installed").MlflowClient
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    train(tmp_path / "run", track=("mlflow",))
    service = client(f"sqlite:///{tmp_path}/mlflow.db")
    (run,) = service.search_runs([service.get_experiment_by_name("fova").experiment_id])
    history = service.get_metric_history(run.info.run_id, "clients/a/training/q_data")
    assert [each.step for each in history] == [1, 2, 3]
    assert (run.info.status, run.data.params["run.rounds"]) == ("FINISHED", "3")
