"""What members send, at the limits of what is taken."""

import io
import json
from functools import cache

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.superlink.grid import http_grid

from fova.network import intake
from fova.network.intake import Refused, insist_on_name, insist_on_names, one_line

# --- Text ---


def test_a_text_is_one_printable_line_of_limited_length():
    assert one_line("a\nb\x1b") == "a\\nb\\x1b"
    assert one_line("a" * 200) == "a" * 200
    assert one_line("a" * 201) == "a" * 197 + "..."
    assert one_line("abcde", 5) == "abcde"
    assert one_line("abcdef", 5) == "ab..."
    assert one_line("\n\n\n", 5) == "\\n..."  # escapes count
    assert one_line([1, "x"]) == "[1, 'x']"
    assert one_line(b"x" * 300, 9) == "b'xxxx..."


@pytest.mark.parametrize("name", ["a", "north-2", "a.b-c_d", "Zürich", "ä" * 63, "ward 1"])
def test_names_of_clients(name):
    assert insist_on_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "a" * 64, " a", "a ", "a\tb", "\x1b[0m", "../../x", "a/b", "a\\b", "a:b", ".a", 3, None, b"a"]
)
def test_names_that_no_client_has(name):
    with pytest.raises(Refused, match="cannot be the name of a client"):
        insist_on_name(name)


def test_names_on_one_side_only_are_shown_up_to_three():
    assert insist_on_names({"a": 1, "b": 2}, ["b", "a"], "metrics") is None
    with pytest.raises(Refused, match=r"its metrics are 2 and not the 2 asked for; on one side only: c, b$"):
        insist_on_names(["a", "c"], ["a", "b"], "metrics")
    with pytest.raises(Refused, match=r"are 3 and not the 2 asked for; on one side only: $"):
        insist_on_names(["a", "b", "b"], ["a", "b"], "metrics")
    with pytest.raises(Refused, match=r"are 0 and not the 4 asked for; on one side only: a, b, c$"):
        insist_on_names([], ["a", "b", "c", "d"], "metrics")


# --- Numbers ---


@pytest.mark.parametrize("value", [0, -3, 2.5, 3.4e38, -3.4e38])
def test_numbers_are_taken(value):
    assert intake.number(value, "loss") == value
    assert type(intake.number(value, "loss")) is float


@pytest.mark.parametrize("value", [True, "1", None, [1.0], np.float32(1)])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(Refused, match=r"loss is .*, but must be a number"):
        intake.number(value, "loss")


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3.5e38, -3.5e38, 10**40])
def test_numbers_beyond_single_precision_are_refused(value):
    with pytest.raises(Refused, match="its numbers are not finite: loss"):
        intake.number(value, "loss")


# --- Arrays ---

FLOATS = np.arange(6, dtype=np.float32).reshape(2, 3)


def packed(array, version=None):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version=version)
    return stream.getvalue()


def sent(data, stype="numpy.ndarray"):
    return Array(dtype="float32", shape=(2, 3), stype=stype, data=data)


def read(data, shape=(2, 3), dtype=np.float32, **options):
    return intake.array(sent(data, **options), "w", shape, dtype)


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_come_back_as_they_were_sent(version, order):
    found = read(packed(np.asarray(FLOATS, order=order), version))
    np.testing.assert_array_equal(found, FLOATS)
    assert found.dtype == np.float32


def test_single_numbers_and_empty_arrays_are_arrays():
    assert read(packed(np.asarray(2.5)), (), np.float64) == 2.5
    assert read(packed(np.zeros((0, 3))), (0, 3), np.float64).shape == (0, 3)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (packed(FLOATS.astype(np.float64)), r"w is float64\[2, 3\], but float32\[2, 3\] is needed"),
        (packed(FLOATS.T), r"w is float32\[3, 2\], but"),
        (packed(FLOATS.ravel()), r"w is float32\[6\], but"),
        (packed(FLOATS)[:-1], "w has 23 bytes of numbers, but float32.* is needed: 24 bytes"),
        (packed(FLOATS) + b"x", "w has 25 bytes of numbers"),
        (packed(FLOATS, (3, 0)), r"w is no NumPy array \(version \(3, 0\)\)"),
        (b"nothing", "w is no NumPy array"),
        (b"", "w is no NumPy array"),
    ],
)
def test_other_arrays_are_refused(data, words):
    with pytest.raises(Refused, match=words):
        read(data)


