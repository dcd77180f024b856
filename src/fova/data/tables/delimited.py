"""Delimited text, CSV and TSV, as an Arrow table. Needs pyarrow.

What programs write under these names differs: the delimiter, the decimal mark, a line before the header. What the
file itself tells is read, with a note. What it does not tell is refused, with what to do.
"""

import csv
import gzip
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fova.data.fields import decoding, fault, shown
from fova.data.memory import available, refuse_too_large

if TYPE_CHECKING:
    import pyarrow

REMEDY = "Save it as UTF-8 text with one line per row and one header line."
CHUNK = 1 << 20  # bytes
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
EXCEL_LINE = re.compile(r"sep=(.)\s*", re.IGNORECASE)  # a first line that Excel writes or understands
DECIMAL_COMMA = r"\s*[-+]?\d+,\d+([eE][-+]?\d+)?\s*"
WITH_COMMA_OR_WHOLE = re.compile(rf"{DECIMAL_COMMA}|\s*[-+]?\d+\s*")
SURELY_DECIMAL = re.compile(r"\s*[-+]?(0\d*,\d+|\d+,(\d{1,2}|\d{4,}))\s*")  # 1,074 may be a thousand and more
MAGIC = {
    b"\x1f\x8b": "is compressed by gzip. Let its name end in .csv.gz.",
    b"PK\x03\x04": "is a ZIP archive or an Excel workbook. Unpack it, or save the sheet as CSV.",
    b"PAR1": "is a Parquet file. Let its name end in .parquet.",
    b"\xff\xfe": f"is UTF-16 text. {REMEDY}",
    b"\xfe\xff": f"is UTF-16 text. {REMEDY}",
}


class Layout(NamedTuple):
    """How the fields of a file are written."""

    delimiter: str
    header: list[str]  # names as they stand in the file; empty if the first line does not hold them all
    lines_before: int  # before the header
    notes: tuple[str, ...]


def read_delimited(
    path: Path, compressed: bool, tabs: bool, as_text: Sequence[str], na: Sequence[str] = ()
) -> tuple["pyarrow.Table", tuple[str, ...]]:
    """The table in a file, and notes on it. Columns that `as_text` names are not taken for numbers.

    The texts in `na` mark missing values. They may stand among numbers with a decimal comma.
    """
    from pyarrow import csv as arrow

    start = _start(path, compressed)
    size = _unpacked(path) if compressed else path.stat().st_size
    refuse_too_large(path, size, size // 8)  # a number and its comma take eight bytes or so
    layout = _layout(path, start, tabs)
    texts = _as_text(layout.header, as_text)

    def read(decimal: str) -> "pyarrow.Table":
        with decoding(path, "", REMEDY):
            table = arrow.read_csv(
                path,
                read_options=arrow.ReadOptions(skip_rows=layout.lines_before),
                parse_options=arrow.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True),
                convert_options=arrow.ConvertOptions(
                    strings_can_be_null=True, column_types=texts, decimal_point=decimal
                ),
            )
            return table.rename_columns(_names(table.column_names))

    table, notes = read("."), layout.notes
    _insist_on_header(path, table.column_names)
    if layout.delimiter != "," and _has_decimal_commas(table, na):
        table = _with_decimal_points(read(","), as_text, na)
        notes = (*notes, "Numbers are written with a decimal comma.")
    return table, notes


# --- Before reading ----------------------------------------------------------------------------------------


def _start(path: Path, compressed: bool) -> bytes:
    """The first bytes of the text. A file that is no text of its name's kind is refused."""
    with decoding(path, "", REMEDY), path.open("rb") as stream:
        raw = stream.read(CHUNK)
    if not raw:
        raise fault(path, "", "is empty. Leave this file out.")
    if not compressed:
        for magic, problem in MAGIC.items():
            if raw.startswith(magic):
                raise fault(path, "", problem)
        return raw
    if not raw.startswith(b"\x1f\x8b"):
        raise fault(path, "", f"is not compressed by gzip. If it is plain text, call it {path.stem}.")
    with decoding(path, "", "It is damaged: fetch or write it again."), gzip.open(path, "rb") as unpacked:
        start = unpacked.read(CHUNK)
    if not start:
        raise fault(path, "", "is empty. Leave this file out.")
    return start


