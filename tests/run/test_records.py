"""The reader of run directories, on runs that training made and on damaged copies of them."""

import json
from dataclasses import replace

import pytest

from fova.errors import FovaError
from fova.evaluation.metrics import Played
from fova.run.directory import RunDirectory
from fova.run.records import RoundRecord, read_record, read_statistics
from made_runs import described, entries, interrupt, make_network_run, make_run, result, start_run


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run", evaluate_clients=True)


def played(figures):
    return Played(figures["return"], figures["return_std"], figures["score"])


# --- What is read ---


def test_every_figure_of_a_run_is_read(run):
    record, lines = read_record(run), entries(run)
    assert [line.number for line in record.rounds] == [line["round"] for line in lines] == [0, 1, 2, 3, 4]
    assert (record.rounds_done, record.complete, record.over_network) == (4, True, False)
    assert (record.seed, record.algorithm, record.run.local_steps) == (0, "fova", 2)
    for line, expected in zip(record.rounds, lines):
        assert line.clients == expected.get("clients", {})
        assert line.server == (played(expected["server"]) if "server" in expected else None)
        assert (line.traffic._asdict() if line.traffic else None) == expected.get("bytes_per_client")
    evaluated = [line for line in lines if "server" in line]
    assert [(e.round, e.steps) for e in record.evaluations] == [(0, 0), (2, 4), (4, 8)]
    for evaluation, expected in zip(record.evaluations, evaluated):
        assert evaluation.clients == {name: played(figures) for name, figures in expected["client_play"].items()}
    final = json.loads((run / "result.json").read_text())
    assert record.final.server == played(final["server"])
    assert record.final.clients == {name: played(final[name]) for name in ("expert-1", "random-1")}
    for name, facts in described(run).items():
        assert {key: value for key, value in vars(record.clients[name]).items() if value is not None} == facts
    timing = [json.loads(line) for line in (run / "timing.jsonl").read_text().splitlines()]
    assert [line._asdict() for line in record.timing] == timing
    assert record.config_text == (run / "config.toml").read_text()


def test_the_servers_weights_are_those_it_logged(run):
    clients = entries(run)[-1]["clients"]
    weights = read_record(run).server_weights
    assert weights == {name: metrics["server_weight"] for name, metrics in clients.items()}
    assert sum(weights.values()) == pytest.approx(1.0)


def test_the_weights_are_unknown_unless_every_client_has_one(run):
    record = read_record(run)

    def weights(*logged):
        clients = {
            name: {"server_weight": weight} if weight is not None else {}
            for name, weight in zip(("expert-1", "random-1"), logged)
        }
        return replace(record, rounds=(*record.rounds, RoundRecord(5, clients))).server_weights

    assert weights(0.25, 0.75) == {"expert-1": 0.25, "random-1": 0.75}
    assert weights(0.25, None) is None
    assert weights(None, None) is None
    assert weights() is None


def test_a_private_run_tells_what_it_spent_and_nothing_about_clients(tmp_path):
    private = {"privacy": "server", "privacy_clip": 1.0, "privacy_noise": 2.0, "aggregation": "uniform"}
    run = make_run(tmp_path / "run", algorithm="fed-bc", normalise=False, **private)
    record, spent = read_record(run), entries(run)[-1]["privacy"]
    assert record.last_round.privacy == (spent["epsilon"], spent["delta"])
    assert record.last_round.clients == {}
    assert record.server_weights is None


def test_a_run_is_read_at_any_moment(tmp_path):
    young = read_record(start_run(tmp_path / "young"))
    assert (young.rounds, young.clients, young.timing, young.final, young.rounds_done) == ((), {}, (), None, 0)
    run = interrupt(make_run(tmp_path / "stopped"), after=3)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"round": 4, "cli')  # cut short by a crash
    stopped = read_record(run)
    assert (stopped.rounds_done, stopped.complete, stopped.final) == (3, False, None)
    assert list(stopped.clients) == ["expert-1", "random-1"]


def test_a_run_without_a_task_has_no_evaluation(tmp_path):
    run = make_run(tmp_path / "files", task=None)
    record = read_record(run)
    assert result(run) == {}
    assert (record.evaluations, record.final, record.complete) == ([], None, True)


def test_over_a_network_the_clients_are_those_that_took_part(tmp_path):
    record = read_record(make_network_run(tmp_path / "run"))
    assert record.over_network
    assert [(name, c.counted, c.rejected, c.missing) for name, c in record.clients.items()] == [
        ("east", 3, None, None),
        ("north", 2, 1, None),
        ("south", 2, None, 1),
    ]
    assert (record.times("rejected"), record.times("missing")) == ({"north": 1}, {"south": 1})
    for name, facts in described(record.directory).items():
        client = record.clients[name]
        assert (client.rows, client.episodes, client.behaviour_return) == tuple(facts.values())


def rewritten(run, name, number, line):
    """The run with another line in one of its logs."""
    lines = (run / name).read_text().splitlines()
    lines[number - 1] = line
    (run / name).write_text("\n".join(lines) + "\n")
    return run


