"""Files that declare more than fits into memory are refused from their headers alone."""

import zipfile
import zlib

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hand_made import parquet_columns, write_hdf5, write_minari, write_npz, write_parquet

from fova.data import memory, sources
from fova.data.sources import load
from fova.errors import FovaError

NAMES = ("observation_0", "action_0", "reward", "terminal")


@pytest.fixture
def free(monkeypatch):
    """Says how much memory there is."""
    return lambda size: monkeypatch.setattr(memory, "available", lambda: size)


def zeros_in_parquet(file, groups, rows=2_000_000):
    """Four columns of zeros: tiny on disk, because Parquet stores a repeated value once."""
    schema = pyarrow.schema([(name, pyarrow.float64()) for name in NAMES])
    zeros = pyarrow.table([pyarrow.array(np.zeros(rows))] * 4, schema=schema)
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        for _ in range(groups):
            writer.write_table(zeros, row_group_size=rows)
    return file


def zeros_in_hdf5(file, pieces, piece=10_000_000):
    with h5py.File(write_hdf5(file, rewards=None), "a") as store:
        rewards = store.create_dataset("rewards", (pieces * piece,), "u1", chunks=(piece,), compression="gzip")
        packed = zlib.compress(bytes(piece), 1)
        for number in range(pieces):
            rewards.id.write_direct_chunk((number * piece,), packed)
    return file


def zeros_in_npz(file, megabytes):
    write_npz(file, rewards=None)
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({megabytes * 10**6},), }}".encode()
    header = header.ljust(117) + b"\n"
    archive = zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED, compresslevel=1)
    with archive, archive.open("rewards.npy", "w") as stream:
        stream.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
        for _ in range(megabytes):
            stream.write(bytes(10**6))
    return file


@pytest.mark.parametrize(
    ("write", "needed"),
    [
        # 8 bytes as stored and 12 to work with for each of 32 million values, and as much again.
        (lambda tmp: zeros_in_parquet(tmp / "zeros.parquet", groups=4), "1.3 GB"),
        # 1 byte as stored and 12 to work with for each of 100 million values, and as much again.
        (lambda tmp: zeros_in_hdf5(tmp / "zeros.hdf5", pieces=10), "2.6 GB"),
        (lambda tmp: zeros_in_npz(tmp / "zeros.npz", megabytes=100), "2.6 GB"),
    ],
)
def test_a_small_file_that_holds_too_much_is_refused(write, needed, tmp_path, free):
    file = write(tmp_path)
    assert file.stat().st_size < 2_000_000
    free(1_200_000_000)
    with pytest.raises(
        FovaError, match=rf"needs about {needed} of memory, but 1\.2 GB are available\. Store fewer"
    ):
        load(file)


@pytest.mark.parametrize("data_format", ["hdf5", "arrow", "parquet"])
def test_a_minari_dataset_that_holds_too_much_is_refused(data_format, free):
    folder = write_minari("large/set-v0", data_format)
    free(100)
    with pytest.raises(FovaError, match=r"set-v0: needs about .* of memory"):
        load(folder)


@pytest.mark.parametrize("write", [write_npz, write_hdf5, write_parquet])
def test_the_limit_is_what_is_available(write, tmp_path, free):
    name = {write_npz: "a.npz", write_hdf5: "a.hdf5", write_parquet: "a.parquet"}[write]
    file = write(tmp_path / name)
    free(100_000)
    load(file)
    free(None)  # a system that does not say
    load(file)
    free(100)
    with pytest.raises(FovaError, match="of memory"):
        load(file)


def test_columns_that_are_not_read_do_not_count(tmp_path, free):
    columns = {name: pyarrow.array(np.asarray(values)) for name, values in parquet_columns().items()}
    columns["note"] = pyarrow.array(["x" * 1_000_000] * 7)
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    free(100_000)
    assert len(load(tmp_path / "a.parquet").transitions) == 7


def test_the_size_of_parquet_columns_counts_nested_and_dotted_names(tmp_path):
    columns = {
        "on": np.zeros(3, bool), "few": np.zeros(3, np.float32), "a.b": np.zeros(3),
        "pair": pyarrow.array([{"x": 1.0, "y": 2.0}] * 3), "other": np.zeros(3),
    }  # fmt: skip
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet", row_group_size=2)
    summary = pyarrow.parquet.read_metadata(tmp_path / "a.parquet")
    # 3 of 1 byte, 3 of 4, 3 of 8 under a name with a dot, and two nested columns with 3 of 8 each.
    assert memory.parquet_size(summary, ("on", "few", "a.b", "pair")) == (3 + 12 + 24 + 48, 15)
    assert memory.parquet_size(summary, ()) == (0, 0)


def test_a_long_episode_name_is_read_once(tmp_path):
    """A million rows with one name of 20,000 letters are 20 GB if each row gets a copy."""
    rows = 1_000_000
    columns = {name: pyarrow.array(np.arange(rows, dtype=np.float32) % 2) for name in NAMES[:3]}
    columns["terminal"] = pyarrow.array(np.zeros(rows, bool))
    columns["episode"] = pyarrow.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["x" * 20_000])
    file = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), file, store_schema=False)
    assert load(file).transitions.episode_lengths().tolist() == [rows - 1]


def test_memory_that_runs_out_on_the_way_is_an_error_in_words(tmp_path, monkeypatch):
    def full(*_):
        raise MemoryError

    monkeypatch.setattr(sources, "cut", full)
    with pytest.raises(FovaError, match=r"a\.npz: is too large for this machine's memory"):
        load(write_npz(tmp_path / "a.npz"))


# --- What is available -------------------------------------------------------------------------------------


def test_available_memory_is_the_least_of_what_is_free_and_allowed(tmp_path, monkeypatch):
    meminfo, limit = tmp_path / "meminfo", tmp_path / "memory.max"
    meminfo.write_text("MemTotal:  9000 kB\nMemAvailable:    3000 kB\n")
    monkeypatch.setattr(memory, "MEMINFO", meminfo)
    monkeypatch.setattr(memory, "LIMITS", (limit, tmp_path / "not there"))
    assert memory.available() == 3000 * 1024
    limit.write_text("max\n")
    assert memory.available() == 3000 * 1024
    limit.write_text("2000000\n")
    assert memory.available() == 2_000_000
    meminfo.unlink()
    limit.unlink()
    assert memory.available() > 100_000_000  # of the whole machine
    monkeypatch.setattr(memory.os, "sysconf_names", {})
    assert memory.available() is None
