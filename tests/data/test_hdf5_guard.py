"""What an HDF5 array declares, compared with what its file can hold."""

import h5py
import numpy as np
import pytest

from fova.data.fields import LARGEST_UNPACKING, SMALL
from fova.data.hdf5_guard import refuse_absurd_size, refuse_links_elsewhere, unwritten
from fova.errors import FovaError


@pytest.fixture
def store(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as opened:
        yield opened


@pytest.fixture
def checked(store, tmp_path):
    def check(dataset):
        store.flush()
        refuse_absurd_size(dataset, tmp_path / "a.hdf5", "x")

    return check


def test_chunks_that_were_never_written_are_counted(store):
    # 5 x 7 in chunks of 2 x 3: 3 x 3 chunks, the last ones of each row and column in part.
    pieces = store.create_dataset("pieces", (5, 7), "f4", chunks=(2, 3))
    assert unwritten(pieces) == 9
    pieces[0, 0] = 1.0
    assert unwritten(pieces) == 8
    pieces[:] = 1.0
    assert unwritten(pieces) == 0


def test_an_array_in_one_piece_is_written_or_not(store):
    assert unwritten(store.create_dataset("written", data=np.zeros(3))) == 0
    assert unwritten(store.create_dataset("never", (3,), "f4")) == 1
    assert unwritten(store.create_dataset("empty", (0,), "f4")) == 0


def test_arrays_that_are_stored_in_the_file_pass(store, checked, tmp_path):
    checked(store.create_dataset("whole", data=np.zeros((20, 3))))
    checked(store.create_dataset("packed", data=np.zeros((20, 3)), chunks=(5, 3), compression="gzip"))
    store["here"] = h5py.SoftLink("/whole")
    store.create_group("more")["again"] = store["whole"]
    assert refuse_links_elsewhere(store, tmp_path / "a.hdf5") is None


def test_links_into_other_files_are_refused(store, tmp_path):
    store.create_group("deep")["there"] = h5py.ExternalLink("b.hdf5", "/rewards")
    with pytest.raises(FovaError, match="deep/there: is a link into another file"):
        refuse_links_elsewhere(store, tmp_path / "a.hdf5")


def test_what_is_no_array_or_is_stored_elsewhere_is_refused(store, checked, tmp_path):
    with pytest.raises(FovaError, match="x: is not an array"):
        checked(store.create_dataset("null", data=h5py.Empty("f4")))
    layout = h5py.VirtualLayout((3,), "f4")
    with pytest.raises(FovaError, match="x: is a virtual dataset, so its numbers are elsewhere"):
        checked(store.create_virtual_dataset("virtual", layout))
    with pytest.raises(FovaError, match="x: is stored outside the file, so its numbers are elsewhere"):
        checked(store.create_dataset("outside", (3,), "f4", external=[(str(tmp_path / "raw"), 0, 12)]))


def test_more_bytes_than_the_strongest_compression_unpacks_are_refused(store, checked):
    most = LARGEST_UNPACKING * SMALL
    checked(store.create_dataset("most", (most,), "u1"))
    with pytest.raises(FovaError, match=f"declares more data than can be there \\({most + 1:,} bytes"):
        checked(store.create_dataset("more", (most + 1,), "u1"))


def test_more_chunks_than_the_file_has_addresses_for_are_refused(store, checked, tmp_path):
    checked(store.create_dataset("few", (1000,), "u1", chunks=(1,)))  # a thousand are taken of any file
    store.flush()
    assert (tmp_path / "a.hdf5").stat().st_size // 8 < 1001
    with pytest.raises(FovaError, match="x: declares 1,001 pieces, more than can be there"):
        checked(store.create_dataset("many", (1001,), "u1", chunks=(1,)))
    store.create_dataset("ballast", data=np.zeros(12_000, "u1"))  # eight bytes for each of 1,500 addresses
    store.flush()
    places = (tmp_path / "a.hdf5").stat().st_size // 8
    checked(store.create_dataset("fits", (places,), "u1", chunks=(1,)))