def test_numbers_that_no_table_shows_may_be_of_any_size(run):
    line = '{"round": 2, "clients": {"a": {"loss": NaN}}, "privacy": {"epsilon": Infinity, "delta": 1e-5}}'
    record = read_record(rewritten(run, "metrics.jsonl", 3, line))
    assert str(record.rounds[2].clients) == "{'a': {'loss': nan}}"
    assert record.rounds[2].privacy == (float("inf"), 1e-5)


def test_what_a_round_does_not_mention_is_empty(run):
    read = read_record(rewritten(run, "metrics.jsonl", 3, '{"round": 2, "stages": [1.5, 2]}')).rounds[2]
    assert read == RoundRecord(2, {}, stages=(1.5, 2.0))
    timing = rewritten(run, "timing.jsonl", 1, '{"round": 1, "seconds": 0.5, "evaluation": 0.25}')
    assert read_record(timing).timing[0] == (1, 0.5, 0.25, None)


def test_what_was_kept_aside_is_described_as_a_client_is(run):
    facts = {"rows": 2**63 - 1, "held_out": {"rows": 5, "behaviour_return": 2}}
    (run / "clients.json").write_text(json.dumps({"a": facts, "b": {"rows": None}}))
    record = read_record(run)
    assert (record.clients["a"].held_out.rows, record.clients["a"].held_out.episodes) == (5, None)
    assert (record.rows, record.behaviour_returns) == ({"a": 2**63 - 1}, {})
    assert record.clients["b"].held_out is None
    # the log has these two in rounds 1 to 4, and nothing of a and b
    assert [(name, c.counted, c.rejected) for name, c in record.clients.items()] == [
        ("a", None, None),
        ("b", None, None),
        ("expert-1", 4, None),
        ("random-1", 4, None),
    ]


def test_a_run_that_was_stopped_early_ends_with_its_last_round(run):
    final = read_record(run).final
    assert (final.round, final.steps) == (4, 8)
    interrupted = interrupt(run, after=3)
    (run / "result.json").write_text('{"server": {"return": 2.0, "return_std": 0.5}}')
    (run / "stopped_early.json").write_text('{"round": 3}')
    final = read_record(interrupted).final
    assert (final.round, final.steps, final.server, final.clients) == (3, 6, Played(2.0, 0.5, None), {})


# --- What is refused ---


def refused(run, *words):
    with pytest.raises(FovaError) as error:
        read_record(run)
    for text in (str(run), *words):
        assert text in str(error.value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (-5, "round is -5, but must be a whole number"),
        ("x", "round is 'x', but must be a whole number"),
        (None, "round is None, but must be a whole number"),
        (float("nan"), "round is nan, but must be a whole number"),
        (1.5, "round is 1.5, but must be a whole number"),
        (True, "round is True, but must be a whole number"),
        (10**9, "round is 1000000000, but must be above 1 and at most 4"),
        (1, "round is 1, but must be above 1 and at most 4"),
    ],
)
@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl"])
def test_a_round_is_a_whole_number_that_counts_up(run, name, value, words):
    lines = [json.loads(line) for line in (run / name).read_text().splitlines()]
    number = 1 + next(i for i, line in enumerate(lines) if line["round"] == 2)
    lines[number - 1]["round"] = value
    (run / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    refused(run, f"{name}, line {number}: {words}")


def test_the_first_round_has_none_before_it(run):
    refused(rewritten(run, "metrics.jsonl", 1, '{"round": 5}'), "line 1: round is 5, but must be at most 4")
    refused(
        rewritten(run, "metrics.jsonl", 1, '{"round": 0}\n{"round": 5}'), "5, but must be above 0 and at most 4"
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("null", "line 3: None is here, but there must be a table"),
        ("[2]", "line 3: [2] is here, but there must be a table"),
        ("{}", "line 3: round is missing"),
        ('{"round": 2, "clients": []}', "line 3, clients: [] is here, but there must be a table"),
        ('{"round": 2, "clients": {"a": 1}}', "line 3, clients, a: 1 is here, but there must be a table"),
        ('{"round": 2, "clients": {"a": {"x": "y"}}}', "line 3, clients, a: x is 'y', but must be a number"),
        ('{"round": 2, "clients": {"a": {"x": true}}}', "line 3, clients, a: x is True, but must be a number"),
        ('{"round": 2, "stages": {"a": 1}}', "line 3: stages is {'a': 1}, but must be a list of numbers"),
        ('{"round": 2, "stages": [0.5, "y"]}', "line 3, stages: 1 is 'y', but must be a number"),
        ('{"round": 2, "privacy": {"epsilon": 1, "delta": NaN}}', "privacy: delta is nan, but must be a finite"),
        ('{"round": 2, "clients": {"a": {"weight": NaN}}}', "a: weight is nan, but must be a finite number"),
        ('{"round": 2, "clients": {"a": {"vote_local": 1.0}}}', "a: has vote_local, but not all of"),
        ('{"round": 2, "server": {"score": 1.0}}', "line 3, server: return is missing"),
        ('{"round": 2, "server": {"return": 1e999, "return_std": 0}}', "server: return is inf"),
        ('{"round": 2, "client_play": {"a": null}}', "line 3, client_play, a: None is here"),
        ('{"round": 2, "rejected": {"a": 1}}', "line 3: rejected is {'a': 1}, but must be a list of names"),
        ('{"round": 2, "missing": [1]}', "line 3: missing is [1], but must be a list of names"),
        ('{"round": 2, "bytes_per_client": {"up": 1}}', "line 3, bytes_per_client: down is missing"),
        ('{"round": 2, "privacy": {"epsilon": "a"}}', "line 3, privacy: epsilon is 'a', but must be a number"),
    ],
)
def test_a_line_of_another_kind_is_named(run, line, words):
    refused(rewritten(run, "metrics.jsonl", 3, line), "metrics.jsonl", words)


