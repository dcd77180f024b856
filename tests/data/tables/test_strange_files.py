"""Files as other programs write them: read as they are meant, with a note, or refused with what to do."""

import gzip
import zipfile

import numpy as np
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

from data.tables.test_dirt import COLUMNS
from fova.commands.main import _dispatch, exit_code
from fova.data.tables.arrow import open_table
from fova.data.tables.columns import Columns
from fova.data.tables.guess import propose
from fova.data.tables.loading import TableReader
from fova.errors import FovaError
from hospitals import hospital


@pytest.fixture(scope="module")
def frame():
    return hospital(0).round(3)


def load(table, **changes):
    return TableReader(Columns.of(COLUMNS | changes)).load({"north": table})[1]["north"]


def refusal(table, **changes):
    with pytest.raises(FovaError) as refused:
        load(table, **changes)
    return str(refused.value)


def text(frame, encoding="utf-8", before="", line="\n", **options):
    return (before + frame.to_csv(index=False, lineterminator=line, **options)).encode(encoding)


# --- Read as meant ---

SAME = {
    "a byte order mark": (lambda f: text(f, "utf-8-sig"), None),
    "line ends of Windows": (lambda f: text(f, line="\r\n"), None),
    "line ends of old Macs": (lambda f: text(f, line="\r"), None),
    "everything in quotes": (lambda f: text(f, quoting=1), None),
    "an empty line first": (lambda f: text(f, before="\n"), None),
    "blanks after the commas": (lambda f: text(f).replace(b",", b", "), None),
    "semicolons": (lambda f: text(f, sep=";"), "The fields are separated by semicolons."),
    "tabs": (lambda f: text(f, sep="\t"), "The fields are separated by tabs."),
    "bars": (lambda f: text(f, sep="|"), "The fields are separated by bars."),
    "decimal commas": (lambda f: text(f, sep=";", decimal=","), "Numbers are written with a decimal comma."),
    "Excel's line on the separator": (lambda f: text(f, before="sep=;\n", sep=";"), None),
    "true and false in capitals": (lambda f: text(f.assign(died=f.died.map({0: "FALSE", 1: "TRUE"}))), None),
    "columns in another order": (lambda f: text(f[f.columns[::-1]]), None),
    "an index that nobody wanted": (lambda f: f.to_csv().encode(), "Not used: Unnamed: 0."),
}


@pytest.mark.parametrize("kind", SAME)
def test_it_is_read_as_the_plain_file_is(tmp_path, frame, kind):
    write, note = SAME[kind]
    (tmp_path / "north.csv").write_bytes(write(frame))
    source = load(tmp_path / "north.csv")
    assert source.transitions.digest() == load(frame).transitions.digest()
    assert note is None or note in source.notes


def test_a_lazy_frame_of_polars_is_collected(frame):
    assert load(polars.from_pandas(frame).lazy()).transitions.digest() == load(frame).transitions.digest()


def test_types_of_parquet_are_read_as_what_they_mean(tmp_path, frame):
    table = pyarrow.table({name: pyarrow.array(frame[name]) for name in frame})
    decimals = table["hr"].cast(pyarrow.decimal128(10, 3))
    wards = pyarrow.array(["A", "B"] * 42).dictionary_encode()
    table = table.set_column(table.column_names.index("hr"), "hr", decimals).append_column("ward", wards)
    pyarrow.parquet.write_table(table, tmp_path / "north.parquet")
    assert load(tmp_path / "north.parquet").transitions.digest() == load(frame).transitions.digest()
    both = load(tmp_path / "north.parquet", observations=["hr", "ward"])
    assert both.observation_columns == ("hr", "ward=A", "ward=B", "ward=other")


def test_a_pattern_takes_no_index(tmp_path, frame):
    frame.to_csv(tmp_path / "north.csv")  # with pandas' index
    assert load(tmp_path / "north.csv", observations="*").observation_columns == ("age", "hr", "lactate", "map")


def test_blanks_around_categories_do_not_count_and_cases_are_noted(frame):
    wards = {"observations": ["hr", "ward"]}
    source = load(frame.assign(ward=["A", "A ", " b", "B"] * 21), **wards)
    assert source.observation_columns == ("hr", "ward=A", "ward=B", "ward=b", "ward=other")
    assert any("'B' and 'b' differ in upper and lower case only" in note for note in source.notes)


