import shlex
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fova import algorithms
from fova.commands.train import parse_train
from fova.data.tables.columns import Columns
from fova.federation.client_specs import ClientSpec
from fova.reports.reproduce import train_command
from fova.run.config import Config, RunConfig

TWO = (ClientSpec("expert", 500), ClientSpec("random", 500))

configurations = st.builds(
    Config,
    task=st.sampled_from(["maze2d-umaze", "hopper"]),
    clients=st.sampled_from([TWO, TWO[:1], (ClientSpec("ward 1.npz"), ClientSpec("ward-2.npz"))]),
    algorithm=st.builds(
        algorithms.get("fova"),
        hidden=st.lists(st.integers(1, 512), min_size=1, max_size=3).map(tuple),
        lam=st.floats(0, 1e6),
        alpha=st.sampled_from([5.0, 1e-7]),
        imitate=st.sampled_from(["data", "vote"]),
        awr=st.booleans(),
        vote=st.booleans(),
    ),
    run=st.builds(
        RunConfig,
        rounds=st.integers(1, 1000),
        seed=st.integers(0, 2**31),
        mode=st.sampled_from(["federated", "local", "centralised"]),
        normalise=st.booleans(),
        evaluate_clients=st.booleans(),
        evaluate_in_background=st.booleans(),
        action_low=st.just((-1.5, -2.0)),
        action_high=st.just((1.0, 2.0)),
    ),
)


@settings(max_examples=10, deadline=None)
@given(configurations)
def test_the_command_says_exactly_what_the_configuration_says(config):
    program, command, *flags = shlex.split(train_command(config))
    assert (program, command) == ("fova", "train")
    assert parse_train(flags)[0] == config


def test_defaults_are_not_written_out_and_other_algorithms_are_named():
    fova = Config("hopper", TWO, algorithms.configure("fova"))
    assert train_command(fova) == "fova train --task hopper --clients expert random --size 500"
    fedora = Config("hopper", TWO, algorithms.configure("fedora"), algorithm_name="fedora")
    assert train_command(fedora).endswith("--size 500 --algorithm fedora")


def test_what_flags_cannot_say_needs_the_file():
    config = Config("hopper", TWO, algorithms.configure("fova"))
    for clients in (
        (ClientSpec("expert", 500, name="north"), TWO[1]),
        (ClientSpec("expert", 500, offset=10), TWO[1]),
        (ClientSpec("expert", 400), TWO[1]),
        (ClientSpec("expert", 500, insist_privacy="clip=1,noise=2"), TWO[1]),
        (),
    ):
        assert train_command(replace(config, clients=clients)) is None


ROLES = {
    "episode": "patient id", "time": "none", "observations": ["hr", "map, mean", "lab_*", 'the "dose"'],
    "action": ["dose", "fluid $"], "reward": "-cost", "terminal": "last:died",
}  # fmt: skip
SAID = {
    "timeout": "cut",
    "categories": ["hr"],
    "numbers": ["dose"],
    "na": ["-999", "?"],
    "missing": {"a=b": "mean:1.8"},
}


@pytest.mark.parametrize("more", [{}, SAID, {"na": "none"}, {"missing": {"lab_*": "mean", "hr": "carry"}}])
def test_the_columns_of_tables_are_said(more):
    columns = Columns.of(ROLES | more)
    config = Config(None, (ClientSpec("a.csv"), ClientSpec("b.csv")), algorithms.configure("fova"), columns=columns)
    again = parse_train(shlex.split(train_command(config))[2:])[0]
    assert again == config
    assert again.fingerprint() == config.fingerprint()
    assert list(again.columns.missing) == list(columns.missing)  # the first pattern that fits counts


@pytest.mark.parametrize(
    "more", [{"categories": {"hr": ["1", "2"]}}, {"na": ["1,5"]}, {"na": ["none"]}, {"missing": {"-x": "mean"}}]
)
def test_columns_that_flags_cannot_say_need_the_file(more):
    config = Config(None, TWO, algorithms.configure("fova"), columns=Columns.of(ROLES | more))
    assert train_command(config) is None
