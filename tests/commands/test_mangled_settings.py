"""Settings that no run can have, through the command line: one message, no traceback, no run directory."""

import os

import pytest

from fova.run import config
from tiny import make_transitions, save_npz

CLIENT = '[[client]]\ndata = "ward.npz"\n'
HUGE = "9" * 400


@pytest.fixture
def refused(fova_command, tmp_path):
    """Assert that a command ends with a message that holds some words."""
    save_npz(tmp_path / "ward.npz", make_transitions(0))

    def check(words, *arguments):
        code, out, err = fova_command("train", *arguments, "--quiet")
        assert (code, out) == (2, "")
        assert words in err
        assert "Traceback" not in err
        assert len(err) < 1000
        assert not (tmp_path / "runs").exists()

    return check


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        (f"--rounds={HUGE}", "rounds is 999"),
        ("--rounds=1000000", "rounds is 1000000, but must be at least 1 and at most 999,999."),
        ("--seed=-1", "seed is -1, but must be at least 0 and at most 4,294,967,295."),
        ("--seed=4294967296", "seed is 4294967296"),  # JAX would take it for seed 0
        (f"--batch-size={2**63}", "batch_size is 9223372036854775808"),
        ("--participation=nan", "participation is nan, but must be above 0 and at most 1."),
        ("--reward-scale=1e31", "reward_scale is 1e+31, but must be above 0 and at most 1e+30."),
        ("--reward-scale=-1", "reward_scale is -1.0, but must be above 0."),
        ("--reward-unit=0", "reward_unit is 0.0, but must be above 0."),
        ("--checkpoint-seconds=inf", "checkpoint_seconds is inf"),
        ("--discount=-1", "discount is -1.0, but must be at least 0 and below 1."),
        ("--discount=2", "discount is 2.0"),
        ("--discount=1", "discount is 1.0"),  # the unit of reward would be 0
        ("--tau=-1", "tau is -1.0, but must be at least 0 and at most 1."),
        ("--tau=2", "tau is 2.0"),
        ("--actor-lr=-0.001", "actor_lr is -0.001, but must be at least 0."),
        ("--critic-lr=inf", "critic_lr is inf"),
        ("--alpha=-1", "alpha is -1.0, but must be at least 0."),
        ("--lambda=-1", "lambda is -1.0, but must be at least 0."),
        ("--beta=0", "beta is 0.0, but must be above 0."),
        ("--beta=1e-40", "beta is 1e-40, but must be at least 1e-30."),  # 0 in single precision
        ("--hidden=1000000000", "hidden is (1000000000,), but each number must be at least 1 and at most 65,536."),
        ("--size=1", "size is 1, but must be at least 2"),
        (f"--size={10**19}", "size is 10000000000000000000"),
        ("--task=", "task is empty"),
        ("--name=", "--name is empty"),
        ("--name=.", "--name is empty"),
        ("--name=a\0b", "without control characters"),
        ("--name=../../x", "names a directory under runs/"),
        ("--name=/x", "names a directory under runs/"),
        ("--name=caf\udce9", "must be UTF-8 text"),
        ("--algorithm=", "--algorithm is empty"),
        ("--preset=", "--preset is empty"),
    ],
)
def test_a_flag_out_of_range(refused, flag, words):
    refused(words, "--clients", "ward.npz", flag)


@pytest.mark.parametrize(
    ("clients", "words"),
    [
        (("99999999-expert",), "'99999999-expert' stands for too many clients. One word may stand for 10,000."),
        ((f"{'9' * 200}-expert",), "stands for too many clients"),
        (("9999-expert-9999-random",), "stands for too many clients"),
        (("",), "--clients is empty."),
    ],
)
def test_clients_that_cannot_be(refused, clients, words):
    refused(words, "--task", "maze2d-umaze", "--clients", *clients)