def test_a_name_with_a_comma_is_written_in_quotes_and_proposed_so(tmp_path, frame):
    file = tmp_path / "north.csv"
    frame.rename(columns={"hr": "hr, bpm"}).to_csv(file, index=False)
    said = refusal(file, observations="hr, bpm,map")
    assert "A name with a comma is written in quotes: '\"hr, bpm\"'" in said
    assert load(file, observations='"hr, bpm",map').observation_columns == ("hr, bpm", "map")
    assert "'observations=\"hr, bpm\",map,lactate,age'" in propose([open_table(file)]).flags()


# --- Refused in words ---


def zipped(frame):
    import io

    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("north.csv", text(frame))
    return archive.getvalue()


REFUSED = {
    "UTF-16": (lambda f: text(f, "utf-16"), "is UTF-16 text. Save it as UTF-8"),
    "another code page": (lambda f: text(f.rename(columns={"hr": "hér"}), "latin-1"), "header has the byte 0xe9"),
    "gzip without its ending": (lambda f: gzip.compress(text(f)), "is compressed by gzip. Let its name end in"),
    "a ZIP archive": (zipped, "is a ZIP archive or an Excel workbook"),
    "nothing": (lambda f: b"", "is empty. Leave this file out."),
    "a header alone": (lambda f: text(f.iloc[:0]), "holds no rows. Leave it out."),
    "no header": (lambda f: text(f, header=False), "its first line holds numbers (p0, 0, "),
    "two columns of one name": (lambda f: text(f.set_axis(["hr", *f.columns[1:]], axis=1)), "hr: is the name of"),
    "yes and no": (lambda f: text(f.assign(died=f.died.map({0: "no", 1: "yes"}))), "as in terminal=died=yes"),
    "percent signs": (
        lambda f: text(f.assign(map=f["map"].astype(str) + "%")),
        "%', a number with a unit (84 such",
    ),
    "units": (lambda f: text(f.assign(hr=f.hr.astype(str) + " bpm")), "Store the numbers alone, all in one unit."),
    "thousands": (lambda f: text(f.assign(hr="1,074")), "Write numbers with a decimal point and without commas."),
    "a limit": (lambda f: text(f.astype({"hr": object}).replace({"hr": {f.hr[3]: "<50"}})), "row 3 holds '<50'"),
    "dates of Excel": (lambda f: text(f.assign(hour="01/13/2026 00:00")), "that is not a time"),
    "a sum at the end": (lambda f: text(f) + b"Total,,,,,,,,\n", "hour: row 84 has no value"),
    "a line that is too long": (lambda f: text(f) + b"p9,1,1,1,1,1,1,1,1,1\n", "Expected 9 columns, got 10"),
    "an unknown action": (lambda f: text(f.assign(dose=f.dose.mask(f.index == 5))), "An unknown action cannot be"),
    "no episode": (
        lambda f: text(f.assign(patient_id=f.patient_id.mask(f.index == 5))),
        "Give every row its episode.",
    ),
    "a measured column as episode": (
        lambda f: text(f.assign(patient_id=f.hr + 0.5)),
        "It looks measured. Name the column that tells episodes apart",
    ),
    "infinite values": (lambda f: text(f.assign(hr=f.hr.mask(f.index == 5, np.inf))), "hr: row 5 is infinite"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_it_is_refused_with_what_to_do(tmp_path, frame, kind):
    write, words = REFUSED[kind]
    (tmp_path / "north.csv").write_bytes(write(frame))
    assert words in refusal(tmp_path / "north.csv")


def test_plain_text_called_gz_is_named(tmp_path, frame):
    (tmp_path / "north.csv.gz").write_bytes(text(frame))
    assert "is not compressed by gzip. If it is plain text, call it north.csv." in refusal(
        tmp_path / "north.csv.gz"
    )


def test_free_text_is_no_category_until_the_user_says_so(frame):
    remarks = frame.assign(note=[f"feels {number}" for number in range(len(frame))])
    observations = ["hr", "note"]
    assert "holds 84 different texts in 84 rows" in refusal(remarks, observations=observations)
    assert len(load(remarks, observations=observations, categories=["note"]).observation_columns) == 86
    drugs = frame.assign(dose=frame.dose.astype(str) + " mg")
    assert "a number with a unit" in refusal(drugs)
    few = frame.assign(dose=["5 mg", "10 mg"] * 42)
    assert load(few, categories=["dose"]).action_names == ("10 mg", "5 mg")


@pytest.mark.parametrize("kind", ["list", "struct"])
def test_nested_columns_are_refused_and_shown_in_a_proposal(tmp_path, frame, kind, capsys):
    values = {"list": [[v, v] for v in frame.hr], "struct": [{"a": v} for v in frame.hr]}[kind]
    columns = {name: pyarrow.array(frame[name]) for name in frame} | {"hr": pyarrow.array(values)}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "north.parquet")
    assert f"hr: holds {kind}<" in refusal(tmp_path / "north.parquet")
    assert exit_code(lambda: _dispatch(["data", "inspect", str(tmp_path / "north.parquet")])) == 0
    assert "action=dose" in capsys.readouterr().out


def test_a_sheet_is_to_be_saved_as_csv(tmp_path, capsys):
    (tmp_path / "north.xlsx").write_bytes(b"PK\x03\x04")
    assert exit_code(lambda: _dispatch(["data", "inspect", str(tmp_path / "north.xlsx")])) == 2
    assert "Save the sheet as CSV." in " ".join(capsys.readouterr().err.split())


def test_a_column_that_is_missing_in_any_file_gets_a_proposal(tmp_path, frame):
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.assign(lactate=frame.lactate.mask(frame.index == 3)).to_csv(tmp_path / "b.csv", index=False)
    flags = propose([open_table(tmp_path / name) for name in ("a.csv", "b.csv")]).flags()
    assert "--missing lactate=carry-mean" in flags


def test_a_name_in_the_wrong_case_is_recognised(frame):
    assert "Did you mean 'hr'" in refusal(frame, observations=["HR", "map"])


def test_stamps_of_pandas_and_text_are_the_same_time(frame):
    stamps = pandas.Timestamp("2026-01-13", tz="UTC") + pandas.to_timedelta(frame.hour, unit="h")
    as_text = load(frame.assign(hour=stamps.dt.strftime("%Y-%m-%d %H:%M")))
    assert load(frame.assign(hour=stamps)).transitions.digest() == as_text.transitions.digest()


MAPPING = {
    "episode": "id",
    "time": "hour",
    "observations": ["hr"],
    "action": "dose",
    "reward": "score",
    "terminal": "died",
}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"action": []}, "action names no column"),
        ({"action": ""}, "action names no column"),
        ({"categories": {"hr": 3}}, "categories of hr are 3"),
        ({"categories": {"hr": True}}, "categories of hr are True"),
        ({"categories": {"hr": {"a": 1}}}, "must be a list of values"),
        ({"categories": {"hr": [[1]]}}, "must be a list of values"),
        ({"na": {"a": 1}}, "na is"),
        ({"na": [[-999]]}, "na is"),
        ({"na": True}, "na is True"),
        ({"reward": "hour"}, "time and reward are both"),
        ({"timeout": "died"}, "terminal and timeout are both"),
        ({"categories": "hr", "numbers": "hr,dose"}, "'hr' is in categories and in numbers"),
        ({"categories": {"dose": [1, 2]}, "numbers": ["dose"]}, "'dose' is in categories and in numbers"),
    ],
)
def test_mappings_that_mean_nothing(changed, words):
    with pytest.raises(FovaError, match=words):
        Columns.of(MAPPING | changed)


def test_the_name_of_an_episode_is_no_observation(frame):
    assert "tells episodes apart and is also an observation" in refusal(frame, observations="hr,patient_id")
    assert "patient_id" not in load(frame, observations="*").observation_columns


def test_a_reward_that_is_observed_is_pointed_out(frame):
    said = "score is the reward and also an observation. It must be known before the action."
    assert said in load(frame, observations="hr,score").notes
    assert said not in load(frame).notes


def test_names_of_episodes_with_points_are_accepted(frame):
    named = frame.assign(patient_id=frame.patient_id + ".5")
    assert load(named).transitions.digest() == load(frame).transitions.digest()


def test_markers_can_be_numbers_and_categories_too():
    columns = Columns.of(MAPPING | {"na": [-999, "?"], "categories": {"hr": [1, "two"]}, "timeout": "none"})
    assert columns.na == ("-999", "?")
    assert columns.categories == {"hr": ("1", "two")}
