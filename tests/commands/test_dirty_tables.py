"""Ten kinds of dirt in CSV files: `fova data inspect` and `fova train` answer each of them in words."""

import json

import numpy as np
import pandas
import pytest

import fova
from commands.test_table_commands import SMALL, columns
from fova.run.training import load_config
from hospitals import BOUNDS, hospital

PLAIN = (*(word for word in SMALL if word != "--quiet"), "--plain")


@pytest.fixture
def frame():
    return hospital(0)


@pytest.fixture
def inspected(fova_command, tmp_path):
    """Write hospitals and inspect them by a mapping: exit code, and all that was said, on one line."""

    def run(north, south=None, changes=(), options=()):
        write(tmp_path, north, south)
        mapping = ("--columns", *columns(*changes), *options)
        code, said, errors = fova_command("data", "inspect", "north.csv", "south.csv", *mapping)
        return code, " ".join((said + errors).split())

    return run


@pytest.fixture
def trained(fova_command, tmp_path):
    """The same for training; a run that was refused leaves nothing."""

    def run(north, south=None, changes=(), options=()):
        write(tmp_path, north, south)
        given = ("--clients", "north.csv", "south.csv", *BOUNDS, "--columns", *columns(*changes), *options)
        before = set(tmp_path.glob("runs/*"))
        code, said, errors = fova_command("train", *given, *PLAIN)
        assert (set(tmp_path.glob("runs/*")) != before) == (code == 0)
        return code, " ".join((said + errors).split()).replace(f"{tmp_path}/", "")

    return run


def write(folder, north, south):
    north.to_csv(folder / "north.csv", index=False)
    (hospital(1) if south is None else south).to_csv(folder / "south.csv", index=False)


@pytest.fixture(params=["inspected", "trained"])
def answer(request):
    return request.getfixturevalue(request.param)


def test_1_missing_values_are_counted_until_their_treatment_is_said(answer, frame):
    frame.loc[[3, 5, 8], "hr"] = np.nan
    frame.loc[4, "lactate"] = np.nan
    code, said = answer(frame)
    assert code == 2
    assert "north.csv: values are missing in 2 columns (84 rows):" in said
    assert "hr: 3 missing. Say what to do: --missing hr=... (carry, mean or carry-mean)" in said
    assert "lactate: 1 missing." in said
    assert answer(frame, options=("--missing", "hr=mean", "lactate=carry-mean"))[0] == 0


def test_2_text_in_a_number_is_named_with_its_row(answer, frame):
    frame["hr"] = frame.hr.astype(object)
    frame.loc[7, "hr"] = "err"
    code, said = answer(frame)
    assert code == 2
    assert "north.csv: hr: row 7 holds 'err', not a number (1 such row of 84)." in said
    assert "declare it as a missing value (na=...)" in said
    assert answer(frame, changes=("na=err",), options=("--missing", "hr=carry"))[0] == 0


def test_3_a_time_that_occurs_twice_is_refused(answer, frame):
    frame.loc[2, "hour"] = 1
    code, said = answer(frame)
    assert code == 2
    assert "north.csv: hour: rows 1 and 2 of episode 'p0' have the same time (1 such pair)." in said


def test_4_rows_in_reversed_order_are_sorted_and_a_note_says_so(answer, frame):
    code, said = answer(frame.iloc[::-1])
    assert code == 0
    assert "north.csv: The rows were not in order and were sorted by patient_id and hour." in said


def test_5_an_unknown_category_is_named_and_has_its_place(fova_command, tmp_path, frame):
    write(tmp_path, frame.assign(ward="A"), hospital(1).assign(ward="B"))
    mapping = {word.partition("=")[0]: word.partition("=")[2] for word in columns("observations=hr,ward")}
    table = "".join(f"{role} = {json.dumps(value)}\n" for role, value in mapping.items() if role != "observations")
    clients = "".join(f'[[client]]\nname = "{name}"\ndata = "{name}.csv"\n' for name in ("north", "south"))
    (tmp_path / "wards.toml").write_text(
        f'[columns]\n{table}observations = ["hr", "ward"]\ncategories = {{ ward = ["A", "C"] }}\n{clients}'
    )
    named = "south.csv: ward: not in the vocabulary, counted as unknown: 'B'."
    code, said, errors = fova_command("train", "--config", "wards.toml", *BOUNDS, *PLAIN, "--name", "wards")
    assert code == 0, errors
    assert named in said + errors
    policy = fova.load_policy("runs/wards")
    assert policy.inputs.places() == ["hr", "ward=A", "ward=C", "ward=other"]
    np.testing.assert_array_equal(policy({"hr": 80, "ward": "B"}), policy({"hr": 80, "ward": "never seen"}))
    assert load_config(tmp_path / "runs/wards/config.toml").columns.categories == {"ward": ("A", "C")}
    bounds = "[run]\naction_low = [0.0]\naction_high = [2.0]\n"
    (tmp_path / "wards.toml").write_text(bounds + (tmp_path / "wards.toml").read_text())
    code, said, errors = fova_command("data", "inspect", "--config", "wards.toml")
    assert code == 0, errors
    assert named in " ".join(said.split())