@pytest.mark.parametrize("name", ["clients.json", "result.json"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", ": [] is here, but there must be a table"),
        ('{"a": 1}', ", a: 1 is here, but there must be a table"),
        ("{", "cannot be read"),
    ],
)
def test_small_files_are_tables_of_tables(run, name, content, words):
    (run / name).write_text(content)
    refused(run, f"{run / name}", words)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"rows": -1}, "a: rows is -1, but must be a whole number"),
        ({"rows": 10**400}, "a: rows is 1000"),
        ({"rows": 2**63}, f"a: rows is {2**63}, but must be a whole number"),
        ({"episodes": "two"}, "a: episodes is 'two'"),
        ({"behaviour_return": float("nan")}, "a: behaviour_return is nan, but must be a finite number"),
        ({"behaviour_return": 10**400}, "a: behaviour_return is 1000"),
        ({"digest": 5}, "a: digest is 5, but must be a text"),
    ],
)
def test_what_is_known_of_a_client_is_checked(run, facts, words):
    (run / "clients.json").write_text(json.dumps({"a": facts}))
    refused(run, "clients.json", words)


def test_a_final_evaluation_has_a_server(run):
    (run / "result.json").write_text('{"expert-1": {"return": 1.0, "return_std": 0.0}}')
    refused(run, "result.json: server is missing")


@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl", "clients.json", "result.json", "config.toml"])
def test_text_that_is_not_utf_8_is_refused(run, name):
    (run / name).write_bytes(b"\xff\xfe" + (run / name).read_bytes())
    refused(run, name)


@pytest.mark.parametrize("name", ["metrics.jsonl", "clients.json"])
def test_a_folder_in_place_of_a_file_is_refused(run, name):
    (run / name).unlink()
    (run / name).mkdir()
    refused(run, name)


def test_an_algorithm_has_a_name(run):
    (run / "config.toml").write_text("[algorithm]\nname = 5\n")
    refused(run, "config.toml: name in [algorithm] is 5, but must be a text")


# --- The federation's constants ---


def changed(**values):
    def change(content):
        return content | values

    return change


def test_statistics_are_read_as_they_were_written(run):
    path = run / "statistics.json"
    content = json.loads(path.read_text())
    columns = len(content["normaliser"]["mean"])
    assert read_statistics(RunDirectory(run), columns) == content
    del content["reward_zero"]  # as in older runs
    path.write_text(json.dumps(content))
    assert read_statistics(RunDirectory(run), columns) == content
    path.unlink()
    assert read_statistics(RunDirectory(run), columns) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: [content], "there must be a table"),
        (lambda content: {}, "normaliser is missing"),
        (changed(normaliser=[1]), "statistics.json, normaliser: [1] is here"),
        (changed(normaliser={"mean": [0.0, 0.0, 0.0]}), "std is missing"),
        (changed(normaliser={"mean": [0.0] * 3, "std": [1.0, 0.0, 1.0]}), "must be a list of 3 numbers above 0"),
        (changed(normaliser={"mean": [0.0] * 4, "std": [1.0] * 4}), "must be a list of 3 numbers. "),
        (changed(normaliser={"mean": ["x"] * 3, "std": [1.0] * 3}), "must be a number"),
        (changed(reward_unit=-1), "reward_unit is -1.0, but must be a number above 0"),
        (changed(reward_unit=10**400), "reward_unit is 1000"),
        (changed(reward_zero=0.5), "reward_zero is 0.5, but must be 0 or a number below it"),
        (changed(log_weights={"east": None}), "log_weights: east is None"),
    ],
)
def test_statistics_have_a_schema(run, change, words):
    path = run / "statistics.json"
    sound = json.loads(path.read_text()) | {"normaliser": {"mean": [0.0] * 3, "std": [1.0] * 3}}
    path.write_text(json.dumps(change(sound)))
    with pytest.raises(FovaError) as error:
        read_statistics(RunDirectory(run), 3)
    assert str(path) in str(error.value)
    assert words in str(error.value)
