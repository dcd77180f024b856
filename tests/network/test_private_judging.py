"""Judging over the network where clients were promised privacy, secure aggregation or a robust server."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from test_judging import (  # noqa: F401  `files` and `small_fits` are fixtures
    HOLD_OUT,
    NAMES,
    ROUNDS,
    SEED,
    TINY,
    files,
    grid_of,
    new_run,
    small_fits,
    train,
    verdict_of,
)

from fova.errors import FovaError
from fova.evaluation.judging.judge import Promise, judge
from fova.federation import accountant
from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.federation.privacy import Privacy
from fova.network.budget import Budget
from fova.run.directory import RunDirectory
from fova.run.judged import judge_run

HIDDEN = {"aggregation": "uniform", "normalise": False, "reward_unit": 2.0}
CLIP, NOISE, DELTA = 1e-4, 0.2, 1e-5
PRIVATE = HIDDEN | {"privacy_clip": CLIP, "privacy_noise": NOISE}
PROMISES = {
    "client": (PRIVATE | {"privacy": "client"}, False),
    "server": (PRIVATE | {"privacy": "server"}, False),
    "secure": (HIDDEN, True),
}


@pytest.fixture(
    scope="module", params=["client", *(pytest.param(p, marks=pytest.mark.slow) for p in ("server", "secure"))]
)
def judged(request, files, tmp_path_factory):  # noqa: F811
    """A run with a promise to its clients that was trained and judged over the network."""
    run, secure = PROMISES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    grid, directory = grid_of(files, folder), new_run(folder, run, secure_aggregation=secure)
    train(grid, directory)
    return request.param, directory, grid


def own_verdicts(grid):
    kept = {node["name"]: Path(node["state"]) / "judge.json" for node in grid.nodes.values()}
    return {name: json.loads(file.read_text()) for name, file in kept.items()}


def test_no_figure_and_no_statistic_leaves_a_client(judged):
    _, run, grid = judged
    records = {name for direction, _, message in grid.log if direction == "up" for name in message.content}
    assert "figures" not in records
    assert "statistics" not in records
    assert not (run.path / "judge.json").exists()


def test_every_client_keeps_its_own_verdict_which_is_that_of_the_simulation(judged, files):  # noqa: F811
    kind, run, grid = judged
    privacy = None if kind == "secure" else Privacy(kind, CLIP, NOISE, DELTA, len(NAMES))
    federation = Federation.build([ClientSpec(str(path), name=name) for name, path in files.items()])
    expected = judge(
        run.path,
        federation.holding_out(HOLD_OUT, SEED),
        settings=replace(TINY, aggregation="uniform"),
        promise=Promise(2.0, privacy),
    )
    found = own_verdicts(grid)
    assert set(found) == set(NAMES)
    for name, verdict in found.items():
        assert set(verdict["clients"]) == {name}
        figures = expected.clients[name]
        loose = 1e-3 if kind == "secure" else 0.2  # noise is secret; far below what a client moves the fit by
        assert verdict["clients"][name]["value"] == pytest.approx(figures.value, rel=loose, abs=loose)
        assert verdict["clients"][name]["data_value"] == pytest.approx(figures.data_value)


def test_the_rounds_of_the_fit_are_accounted_for_together_with_the_training(judged):
    kind, run, grid = judged
    account = run.path / "judging.json"
    if kind == "secure":
        assert not account.exists(), "there is no epsilon without noise"
        return
    multiplier = NOISE if kind == "server" else NOISE / 2
    expected = accountant.epsilon(multiplier, 1.0, 2 + ROUNDS, DELTA)  # two rounds of training
    assert json.loads(account.read_text())["epsilon"] == pytest.approx(expected)
    if kind == "client":
        for node in grid.nodes.values():
            assert Budget(Path(node["state"])).answers() == {NOISE: 2 + ROUNDS}
    train(grid, RunDirectory.open(run.path))  # judged once more
    expected = accountant.epsilon(multiplier, 1.0, 2 + 2 * ROUNDS, DELTA)
    assert json.loads(account.read_text())["epsilon"] == pytest.approx(expected)


def test_a_fit_that_exceeds_the_budget_is_refused_before_the_training(tmp_path):
    spent = accountant.epsilon(2.0, 1.0, 2, DELTA)
    private = PRIVATE | {"privacy": "server", "privacy_noise": 2.0, "privacy_epsilon": spent * 1.01}
    new_run(tmp_path / "training-alone", private, judge=False)
    with pytest.raises(FovaError, match=r"5 rounds would spend epsilon .* Take --privacy-noise"):
        new_run(tmp_path, private)


def test_a_private_fit_is_a_plain_mean(tmp_path):
    """Krum and medians compare single clients: neither the training nor the fit may, whoever asks for it."""
    private = PRIVATE | {"privacy": "client"}
    with pytest.raises(FovaError, match=r"aggregation is krum, but only the plain mean"):
        new_run(tmp_path, private | {"aggregation": "krum"})
    promise = Promise(2.0, Privacy("client", CLIP, NOISE, DELTA, 4))
    for rule in ("krum", "median", "trimmed-mean", "size"):
        with pytest.raises(FovaError, match=f"aggregation is {rule}, but only the plain mean .* Leave --agg"):
            promise.settings(replace(TINY, aggregation=rule))
    assert promise.settings(TINY).aggregation == "uniform"
    masked_only = Promise(2.0)  # secure aggregation alone
    assert masked_only.settings(TINY).aggregation == TINY.aggregation


def test_a_client_may_send_no_figures_there(files, tmp_path):  # noqa: F811
    def talkative(reply):
        if set(reply.content) == {"about"} and "fingerprint" in reply.content["about"]:
            reply.content["figures"] = reply.content["about"]
        return reply

    run, _ = PROMISES["client"]
    grid, directory = grid_of(files, tmp_path), new_run(tmp_path, run)
    grid.tamper = dict.fromkeys(grid.nodes, talkative)
    with pytest.raises(FovaError, match="No client reported"):
        train(grid, directory)


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", ["median", "trimmed-mean", "krum"])
def test_the_fit_is_as_robust_as_the_training(aggregation, files, tmp_path):  # noqa: F811
    grid, run = grid_of(files, tmp_path), new_run(tmp_path, {"aggregation": aggregation})
    train(grid, run)
    found = verdict_of(run)
    assert found["settings"]["aggregation"] == aggregation
    federation = Federation.build([ClientSpec(str(path), name=name) for name, path in files.items()])
    simulated = judge_run(run.path, TINY, federation=federation)  # it holds the same episodes out
    assert simulated.settings["aggregation"] == aggregation
    assert found["federation"]["value"] == pytest.approx(simulated.federation.value, rel=1e-3, abs=1e-3)