def test_6_an_episode_of_one_step_is_kept_if_it_ended_and_reported_if_not(answer, frame):
    single = frame[(frame.patient_id != "p1") | (frame.hour == 0)].copy()
    code, said = answer(single)
    assert code == 0
    assert "north.csv: Left out: the last step of 9 episodes that broke off" in said
    assert "1 episode had no other step and left no data." in said
    single.loc[single.patient_id == "p1", "died"] = 1
    assert "left no data" not in answer(single)[1]


def test_7_a_constant_reward_is_a_problem_in_words(answer, frame):
    code, said = answer(frame.assign(score=1.0))
    assert code == 0
    assert "north.csv: rewards: every step earns 1, so no action is better than another." in said


def test_8_integers_serve_as_floats(fova_command, tmp_path, frame):
    whole = frame.assign(hr=frame.hr.round())
    write(tmp_path, whole.assign(hr=whole.hr.astype(int)), None)
    whole.to_csv(tmp_path / "floats.csv", index=False)
    seen = []
    for name in ("north.csv", "floats.csv"):
        code, said, _ = fova_command("data", "inspect", name, "south.csv", "--json", "--columns", *columns())
        assert code == 0
        seen.append(next(iter(json.loads(said)["clients"].values())))
    assert seen[0] == seen[1]


def test_9_time_stamps_with_zones_are_ordered_as_moments(answer, frame):
    start = pandas.Timestamp("2026-03-29T00:30:00+01:00")  # the clocks change in this night
    moments = (start + pandas.to_timedelta(frame.hour, unit="h")).dt.tz_convert("Europe/Berlin")
    texts = moments.map(lambda stamp: stamp.isoformat())  # +01:00 and +02:00 in one column
    code, said = answer(frame.assign(hour=texts))
    assert code == 0
    assert "not in order" not in said
    assert "irregular" not in said
    code, said = answer(frame.assign(hour=texts.mask(texts.index == 3, "2026-03-29T03:30:00")), changes=())
    assert code == 2
    assert "some times have a zone ('2026-03-29T00:30:00+01:00') and some have none ('2026-03-29T03:30:00')" in said


def test_10_an_extra_column_at_one_client_is_named(answer, frame):
    extra = hospital(1).assign(lab_ph=7.4)
    code, said = answer(frame, extra)
    assert code == 0
    assert "south.csv: Not used: lab_ph." in said
    code, said = answer(frame.assign(lab_na=140.0), extra.assign(lab_na=139.0), ("observations=hr,lab_*",))
    assert code == 2
    assert "has the column 'lab_ph', but client" in said


# --- What is proposed for dirty files ---


@pytest.fixture
def proposed(fova_command, tmp_path):
    def run(north, south=None):
        write(tmp_path, north, south)
        code, said, errors = fova_command("data", "inspect", "north.csv", "south.csv")
        assert code == 0, errors
        return said

    return run


def test_a_column_of_numbers_with_a_text_in_it_is_proposed_and_asked_about(proposed, frame):
    dirty = frame.assign(hr=frame.hr.astype(object).mask(frame.index == 7, "err"))
    for files in ((dirty, None), (frame, dirty)):
        said = proposed(*files)
        assert "observations=hr,map,lactate,age" in said
        assert "hr: row 7 holds 'err', not a number (1 such row of 84)." in said


def test_a_column_that_not_all_files_have_is_left_out_of_the_proposal_and_named(proposed, frame):
    extra = frame.assign(lab_ph=7.4)
    for files, file in (((extra, None), "north.csv"), ((frame, extra), "south.csv")):
        said = proposed(*files)
        assert "observations=hr,map,lactate,age action=dose" in said
        assert f"check  lab_ph: only in {file}. All clients need the same columns, so it is left out for" in said


def test_a_column_that_is_text_in_one_file_only_is_asked_about(proposed, frame):
    said = proposed(frame, frame.assign(dose=np.where(frame.dose > 1, "high", "low")))
    assert "check  dose: numbers in north.csv, but text in south.csv." in said


def test_actions_and_marks_of_missing_values_are_looked_for_in_all_files(proposed, frame):
    drugs = [each.assign(dose=names) for each, names in ((frame, "none"), (hospital(1), ["low", "high"] * 42))]
    drugs[1].loc[3, "lactate"] = -999
    said = proposed(*drugs)
    assert "dose is read as a choice among 3 named actions" in said
    assert "na=-999" in said


def test_names_of_files_with_blanks_can_be_pasted(fova_command, tmp_path, frame):
    frame.to_csv(tmp_path / "ward 1.csv", index=False)
    said = fova_command("data", "inspect", "ward 1.csv")[1]
    assert "fova train --clients 'ward 1.csv' --columns" in said
