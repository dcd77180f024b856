"""Ten kinds of dirt in a frame, each with a clear answer; nothing is dropped without a word."""

import numpy as np
import pandas
import pytest

from fova.data.inspect import inspect
from fova.data.tables.columns import Columns
from fova.data.tables.loading import TableReader
from fova.errors import FovaError
from fova.federation.clients import Federation
from hospitals import hospital

COLUMNS = {
    "episode": "patient_id",
    "time": "hour",
    "observations": ["hr", "map", "lactate", "age"],
    "action": "dose",
    "reward": "score",
    "terminal": "died",
}


def load(frames, **changes):
    return TableReader(Columns.of(COLUMNS | changes)).load(frames)[1]


def refusal(frame, **changes):
    with pytest.raises(FovaError) as refused:
        load({"north": frame}, **changes)
    return str(refused.value)


@pytest.fixture
def frame():
    return hospital(0)


def test_1_missing_values_are_counted_by_column_with_the_choices(frame):
    frame.loc[[3, 5, 8], "hr"] = np.nan
    frame.loc[4, "lactate"] = np.nan
    said = refusal(frame)
    assert "north: values are missing in 2 columns (84 rows)" in said
    assert "hr: 3 missing. Say what to do: --missing hr=... (carry, mean or carry-mean)" in said
    assert "lactate: 1 missing." in said


def test_2_text_in_a_number_is_named_with_its_row(frame):
    frame["hr"] = frame["hr"].astype(object)
    frame.loc[7, "hr"] = "err"
    assert "north: hr: row 7 holds 'err', not a number (1 such row of 84)" in refusal(frame)


def test_3_a_time_that_occurs_twice_is_refused(frame):
    frame.loc[2, "hour"] = 1
    said = refusal(frame)
    assert "north: hour: rows 1 and 2 of episode 'p0' have the same time (1 such pair)" in said


def test_4_rows_in_reversed_order_are_sorted_and_the_note_says_so(frame):
    source = load({"north": frame.iloc[::-1]})["north"]
    assert "The rows were not in order and were sorted by patient_id and hour." in source.notes
    ordered = load({"north": frame})["north"].transitions
    assert sorted(source.transitions.rewards.tolist()) == sorted(ordered.rewards.tolist())
    assert source.transitions.episode_lengths().tolist()[::-1] == ordered.episode_lengths().tolist()


def test_5_an_unknown_category_has_its_place(frame):
    wards = {"observations": ["hr", "ward"]}
    north, south = frame.assign(ward="A"), hospital(1).assign(ward="B")
    both = load({"north": north, "south": south}, **wards)
    assert both["north"].observation_columns == ("hr", "ward=A", "ward=B", "ward=other")
    given = load({"south": south}, **wards, categories={"ward": ["A", "C"]})["south"]
    assert given.transitions.observations[0, 1:].tolist() == [0.0, 0.0, 1.0]
    assert "ward: not in the vocabulary, counted as unknown: 'B'." in given.notes


def test_6_an_episode_of_one_step_is_kept_if_it_ended_and_reported_if_not(frame):
    single = frame[(frame.patient_id != "p1") | (frame.hour == 0)]
    notes = load({"north": single})["north"].notes
    assert any("1 episode had no other step and left no data." in note for note in notes)
    single.loc[single.patient_id == "p1", "died"] = 1
    assert 1 in load({"north": single})["north"].transitions.episode_lengths()


def test_7_a_constant_reward_is_a_problem_in_words(frame):
    source = load({"north": frame.assign(score=1.0)})["north"]
    assert any("every step earns 1, so no action is better than another" in p for p in inspect(source).problems)
    said = []
    Federation.of_tables({"north": frame.assign(score=1.0)}, COLUMNS, bounds=(0, 2), note=said.append)
    assert any("north: rewards: every step earns 1" in note for note in said)


def test_8_integers_serve_as_floats(frame):
    whole = frame.assign(hr=frame.hr.round().astype(int), map=frame["map"].round().astype(float))
    floats = whole.assign(hr=whole.hr.astype(float))
    assert load({"a": whole})["a"].transitions.digest() == load({"a": floats})["a"].transitions.digest()


