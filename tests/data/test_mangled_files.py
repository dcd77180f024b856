"""Good files with bytes changed, lost or cut off: loading them works or gives one FovaError, never a traceback."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hand_made import columns, write_hdf5, write_minari, write_npz, write_parquet
from hypothesis import given, settings
from hypothesis import strategies as st

from fova.data.sources import load
from fova.errors import FovaError

# Where a damage lies, as a share of the file, and what happens there: another byte, a lost byte, the end.
DAMAGES = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.one_of(st.integers(0, 255), st.just("lost"), st.just("cut")),
    ),
    min_size=1,
    max_size=8,
)
quick = settings(max_examples=50, deadline=None, derandomize=True, database=None)


def mangled(data: bytes, damages) -> bytes:
    result = bytearray(data)
    for share, what in damages:
        place = int(share * len(result))
        if what == "cut":
            del result[place:]
        elif what == "lost":
            del result[place : place + 1]
        elif result:
            result[place] = what
    return bytes(result)


def load_or_complain(name: Path) -> None:
    complaint = ""
    try:
        load(name)
    except FovaError as error:
        complaint = str(error)
    assert not complaint or name.name in complaint


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("mangled")


@pytest.mark.parametrize("ending", ["npz", "hdf5", "parquet"])
def test_mangled_files(ending, folder):
    file = folder / f"mangled.{ending}"
    good = {"npz": write_npz, "hdf5": write_hdf5, "parquet": write_parquet}[ending](file).read_bytes()

    @quick
    @given(DAMAGES)
    def never_a_traceback(damages):
        file.write_bytes(mangled(good, damages))
        load_or_complain(file)

    never_a_traceback()


@quick
@given(DAMAGES, st.sampled_from(sorted(columns())))
def test_mangled_array_in_an_archive_whose_checksums_are_right(folder, damages, name):
    file = folder / "rezipped.npz"
    with zipfile.ZipFile(file, "w") as archive:
        for each, values in columns().items():
            stream = io.BytesIO()
            np.save(stream, values)
            content = stream.getvalue()
            archive.writestr(f"{each}.npy", mangled(content, damages) if each == name else content)
    load_or_complain(file)


@pytest.mark.parametrize("member", ["main_data.hdf5", "metadata.json"])
def test_mangled_minari_datasets(member):
    dataset = write_minari("mangled/set-v0")
    file = dataset / "data" / member
    good = file.read_bytes()

    @quick
    @given(DAMAGES)
    def never_a_traceback(damages):
        file.write_bytes(mangled(good, damages))
        load_or_complain(dataset)

    never_a_traceback()


@quick
@given(
    st.dictionaries(
        st.sampled_from([*columns(), "episode", "step", "action_low", "action_high"]),
        st.tuples(
            st.sampled_from(["f8", "f2", "i8", "u1", "?", "c8", "U3", "M8[s]", "O", "S2"]),
            st.lists(st.integers(0, 8), max_size=3),
            st.sampled_from([0, 1, 0.5, -1e30]),
        ),
        max_size=4,
    )
)
def test_arrays_of_any_kind_and_shape(folder, changes):
    arrays = columns()
    for name, (dtype, shape, value) in changes.items():
        with np.errstate(invalid="ignore", over="ignore"):
            arrays[name] = np.full(shape, value).astype(dtype)
    file = folder / "odd.npz"
    np.savez(file, **arrays)
    load_or_complain(file)
