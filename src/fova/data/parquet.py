"""Parquet files with named columns, one row per step. Needs pyarrow: pip install 'fova[tables]'.

    observation_0, observation_1, ... or one list column `observation`; likewise action and next_observation
    reward   terminal (or terminated)   optional: truncated (or timeout), episode, step
Numbered columns count from 0, without gaps or leading zeros.
Action bounds may be declared in the file's metadata: `action_low` and `action_high`, as JSON lists of numbers. The
names of discrete actions may be, too: `action_names`, a JSON list of texts.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fova.data.fields import counted, decoding, fault, refuse_bombs, refuse_unclear_labels
from fova.data.memory import parquet_size, refuse_too_large
from fova.data.paths import refuse_special
from fova.data.rows import SPELLINGS, Table, spelled, table, unused
from fova.errors import FovaError

if TYPE_CHECKING:
    import pyarrow

REMEDY = "It is damaged or not a Parquet file. Fetch or write it again."
NUMBERED = re.compile(r"(observations?|actions?|next_observations?)_(0|[1-9][0-9]{0,5})")
ALMOST_NUMBERED = re.compile(r"(observations?|actions?|next_observations?)_[+-]?\d+")  # 00, or digits not 0 to 9


def read_table(file: Path) -> Table:
    """The steps in one Parquet file."""
    parquet = _pyarrow_parquet()
    refuse_special(file)
    with decoding(file, "", REMEDY):
        store = parquet.ParquetFile(file)
    with store:
        with decoding(file, "", REMEDY):
            schema, summary = store.schema_arrow, store.metadata
            declared_bytes = sum(summary.row_group(i).total_byte_size for i in range(summary.num_row_groups))
        refuse_bombs(file, "", declared_bytes, file.stat().st_size)
        groups = _vectors(schema.names, file)
        names = [name for name in schema.names if not NUMBERED.fullmatch(name)]
        declared = _declared(schema.metadata or {}, file)
        found = spelled([*names, *groups, *declared], file)
        wanted = [c for field, name in found.items() if field not in declared for c in groups.get(name, [name])]
        for repeated in (name for name in wanted if schema.names.count(name) > 1):
            raise fault(file, repeated, "is the name of several columns. Give each its own.")
        for name in wanted:
            if name != found.get("episodes"):
                _refuse_all_but_numbers(schema.field(name).type, file, name)
        refuse_too_large(file, *parquet_size(summary, wanted))
        content = _content(file, summary, wanted, found.get("episodes"))
    columns: dict[str, Any] = dict(declared)
    for field, name in found.items():
        if name in groups:
            columns[field] = np.stack([_numbers(content.column(part), file, part) for part in groups[name]], axis=1)
        elif field not in declared:
            columns[field] = _column(content.column(name), field, file, name)
    return table(columns, found, file).noting(unused(names, found))


def has_layout(names: Sequence[str]) -> bool:
    """Whether columns of these names are meant as fova's own layout."""
    stems = {match[1] for name in names if (match := ALMOST_NUMBERED.fullmatch(name))}
    there = {*names, *stems}
    observed, acted, paid = (bool(there & set(SPELLINGS[name])) for name in ("observations", "actions", "rewards"))
    return observed and (acted or paid)


def _content(file: Path, summary: Any, wanted: Sequence[str], episodes: str | None) -> "pyarrow.Table":
    """The wanted columns. Each distinct episode name is read once, even if many rows have it."""
    import pyarrow

    parquet = _pyarrow_parquet()
    with decoding(file, "", REMEDY):
        kind = summary.schema.to_arrow_schema().field(episodes).type if episodes else None
        is_text = kind is not None and (pyarrow.types.is_string(kind) or pyarrow.types.is_binary(kind))
        with parquet.ParquetFile(file, metadata=summary, read_dictionary=[episodes] if is_text else None) as store:
            return store.read(columns=list(wanted))


def _pyarrow_parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise FovaError("Reading Parquet files needs pyarrow. Install it: pip install 'fova[tables]'") from error
    return pyarrow.parquet


