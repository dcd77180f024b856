"""Parquet files with named columns, one row per step. Needs pyarrow: pip install 'fova[parquet]'.

    observation_0, observation_1, ... or one list column `observation`; likewise action and next_observation
    reward   terminal (or terminated)   optional: truncated (or timeout), episode, step
Action bounds may be declared in the file's metadata: `action_low` and `action_high`, as JSON lists of numbers.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fova.data.fields import counted, decoding, fault, refuse_bombs
from fova.data.rows import Table, spelled, table, unused
from fova.errors import FovaError

if TYPE_CHECKING:
    import pyarrow

REMEDY = "It is damaged or no Parquet file: fetch or write it again."
NUMBERED = re.compile(r"(observations?|actions?|next_observations?)_(\d{1,6})")


def read_table(file: Path) -> Table:
    """The steps in one Parquet file."""
    parquet = _pyarrow_parquet()
    with decoding(file, "", REMEDY):
        store = parquet.ParquetFile(file)
    with store:
        with decoding(file, "", REMEDY):
            schema, summary = store.schema_arrow, store.metadata
            declared_bytes = sum(summary.row_group(i).total_byte_size for i in range(summary.num_row_groups))
        refuse_bombs(file, "", declared_bytes, file.stat().st_size)
        groups = _vectors(schema.names, file)
        names = [name for name in schema.names if not NUMBERED.fullmatch(name)]
        declared = _declared_bounds(schema.metadata or {}, file)
        found = spelled([*names, *groups, *declared], file)
        wanted = [c for field, name in found.items() if field not in declared for c in groups.get(name, [name])]
        for repeated in (name for name in wanted if schema.names.count(name) > 1):
            raise fault(file, repeated, "is the name of several columns. Give each its own.")
        with decoding(file, "", REMEDY):
            content = store.read(columns=wanted)
    columns: dict[str, Any] = dict(declared)
    for field, name in found.items():
        if name in groups:
            columns[field] = np.stack([_numbers(content.column(part), file, part) for part in groups[name]], axis=1)
        elif field not in declared:
            columns[field] = _column(content.column(name), field, file, name)
    return table(columns, found, file).noting(unused(names, found))


def _pyarrow_parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise FovaError("Reading Parquet files needs pyarrow. Install it: pip install 'fova[parquet]'") from error
    return pyarrow.parquet


def _vectors(names: Sequence[str], file: Path) -> dict[str, list[str]]:
    """Columns that belong together: {"observation": ["observation_0", "observation_1", ...]}."""
    numbers: dict[str, set[int]] = {}
    for name in names:
        match = NUMBERED.fullmatch(name)
        if match:
            numbers.setdefault(match[1], set()).add(int(match[2]))
    for stem, those in numbers.items():
        missing = sorted(set(range(len(those))) - those)
        if missing:
            raise fault(
                file, f"{stem}_{missing[0]}", f"is missing among {len(those)} columns {stem}_N. Number from 0."
            )
        if stem in names:
            raise fault(file, stem, f"is there beside {stem}_0. Keep the list column or the numbered ones.")
    return {stem: [f"{stem}_{number}" for number in range(len(those))] for stem, those in numbers.items()}


def _declared_bounds(metadata: dict[bytes, bytes], file: Path) -> dict[str, list[float]]:
    declared = {}
    for field in ("action_low", "action_high"):
        if field.encode() in metadata:
            with decoding(file, field, "Write it as a JSON list of numbers."):
                declared[field] = json.loads(metadata[field.encode()])
    return declared


def _column(column: "pyarrow.ChunkedArray", field: str, file: Path, name: str) -> NDArray[Any]:
    """One column as an array; a column of lists as a matrix."""
    import pyarrow

    if field == "episodes":
        _refuse_nulls(column, file, name)
        with decoding(file, name, REMEDY):
            return column.dictionary_encode().unify_dictionaries().combine_chunks().indices.to_numpy()
    kind = column.type
    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind) or pyarrow.types.is_fixed_size_list(kind):
        return _lists(column, file, name)
    return _numbers(column, file, name)


def _lists(column: "pyarrow.ChunkedArray", file: Path, name: str) -> NDArray[Any]:
    import pyarrow.compute

    _refuse_nulls(column, file, name)
    with decoding(file, name, REMEDY):
        lengths = pyarrow.compute.list_value_length(column).to_numpy()
        numbers = pyarrow.compute.list_flatten(column)
    other = np.flatnonzero(lengths != lengths[:1])
    if len(other):
        given = f"row {other[0]} holds {lengths[other[0]]} numbers, but row 0 holds {lengths[0]}"
        raise fault(file, name, f"{given}. Every row needs the same number.")
    width = lengths[0] if len(lengths) else 0
    return _numbers(numbers, file, name, width).reshape(len(lengths), width)


def _numbers(column: "pyarrow.ChunkedArray", file: Path, name: str, per_row: int = 1) -> NDArray[Any]:
    """Values as an array; `per_row` of them belong to each row of the file."""
    import pyarrow

    types = pyarrow.types
    kind = column.type
    if not (types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_decimal(kind)):
        raise fault(file, name, f"holds {kind}, not numbers. Store it as numbers.")
    _refuse_nulls(column, file, name, per_row)
    with decoding(file, name, REMEDY):
        if types.is_decimal(kind):
            column = column.cast(pyarrow.float64())
        return column.to_numpy()


def _refuse_nulls(column: "pyarrow.ChunkedArray", file: Path, name: str, per_row: int = 1) -> None:
    if column.null_count:
        with decoding(file, name, REMEDY):
            row = int(np.flatnonzero(column.is_null().to_numpy())[0]) // per_row
        raise fault(
            file,
            name,
            f"row {row} is empty ({counted(column.null_count, 'such value')}). Fill it in or remove the episode.",
        )
