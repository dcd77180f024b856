"""`fova train` with privacy and compression, end to end."""

import json

import numpy as np
import pytest

from fova.federation import accountant
from tiny import make_transitions, npz_arrays, save_npz

SMALL = ("--algorithm", "fed-bc", "--hidden", 8, "--batch-size", 8, "--local-steps", 2, "--rounds", 3, "--plain")
PRIVATE = ("--privacy-clip", 0.1, "--privacy-noise", 2, "--aggregation", "uniform", "--no-normalise")


@pytest.fixture
def three_files(tmp_path):
    for i in range(3):
        save_npz(tmp_path / f"ward-{i}.npz", make_transitions(i))
    return ("--clients", *(f"ward-{i}.npz" for i in range(3)))


def entries(tmp_path, name):
    return [json.loads(line) for line in (tmp_path / "runs" / name / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("who", "multiplier"), [("server", 2.0), ("client", 1.0)])
def test_a_private_run_prints_and_logs_what_it_spends_and_nothing_about_clients(
    fova_command, tmp_path, three_files, who, multiplier
):
    code, out, err = fova_command("train", *three_files, *SMALL, *PRIVATE, "--privacy", who, "--name", "p")
    assert (code, err) == (0, "")
    total = accountant.epsilon(multiplier, 1.0, 3, 1e-5)
    assert f"privacy  epsilon {total:.2f}, delta 1e-05" in out
    _, *rounds = entries(tmp_path, "p")
    for number, entry in enumerate(rounds, 1):
        assert set(entry) == {"round", "clients", "privacy", "bytes_per_client"}
        assert entry["clients"] == {}
        assert entry["privacy"]["epsilon"] == pytest.approx(accountant.epsilon(multiplier, 1.0, number, 1e-5))
        assert entry["privacy"]["epsilon_round"] == pytest.approx(accountant.epsilon(multiplier, 1.0, 1, 1e-5))


def test_bytes_of_a_round_are_logged_and_compression_shrinks_them(fova_command, tmp_path, three_files):
    for name in ("none", "int8"):
        code, out, _ = fova_command("train", *three_files, *SMALL, "--compress", name, "--name", name)
        assert code == 0
        assert "per client and round" in out
    plain, small = entries(tmp_path, "none")[-1], entries(tmp_path, "int8")[-1]
    assert plain["bytes"] == {way: 3 * size for way, size in plain["bytes_per_client"].items()}
    assert plain["bytes"]["down"] == small["bytes"]["down"]
    assert small["bytes"]["up"] < 0.5 * plain["bytes"]["up"]


def test_a_rejected_client_is_counted_and_the_reason_logged(fova_command, tmp_path, three_files):
    rewards = np.full(len(make_transitions(1)), 1e25, np.float32)  # finite, but its square is not
    np.savez(tmp_path / "ward-1.npz", **npz_arrays(make_transitions(1)) | {"rewards": rewards})
    options = ("--algorithm", "fed-td3bc", *SMALL[2:])
    code, out, _ = fova_command("train", *three_files, *options, "--name", "r")
    assert code == 0
    assert "rejected ward-1 in 3 rounds of 3" in out
    assert entries(tmp_path, "r")[-1]["rejected_because"] == {"ward-1": "its numbers are not finite"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--privacy", "server"), "--privacy-clip 1 --privacy-noise 2"),
        (("--privacy-noise", 1), "privacy is off"),
        (("--privacy", "server", *PRIVATE[:4], "--no-normalise"), "--aggregation uniform"),
        (("--privacy", "server", *PRIVATE[:6]), "--no-normalise"),
        (("--privacy", "server", *PRIVATE, "--mode", "local"), "mode is local"),
        (("--privacy", "server", *PRIVATE[2:], "--privacy-clip", 0), "clipping norm is 0"),
        (("--privacy", "client", "--privacy-noise", 0, *PRIVATE[:2], *PRIVATE[4:]), "noise multiplier is 0"),
        (("--privacy", "server", *PRIVATE, "--privacy-delta", 1), "delta is 1"),
        (("--privacy", "server", *PRIVATE, "--privacy-delta", 0.4), "below 1/3"),
        (("--privacy", "server", *PRIVATE, "--participation", 0.1), "draws 0.3 of 3"),
        (("--privacy", "server", *PRIVATE, "--privacy-epsilon", 1), "Take --privacy-noise"),
        (("--privacy", "server", *PRIVATE, "--privacy-epsilon", 0), "must be above 0"),
    ],
)
def test_nonsense_is_refused_before_anything_is_written(fova_command, tmp_path, three_files, options, words):
    code, _, err = fova_command("train", *three_files, *SMALL, *options)
    assert code == 2
    assert words in err
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists()


def test_one_client_has_nobody_to_hide_among(fova_command, three_files):
    code, _, err = fova_command("train", *three_files[:2], *SMALL, *PRIVATE, "--privacy", "server")
    assert code == 2
    assert "there are 1" in err