def _vectors(names: Sequence[str], file: Path) -> dict[str, list[str]]:
    """Numbered columns, grouped: {"observation": ["observation_0", "observation_1", ...]}."""
    numbers: dict[str, set[int]] = {}
    for name in names:
        match = NUMBERED.fullmatch(name)
        if match:
            numbers.setdefault(match[1], set()).add(int(match[2]))
        elif almost := ALMOST_NUMBERED.fullmatch(name):
            stem = almost[1]
            problem = "is not numbered as columns must be: from 0 on, with the digits 0 to 9 and no leading zeros"
            raise fault(file, name, f"{problem}. Rename the columns {stem}_0, {stem}_1 and so on.")
    for stem, those in numbers.items():
        missing = sorted(set(range(len(those))) - those)
        if missing:
            raise fault(
                file, f"{stem}_{missing[0]}", f"is missing among {len(those)} columns {stem}_N. Number from 0."
            )
        if stem in names:
            raise fault(file, stem, f"is there beside {stem}_0. Keep the list column or the numbered ones.")
    return {stem: [f"{stem}_{number}" for number in range(len(those))] for stem, those in numbers.items()}


def _declared(metadata: dict[bytes, bytes], file: Path) -> dict[str, list[Any]]:
    """The bounds or the names of the actions in the file's metadata."""
    declared = {}
    for field in ("action_low", "action_high", "action_names"):
        if field.encode() in metadata:
            what = "texts" if field == "action_names" else "numbers"
            with decoding(file, field, f"Write it as a JSON list of {what}."):
                declared[field] = json.loads(metadata[field.encode()])
    return declared


def _column(column: "pyarrow.ChunkedArray", field: str, file: Path, name: str) -> NDArray[Any]:
    """One column as an array; a list column as a matrix."""

    if field == "episodes":
        return _episodes(column, file, name)
    return _lists(column, file, name) if _is_list(column.type) else _numbers(column, file, name)


def _episodes(column: "pyarrow.ChunkedArray", file: Path, name: str) -> NDArray[Any]:
    """Episode names or numbers of any type, as numbers."""
    import pyarrow

    if pyarrow.types.is_nested(column.type):
        raise fault(file, name, f"holds {column.type}, but one name or number per row is needed.")
    _refuse_nulls(column, file, name)
    with decoding(file, name, REMEDY):
        encoded = column.dictionary_encode().unify_dictionaries().combine_chunks()
        names, codes = encoded.dictionary.to_numpy(zero_copy_only=False), encoded.indices.to_numpy()
    refuse_unclear_labels(names, codes, file, name)
    return codes


def _is_list(kind: "pyarrow.DataType") -> bool:
    from pyarrow import types

    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


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
    """The values as an array. Each row of the file has `per_row` of them."""
    import pyarrow

    _refuse_nulls(column, file, name, per_row)
    with decoding(file, name, REMEDY):
        if pyarrow.types.is_decimal(column.type):
            column = column.cast(pyarrow.float64())
        return column.to_numpy()


def _refuse_all_but_numbers(kind: "pyarrow.DataType", file: Path, name: str) -> None:
    """Refuse a column that is not numeric. Its type is checked before it is read."""
    from pyarrow import types

    each = kind.value_type if _is_list(kind) else kind
    if not (types.is_floating(each) or types.is_integer(each) or types.is_boolean(each) or types.is_decimal(each)):
        raise fault(file, name, f"holds {kind}, not numbers. Store it as numbers.")


def _refuse_nulls(column: "pyarrow.ChunkedArray", file: Path, name: str, per_row: int = 1) -> None:
    if column.null_count:
        with decoding(file, name, REMEDY):
            row = int(np.flatnonzero(column.is_null().to_numpy())[0]) // per_row
        raise fault(
            file,
            name,
            f"row {row} is empty ({counted(column.null_count, 'such value')}). Fill it in or remove the episode.",
        )