def test_networks_are_measured_before_they_are_built(refused, monkeypatch):
    refused("hidden has 200 layers, but must have 1 to 8", "--clients", "ward.npz", "--hidden", *["8"] * 200)
    monkeypatch.setattr(config, "available", lambda: 16 * 10**9)
    refused("of memory, but 16.0 GB are available", "--clients", "ward.npz", "--hidden", "65536", "65536")
    refused("need at least", "--clients", *["ward.npz"] * 64, "--hidden", "8192", "--batch-size", "1000000")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"[run]\nrounds = {HUGE}", "rounds is 999"),
        (f"[run]\nparticipation = {HUGE}", "participation is 999"),
        (f"[run]\nreward_unit = {HUGE}", "reward_unit is 999"),
        (f"[run]\nseed = 0x{'f' * 6000}", "seed is a number of thousands of digits"),
        (f"[run]\nseed = {'9' * 6000}", "c.toml cannot be read"),
        (f"task = {'[' * 3000}{']' * 3000}", "c.toml cannot be read: its brackets are nested too deep"),
        ("[run]\nreward_scale = -inf", "reward_scale is -inf"),
        ("[run]\naction_low = [nan]\naction_high = [1]", "action_low is (nan,)"),
        ("[run]\ncompress = {}", "compress of [run]"),
        ("server = 3", "[server] must be tables"),
        ("[algorithm]\nname = 5", "name in [algorithm] is 5, but must be a text"),
        ('[algorithm]\nname = ["fova"]', "name in [algorithm] is ['fova'], but must be a text"),
        ('[algorithm]\nname = ""', "name in [algorithm] is empty"),
        ('[algorithm]\nname = "a\\u0000.py"', "which has control characters"),
        ("[algorithm]\npreset = 1", "preset in [algorithm] is 1, but must be a text"),
        ('[algorithm]\npreset = ""', "preset in [algorithm] is empty"),
        ("[algorithm]\nalpha = nan", "alpha is nan"),
        (f"[algorithm]\nhidden = [{HUGE}]", "hidden is (999"),
        ('task = ""', "task is empty"),
        ('[[client]]\ndata = ""', "is an empty name"),
        ('[[client]]\ndata = "ward.npz"\nname = ""', "has an empty name"),
        ('[[client]]\ndata = "ward.npz"\nname = " \\t"', "has an empty name"),
        ('[[client]]\ndata = "ward.npz"\nname = "server"', "the name of the global policy"),
        ('[[client]]\ndata = "ward.npz"\nname = "\\u001b[31mred"', "no control characters"),
        (f'[[client]]\ndata = "ward.npz"\nname = "{"x" * 301}"', "at most 300 characters"),
        (CLIENT * 40, "has 54 transitions, but each of its clients needs at least 2"),
        ('[[client]]\ndata = "ward.npz"\noffset = -1', "offset is -1"),
    ],
)
def test_a_file_that_cannot_be_meant(refused, tmp_path, text, words):
    (tmp_path / "c.toml").write_text(text if "client" in text else f"{text}\n{CLIENT}")
    refused(words, "--config", "c.toml")


def test_a_file_that_is_no_text(refused, tmp_path):
    (tmp_path / "c.toml").write_bytes("task = 'é'".encode("latin-1"))
    refused("c.toml cannot be read", "--config", "c.toml")


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_file_that_would_never_end_is_not_opened(refused, tmp_path, make):
    make(tmp_path / "c.toml")
    refused("Not a regular file", "--config", "c.toml")


def test_a_file_saved_by_a_windows_editor_is_read(refused, tmp_path):
    """A byte order mark and lines that end in CR LF; the name of the task is then what is wrong."""
    (tmp_path / "c.toml").write_bytes(b'\xef\xbb\xbftask = "maze"\r\n' + CLIENT.replace("\n", "\r\n").encode())
    refused("There is no task called 'maze'", "--config", "c.toml")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("data", "make", "maze2d-umaze/expert", "--size", HUGE), "at most 1,000,000,000"),
        (("data", "make", "maze2d-umaze/expert", "--size", "0"), "must be at least 1"),
        (("compare", "--task", "maze2d-umaze", "--clients", "expert", "--seeds", HUGE), "at most 10,000"),
        (("compare", "--task", "maze2d-umaze", "--clients", "expert", "--seeds", "0"), "must be at least 1"),
    ],
)
def test_a_number_that_would_never_be_reached(fova_command, command, words):
    code, _, err = fova_command(*command)
    assert code == 2
    assert words in err
    assert len(err) < 300