def _unpacked(path: Path) -> int:
    """The size of a gzip file's content. Content that does not fit into memory is refused on the way."""
    unpacking, size, free = zlib.decompressobj(wbits=31), 0, available()
    with decoding(path, "", "It is damaged: fetch or write it again."), path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            while chunk:
                size += len(unpacking.decompress(chunk, 64 * CHUNK))
                if free is not None and size > free:
                    refuse_too_large(path, size, size // 8)
                chunk = unpacking.unconsumed_tail
                if unpacking.eof:
                    chunk, unpacking = unpacking.unused_data, zlib.decompressobj(wbits=31)
    return size


def _layout(path: Path, start: bytes, tabs: bool) -> Layout:
    """What separates the fields, and the header, from the first line that is not empty."""
    lines = start.removeprefix(b"\xef\xbb\xbf").splitlines()
    first = next((line for line in lines if line.strip()), b"")
    try:
        text = first.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = f"its header has the byte {first[error.start]:#x}"
        raise fault(path, "", f"is not UTF-8 text: {byte}. {REMEDY}") from error
    excel = EXCEL_LINE.fullmatch(text)
    if excel:
        header = next((line for line in lines[1:] if line.strip()), b"").decode("utf-8", errors="replace")
        return Layout(excel[1], _fields(header, excel[1]), 1, ())
    if tabs:
        return Layout("\t", _fields(text, "\t"), 0, ())
    delimiter = _most_frequent(text)
    notes = () if delimiter == "," else (f"The fields are separated by {DELIMITERS[delimiter]}.",)
    return Layout(delimiter, _fields(text, delimiter), 0, notes)


def _most_frequent(header: str) -> str:
    """The delimiter that occurs most often in a header, outside quotes; a comma if there is none."""
    counts = Counter(character for part in header.split('"')[::2] for character in part if character in DELIMITERS)
    return max(DELIMITERS, key=lambda delimiter: counts[delimiter])


def _fields(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter), [])


def _as_text(header: Sequence[str], wanted: Sequence[str]) -> dict[str, Any]:
    """The columns to read as text, by the names that stand in the file."""
    import pyarrow

    written = {name.strip(): name for name in header}
    return {written.get(name, name): pyarrow.string() for name in wanted}


# --- After reading -----------------------------------------------------------------------------------------


def _names(header: Sequence[str]) -> list[str]:
    """The names without blanks around them. A column without a name is called as pandas calls it."""
    return [name.strip() or f"Unnamed: {place}" for place, name in enumerate(header)]


def _insist_on_header(path: Path, names: Sequence[str]) -> None:
    """Refuse a first line of data. Columns that are called 0, 1, 2 and so on are columns of an array."""
    numbers = [name for name in names if re.fullmatch(r"[-+]?\d+([.,]\d*)?([eE][-+]?\d+)?", name)]
    if 2 * len(numbers) > len(names) and numbers != [str(place) for place in range(len(names))]:
        raise fault(
            path,
            "",
            f"its first line holds numbers ({shown(', '.join(names[:5])[:80])}), not the names of the columns. Add "
            "a line with their names.",
        )


def _has_decimal_commas(table: "pyarrow.Table", na: Sequence[str]) -> bool:
    """Whether a text column holds only numbers with a decimal comma, whole numbers and marks of missing values."""
    from pyarrow import types

    for column in table.columns:
        if not types.is_string(column.type):
            continue
        texts = [text for text in column.slice(0, 1000).to_pylist() if text and text.strip() not in na]
        if all(map(WITH_COMMA_OR_WHOLE.fullmatch, texts)) and any(map(SURELY_DECIMAL.fullmatch, texts)):
            return True
    return False


def _with_decimal_points(table: "pyarrow.Table", as_text: Sequence[str], na: Sequence[str]) -> "pyarrow.Table":
    """The table with decimal points in those columns of numbers that other texts have kept text."""
    from pyarrow import types

    for place, name in enumerate(table.column_names):
        if types.is_string(table.column(place).type) and name not in as_text:
            table = table.set_column(place, name, _pointed(table.column(place), na))
    return table


def _pointed(column: "pyarrow.ChunkedArray", na: Sequence[str]) -> "pyarrow.ChunkedArray":
    """The column with decimal points if most of its texts are numbers. A mark of missing values stays as it is.

    A column that has points as well stays as it is: they may be those of thousands, as in 1.234 beside 999,50.
    """
    import pyarrow
    from pyarrow import compute

    is_mark = compute.is_in(compute.utf8_trim_whitespace(column), pyarrow.array(na, pyarrow.string()))
    has_point = compute.match_substring_regex(column, r"^\s*[-+]?[\d.]*\d\.\d")
    if compute.any(compute.and_not(has_point, is_mark)).as_py():
        return column
    is_number = compute.match_substring_regex(column, f"^({WITH_COMMA_OR_WHOLE.pattern})$")
    is_number = compute.and_not(is_number, is_mark)
    numbers, marks = (compute.sum(each).as_py() or 0 for each in (is_number, is_mark))
    if 2 * numbers <= len(column) - column.null_count - marks:
        return column
    return compute.if_else(is_number, compute.replace_substring(column, ",", "."), column)
