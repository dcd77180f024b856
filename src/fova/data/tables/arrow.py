"""Tables as Arrow columns: CSV, TSV, Parquet, pandas, polars and Arrow itself. Needs pyarrow.

A table is opened first. Its columns are read one at a time, so that a large Parquet file is never in memory twice.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fova.data.fields import decoding, fault, refuse_bombs
from fova.data.memory import parquet_size, refuse_too_large
from fova.data.paths import refuse_special
from fova.data.tables.delimited import REMEDY, read_delimited
from fova.errors import FovaError

if TYPE_CHECKING:
    import pyarrow

ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")
REMEDY_PARQUET = "It is damaged or not a Parquet file. Fetch or write it again."


@dataclass(frozen=True)
class Columnar:
    """A table whose columns are read when they are asked for."""

    name: str  # the file, or the client whose table it is
    format: str
    names: list[str]
    kinds: "Mapping[str, pyarrow.DataType]"
    rows: int
    read: "Callable[[str], pyarrow.ChunkedArray]"
    notes: tuple[str, ...] = ()

    def column(self, name: str) -> "pyarrow.ChunkedArray":
        remedy = REMEDY_PARQUET if self.format == "Parquet" else REMEDY
        with decoding(self.name, name, remedy):
            return _plain(self.read(name))


def is_table_file(path: Path) -> bool:
    """Whether a file's ending is that of a table."""
    return ending(path) in ENDINGS


def insist_on_table(path: Path) -> Path:
    """The path of a table. Anything else is refused."""
    if not is_table_file(path):
        given = f"--columns names columns of tables, but {path} is none by its ending"
        raise FovaError(f"{given}. {known_endings(path)}")
    if not path.exists():
        raise FovaError(f"There is no file {str(path)!r}. Check the spelling and the current directory.")
    return path


def known_endings(path: Path) -> str:
    """What to do with a file whose ending is not that of a table."""
    is_sheet = ending(path) in (".xlsx", ".xls", ".ods")
    remedy = "Save the sheet as CSV." if is_sheet else "Rename it if it is a table."
    return f"Tables end in {', '.join(ENDINGS)}. {remedy}"


def ending(path: Path) -> str:
    """The ending of a file's name, with .gz as part of it."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return "".join(suffixes[-2:]) if suffixes[-1:] == [".gz"] else "".join(suffixes[-1:])


def pyarrow_or_advice(module: str) -> Any:
    """A module of pyarrow, or an error that says how to install it."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise FovaError("Reading tables needs pyarrow. Install it: pip install 'fova[tables]'") from error


def open_table(
    source: Any, name: str | None = None, as_text: Sequence[str] = (), na: Sequence[str] = ()
) -> Columnar:
    """The table in a file, or one that a Python program holds (pandas, polars, Arrow, a dict of columns).

    Columns of a CSV file that `as_text` names are not taken for numbers: 007 and 7 may be two patients. The texts
    in `na` mark missing values.
    """
    if isinstance(source, str | Path):
        path = Path(source)
        refuse_special(path)
        table = _open_parquet(path) if ending(path) == ".parquet" else _open_csv(path, as_text, na)
    else:
        table = _in_memory(_as_arrow(source, name or "table"), name or "table", "table")
    for column, times in Counter(table.names).items():
        if times > 1:
            raise fault(table.name, column, "is the name of several columns. Give each its own.")
    return table


# --- Files -------------------------------------------------------------------------------------------------


def _open_csv(path: Path, as_text: Sequence[str], na: Sequence[str]) -> Columnar:
    pyarrow_or_advice("pyarrow.csv")
    tabs = ending(path).startswith(".tsv")
    content, notes = read_delimited(path, ending(path).endswith(".gz"), tabs, as_text, na)
    return _in_memory(content, str(path), "TSV" if tabs else "CSV", notes)


def _open_parquet(path: Path) -> Columnar:
    parquet = pyarrow_or_advice("pyarrow.parquet")
    with decoding(path, "", REMEDY_PARQUET):
        store = parquet.ParquetFile(path)
        with store:
            schema, summary = store.schema_arrow, store.metadata
            declared_bytes = sum(summary.row_group(i).total_byte_size for i in range(summary.num_row_groups))
    refuse_bombs(path, "", declared_bytes, path.stat().st_size)
    refuse_too_large(path, *parquet_size(summary, schema.names))
    kinds = {field.name: field.type for field in schema}
    read = partial(_read_parquet, path, summary)
    return Columnar(str(path), "Parquet", list(schema.names), kinds, summary.num_rows, read)


def _read_parquet(path: Path, summary: Any, name: str) -> "pyarrow.ChunkedArray":
    import pyarrow
    import pyarrow.parquet

    kind = summary.schema.to_arrow_schema().field(name).type
    # Each distinct text is read once, even if many rows have it.
    texts = [name] if pyarrow.types.is_string(kind) else None
    with pyarrow.parquet.ParquetFile(path, metadata=summary, read_dictionary=texts) as store:
        return store.read(columns=[name]).column(name)


# --- Tables in memory --------------------------------------------------------------------------------------


def _in_memory(content: "pyarrow.Table", name: str, kind: str, notes: tuple[str, ...] = ()) -> Columnar:
    kinds = {field.name: field.type for field in content.schema}
    return Columnar(name, kind, list(content.column_names), kinds, content.num_rows, content.column, notes)


def _as_arrow(source: Any, name: str) -> "pyarrow.Table":
    pyarrow = pyarrow_or_advice("pyarrow")
    if isinstance(source, pyarrow.Table):
        return source
    if type(source).__module__.startswith("polars") and hasattr(source, "collect"):  # a lazy frame
        source = source.collect()
    if hasattr(source, "iloc") and hasattr(source, "columns"):  # a frame of pandas
        return _of_pandas(source, name)
    with decoding(name, "", "Give a pandas or polars frame, an Arrow table, or a dict of columns."):
        if isinstance(source, Mapping) or hasattr(source, "__arrow_c_stream__"):
            return pyarrow.table(source)
    raise FovaError(
        f"The data of {name!r} is a {type(source).__name__}, but must be a file, a pandas or polars frame, an "
        "Arrow table or a dict of columns."
    )


def _of_pandas(frame: Any, name: str) -> "pyarrow.Table":
    """The frame, with a named index as columns. A column of mixed objects becomes text, which is judged later."""
    import pyarrow

    if any(level is not None for level in frame.index.names):
        frame = frame.reset_index()
    columns: dict[str, Any] = {}
    for position, column in enumerate(frame.columns):
        if str(column) in columns:
            raise fault(name, str(column), "is the name of several columns. Give each its own.")
        values = frame.iloc[:, position]
        try:
            columns[str(column)] = pyarrow.array(values, from_pandas=True)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, pyarrow.ArrowNotImplementedError):
            texts = [None if gone else str(value) for value, gone in zip(values, values.isna())]
            columns[str(column)] = pyarrow.array(texts, pyarrow.string())
    return pyarrow.table(columns)


def _plain(column: "pyarrow.ChunkedArray") -> "pyarrow.ChunkedArray":
    """The column in one of the types that the rest of this folder knows."""
    import pyarrow
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind):
        return column.cast(kind.value_type) if not is_text(kind.value_type) else column
    if types.is_decimal(kind):
        return column.cast(pyarrow.float64())
    if types.is_string_view(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        return column.cast(pyarrow.string())
    return column


def is_text(kind: "pyarrow.DataType") -> bool:
    from pyarrow import types

    if types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))