def test_9_time_stamps_with_zones_are_ordered_as_moments(frame):
    start = pandas.Timestamp("2026-03-29T00:30:00+01:00")  # the clocks change in this night
    stamps = (start + pandas.to_timedelta(frame.hour, unit="h")).dt.tz_convert("Europe/Berlin")
    plain = load({"north": frame})["north"].transitions
    assert load({"north": frame.assign(hour=stamps)})["north"].transitions.digest() == plain.digest()
    texts = stamps.map(lambda stamp: stamp.isoformat())  # +01:00 and +02:00 in one column
    source = load({"north": frame.assign(hour=texts)})["north"]
    assert source.transitions.digest() == plain.digest()
    assert "hour is text; it is read as time stamps." in source.notes
    texts[3] = "2026-03-29T03:30:00"
    assert "some times have a zone ('2026-03-29T00:30:00+01:00') and some have none" in refusal(
        frame.assign(hour=texts)
    )


def test_10_an_extra_column_at_one_client_is_named(frame):
    extra = hospital(1).assign(lab_ph=7.4)
    notes = load({"north": frame, "south": extra})["south"].notes
    assert "Not used: lab_ph." in notes
    north = frame.assign(lab_na=140.0)
    with pytest.raises(FovaError, match=r"Client 'south' has the column 'lab_ph', but client 'north' does not"):
        load({"north": north, "south": extra.assign(lab_na=139.0)}, observations=["hr", "lab_*"])


# --- And some more -----------------------------------------------------------------------------------------


def test_numbers_that_mark_missing_values_are_asked_about(frame):
    frame.loc[[2, 9], "lactate"] = -999
    said = refusal(frame)
    assert "lactate: holds -999 in 2 rows, far from its other values" in said
    assert "na=-999" in said
    assert "lactate: 2 missing" in refusal(frame, na="-999")
    columns = Columns.of(COLUMNS | {"na": "-999,?", "missing": {"lactate": "mean"}})
    recipe = TableReader(columns).load({"north": frame})[0].recipe
    assert {each.na for each in recipe.inputs} == {("-999",)}  # "?" marks no number
    record = {"hr": 80.0, "map": 70.0, "age": 60}
    encoded = [recipe.observations(record | {"lactate": value}).tolist() for value in (-999, None)]
    assert encoded[0] == encoded[1]
    assert load({"north": frame}, na="none")["north"].transitions.observations.min() == -999


def test_irregular_times_are_reported(frame):
    frame.loc[frame.hour >= 4, "hour"] += 20
    notes = load({"north": frame})["north"].notes
    assert any(
        "hour: time steps are irregular. The usual one is 1, but" in n and "from 1 to 21" in n for n in notes
    )


def test_a_decimal_comma_is_recognised(frame):
    frame["hr"] = frame.hr.map(lambda number: f"{number:.1f}".replace(".", ","))
    said = refusal(frame)
    assert "hr: row 0 holds" in said
    assert "Write numbers with a decimal point and without commas." in said


def test_extremes_of_double_precision_are_refused_or_noted(frame):
    assert "too large for single precision" in refusal(frame.assign(hr=1e300))
    tiny = load({"north": frame.assign(hr=frame.hr * 1e-50)})["north"]
    assert any("too small for single precision" in note for note in tiny.notes)
    shifted = load({"north": frame.assign(hr=frame.hr + 1.7e9)})["north"]
    assert any("single precision does not tell them apart well" in note for note in shifted.notes)


def test_a_time_stamp_is_no_observation(frame):
    stamped = frame.assign(hr=pandas.Timestamp("2026-01-01"))
    assert "a time and not a quantity" in refusal(stamped)


def test_a_client_that_stores_numbers_where_another_stores_text_is_named(frame):
    wards = {"observations": ["hr", "ward"]}
    with pytest.raises(FovaError, match=r"ward: it holds numbers at client 'north' and text at client 'south'"):
        load({"north": frame.assign(ward=1), "south": hospital(1).assign(ward="B")}, **wards)
