"""A policy is trained and judged over loopback: SuperLink, four SuperNodes, TLS and keys."""

import json

import pytest
from place import free_port
from test_judging import HOLD_OUT, NAMES, SEED
from test_processes import place  # noqa: F401  a fixture

import fova
from fova.evaluation.judging.judge import JudgeSettings
from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.network.certificates import make
from fova.run.directory import RunDirectory
from patience import PATIENCE
from tiny import make_transitions, save_npz

pytestmark = pytest.mark.slow

JUDGE_ROUNDS = 2
FLAGS = (
    *("--algorithm", "fed-bc", "--hidden", 8, "--batch-size", 8, "--rounds", 1, "--local-steps", 3),
    *("--seed", SEED, "--hold-out", HOLD_OUT, "--observation", 3, "--action", 2),
    *("--min-clients", 4, "--deadline", PATIENCE, "--judge", "--judge-rounds", JUDGE_ROUNDS),
)


def test_four_clients_judge_a_policy_over_tls(place):  # noqa: F811
    files = {name: place.folder / f"{name}.npz" for name in NAMES}
    for i, path in enumerate(files.values()):
        save_npz(path, make_transitions(i, episodes=6 + i))
    make(place.folder / "certificates", ["127.0.0.1"], NAMES)
    port = free_port()
    run = RunDirectory(place.folder / "runs" / "wards")
    place.start("server", "server", "--host", "127.0.0.1", "--port", port, "--name", "wards", "--plain", *FLAGS)
    for name in NAMES:
        place.start(
            *(name, "client", "--server", f"127.0.0.1:{port}", "--data", files[name]),
            *("--certificates", f"certificates/{name}"),
        )
    place.wait("verdict", lambda: (run.path / "judge.json").exists())
    assert place.running.pop("server").wait(PATIENCE) == 0
    for name in NAMES:
        assert place.stop(name) == 0

    found = json.loads((run.path / "judge.json").read_text())
    assert found["sentence"] in " ".join(place.said("server").split())
    federation = Federation.build([ClientSpec(str(path), name=name) for name, path in files.items()])
    simulated = fova.judge(
        run.path, federation.holding_out(HOLD_OUT, SEED), settings=JudgeSettings(rounds=JUDGE_ROUNDS)
    ).to_json()
    assert list(found["clients"]) == list(NAMES)
    for name in NAMES:
        for figure in ("episodes", "rows", "data_value", "value", "low", "high", "inside"):
            expected = pytest.approx(simulated["clients"][name][figure], rel=1e-3, abs=1e-3)
            assert found["clients"][name][figure] == expected, (name, figure)