def test_the_size_is_compared_before_anything_is_decoded():
    whole = packed(FLOATS)
    with pytest.raises(Refused, match="bytes of numbers"):
        read(whole.ljust(24 + 1024))  # a header may have so many bytes
    with pytest.raises(Refused, match=r"w has 1,049 bytes, but float32\[2, 3\] is needed: 24 bytes"):
        read(whole.ljust(24 + 1025))
    with pytest.raises(Refused, match="w is of type pickle, but a NumPy array is needed"):
        read(whole, stype="pickle")


def test_objects_are_never_decoded():
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|O", "fortran_order": False, "shape": (2, 3)})
    with pytest.raises(Refused, match=r"w is object\[2, 3\], but"):
        read(header.getvalue())


def test_a_record_has_exactly_the_expected_arrays():
    record = ArrayRecord({"w": sent(packed(FLOATS))})
    expected = {"w": ((2, 3), np.float32)}
    np.testing.assert_array_equal(intake.arrays(record, expected, "parameters")["w"], FLOATS)
    with pytest.raises(Refused, match="its parameters are 1 and not the 2 asked for; on one side only: b"):
        intake.arrays(record, expected | {"b": ((1,), np.float32)}, "parameters")


# --- Messages ---


def test_an_answer_may_have_twice_its_payload_and_four_megabytes():
    assert intake.largest_message(1000) == 2000 + 4 * 1024 * 1024


def test_only_messages_of_an_honest_size_are_fetched(monkeypatch):
    limits = []
    monkeypatch.setattr(intake, "limited_pull", lambda *given: limits.append(given) or "pull")
    monkeypatch.setattr(intake, "limited_inflation", lambda *given: limits.append(given) or "inflate")
    monkeypatch.setattr(http_grid, "pull_objects", "Flower's pull")
    monkeypatch.setattr(http_grid, "inflate_object_from_contents", "Flower's inflate")
    monkeypatch.setattr(intake, "_without_limits", cache(intake._without_limits.__wrapped__))
    intake.limit_messages(payload=3 * 2**20, count=7)
    most = 10 * 2**20
    assert limits == [("Flower's pull", most, 64 + 2 * 7 + 10), ("Flower's inflate", most)]
    assert (http_grid.pull_objects, http_grid.inflate_object_from_contents) == ("pull", "inflate")
    intake.limit_messages(payload=2**20, count=1)  # of a second engine: they replace the first ones
    assert limits[2:] == [("Flower's pull", 6 * 2**20, 64 + 2 + 6), ("Flower's inflate", 6 * 2**20)]


def pull_all(object_ids, pull_object_fn, **options):
    return [pull_object_fn(each) for each in object_ids], options


def test_as_many_objects_and_bytes_as_are_allowed_are_pulled():
    pull = intake.limited_pull(pull_all, most_bytes=10, most_objects=2)
    assert pull(["a", "b"], lambda each: b"12345", speed=1) == ([b"12345", b"12345"], {"speed": 1})
    with pytest.raises(Refused, match="its message has 3 objects, but at most 2 are expected"):
        pull(["a", "b", "c"], lambda each: b"")
    with pytest.raises(Refused, match="its message has more than 10 bytes"):
        pull(["a", "b"], lambda each: b"123456")


def array_object(*children, ids):
    return b"Array " + ",".join(children).encode() + b" 99\x00" + json.dumps({"arraychunk_ids": ids}).encode()


def test_the_chunks_of_an_array_count_as_often_as_it_names_them():
    contents = {
        "one": array_object("x", "y", ids=[0, 1, 1]),
        "two": array_object("y", "gone", ids=[1, 0]),
        "x": b"ArrayChunk  3\x00abc",
        "y": b"ArrayChunk  1\x00a",
        "record": b"ArrayRecord one,two 9\x00{}",
    }
    x, y = len(contents["x"]), len(contents["y"])
    assert intake.inflated_bytes(contents) == x + 2 * y + y
    inflate = intake.limited_inflation(lambda *given, **options: (given, options), x + 3 * y)
    assert inflate("one", contents, fast=True) == (("one", contents), {"fast": True})
    with pytest.raises(Refused, match=f"its message unpacks to more than {x + 3 * y - 1} bytes"):
        intake.limited_inflation(None, x + 3 * y - 1)("one", contents)
