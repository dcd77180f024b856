"""Every way we know in which a file can be broken gives one clear message that names the file and the field."""

import io
import json
import pickle
import warnings
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from gymnasium.spaces import Box, MultiDiscrete
from hand_made import (
    columns,
    parquet_columns,
    write_folder,
    write_hdf5,
    write_minari,
    write_npz,
    write_parquet,
)

from fova.data.sources import load
from fova.errors import FovaError


def npz(**changes):
    return lambda tmp: write_npz(tmp / "broken.npz", **changes)


def hdf5(**changes):
    return lambda tmp: write_hdf5(tmp / "broken.hdf5", **changes)


def parquet(metadata=None, **changes):
    return lambda tmp: write_parquet(tmp / "broken.parquet", metadata, **changes)


def minari(changes=None, **spaces):
    return lambda tmp: write_minari("broken/set-v0", changes=changes, **spaces)


def content(name: str, data: bytes):
    def write(tmp: Path) -> Path:
        (tmp / name).write_bytes(data)
        return tmp / name

    return write


def shortened(write, share: float, member: str = ""):
    """A good file of which only the first part is left."""

    def cut_short(tmp: Path) -> Path:
        whole = write(tmp)
        file = whole / member if member else whole
        data = file.read_bytes()
        file.write_bytes(data[: int(share * len(data))])
        return whole

    return cut_short


def metadata(**changes):
    """A good Minari dataset with other metadata; a change of None takes an entry away."""

    def write(tmp: Path) -> Path:
        folder = write_minari("broken/set-v0")
        file = folder / "data" / "metadata.json"
        entries = json.loads(file.read_text()) | changes
        file.write_text(json.dumps({name: value for name, value in entries.items() if value is not None}))
        return folder

    return write


def written(whole: Path, member: str, data: bytes) -> Path:
    (whole / member).write_bytes(data)
    return whole


def minari_without(member: str):
    def write(tmp: Path) -> Path:
        folder = write_minari("broken/set-v0")
        with h5py.File(folder / "data" / "main_data.hdf5", "a") as store:
            del store[member]
        return folder

    return write


def folder(**change):
    """A good folder of episodes whose second file is replaced."""

    def write(tmp: Path) -> Path:
        whole = write_folder(tmp / "broken")
        with np.load(whole / "episode_1.npz") as arrays:
            good = dict(arrays)
        arrays = {name: values for name, values in (good | change).items() if values is not None}
        np.savez(whole / "episode_1.npz", **arrays)
        return whole

    return write


def empty_folder(tmp: Path) -> Path:
    (tmp / "broken").mkdir()
    return tmp / "broken"


def folder_named(name: str):
    def write(tmp: Path) -> Path:
        (tmp / name).mkdir()
        return tmp / name

    return write


def hdf5_of_absurd_size(tmp: Path) -> Path:
    with h5py.File(write_hdf5(tmp / "broken.hdf5", rewards=None), "a") as store:
        store.create_dataset("rewards", shape=(10**12,), dtype="f4", chunks=(1024,))
    return tmp / "broken.hdf5"


def hdf5_in_absurdly_many_pieces(tmp: Path) -> Path:
    with h5py.File(write_hdf5(tmp / "broken.hdf5", terminals=None), "a") as store:
        store.create_dataset("terminals", shape=(4_000_000,), dtype="u1", chunks=(1,))
    return tmp / "broken.hdf5"


def hdf5_with_a_group(tmp: Path) -> Path:
    with h5py.File(write_hdf5(tmp / "broken.hdf5", actions=None), "a") as store:
        store.create_group("actions")
    return tmp / "broken.hdf5"


def hdf5_with_nothing_in(tmp: Path) -> Path:
    with h5py.File(write_hdf5(tmp / "broken.hdf5", actions=None), "a") as store:
        store["actions"] = h5py.Empty("f4")
    return tmp / "broken.hdf5"


def npz_with_a_lying_header(tmp: Path) -> Path:
    """An array that claims 10^12 rows and holds none."""
    file = write_npz(tmp / "broken.npz", rewards=None)
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(117) + b"\n"
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("rewards.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    return file


def npz_that_is_a_bomb(tmp: Path) -> Path:
    with zipfile.ZipFile(tmp / "broken.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("rewards.npy", bytes(6_000_000))
    return tmp / "broken.npz"


def hdf5_with(member: str, write):
    """A good file of which one array is replaced by what `write` puts there."""

    def make(tmp: Path) -> Path:
        file = write_hdf5(tmp / "broken.hdf5", **{member: None})
        with h5py.File(file, "a") as store:
            write(store)
        return file

    return make


def refer_to_itself(group, name: str, rows: int) -> None:
    """A virtual dataset whose source is the dataset itself; reading it ends the process."""
    layout = h5py.VirtualLayout((rows,), "f4")
    layout[:] = h5py.VirtualSource(".", f"{group.name}/{name}", (rows,))
    group.create_virtual_dataset(name, layout)


def minari_that_refers_to_itself(tmp: Path) -> Path:
    folder = minari_without("episode_0/rewards")(tmp)
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as store:
        refer_to_itself(store["episode_0"], "rewards", 3)
    return folder


def link_elsewhere(store) -> None:
    store["elsewhere"] = h5py.ExternalLink("other.hdf5", "/")
    store["rewards"] = h5py.SoftLink("/elsewhere/rewards")


def lists_of_unequal_length(store) -> None:
    store.create_dataset("action_low", (2,), h5py.vlen_dtype(np.float32))[0] = [1.0]
    store["action_high"] = np.ones(2)


def npz_with(name: str, data: bytes):
    """A good file with a member of that name, or with one more."""

    def make(tmp: Path) -> Path:
        file = write_npz(tmp / "broken.npz")
        with zipfile.ZipFile(file, "a") as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zipfile warns of the second member of one name
            archive.writestr(name, data)
        return file

    return make


def array_bytes(values) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values)
    return stream.getvalue()


def box(low, high) -> str:
    return json.dumps({"type": "Box", "dtype": "float32", "shape": [2], "low": low, "high": high})


def minari_in_two_batches(tmp: Path) -> Path:
    """An episode in two record batches, which Minari takes for two episodes."""
    import pyarrow.ipc

    folder = write_minari("broken/set-v0", "arrow")
    file = folder / "data" / "0" / "part-0.arrow"
    with pyarrow.ipc.open_file(file.read_bytes()) as reader:
        batch = reader.get_batch(0)
    with pyarrow.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch.slice(0, 2))
        writer.write_batch(batch.slice(2))
    return folder


def minari_with_an_empty_episode(tmp: Path) -> Path:
    folder = write_minari("broken/set-v0", "arrow")
    (folder / "data" / "1" / "part-0.arrow").unlink()
    return folder


def two_names_for_one_column(tmp: Path) -> Path:
    import pyarrow.parquet

    names = [*parquet_columns(), "reward"]
    arrays = [pyarrow.array(np.asarray(values)) for values in parquet_columns().values()]
    table = pyarrow.Table.from_arrays([*arrays, arrays[names.index("reward")]], names=names)
    pyarrow.parquet.write_table(table, tmp / "broken.parquet")
    return tmp / "broken.parquet"


def at(name: str, where, value):
    """A field of the good file with one value replaced."""
    values = columns()[name].astype(np.float64)
    values[where] = value
    return {name: values}


def zip_of_text(tmp: Path) -> Path:
    with zipfile.ZipFile(tmp / "broken.npz", "w") as archive:
        archive.writestr("README.txt", "hello")
    return tmp / "broken.npz"


def serialised(space) -> str:
    from minari.serialization import serialize_space

    return serialize_space(space)


ROWS = 7
LOST = float("nan")
WIDE = {f"action_{n}": None for n in range(2)}
BOUNDS = {"action_low": np.array([-1.0, -1.0]), "action_high": np.array([1.0, 1.0])}
PARQUET_BOUNDS = {"action_low": "[-1, -1]", "action_high": "[1, 1]"}

# what is wrong: (how such a file is made, the field that must be named, words the message must hold)
BROKEN = {
    # --- not the file it claims to be
    "empty npz": (content("broken.npz", b""), "", "not an NPZ file"),
    "text named npz": (content("broken.npz", b"observations, actions\n1, 2\n"), "", "not an NPZ file"),
    "pickle named npz": (content("broken.npz", pickle.dumps({"rewards": [1]})), "", "not an NPZ file"),
    "lone npy named npz": (content("broken.npz", b"\x93NUMPY\x01\x00v\x00{'descr'"), "", "not an NPZ file"),
    "truncated npz": (shortened(npz(), 0.6), "", "not an NPZ file"),
    "zip of text": (zip_of_text, "rewards", "missing"),
    "empty hdf5": (content("broken.hdf5", b""), "", "cannot be read"),
    "text named hdf5": (content("broken.hdf5", b"hello " * 500), "", "cannot be read"),
    "truncated hdf5": (shortened(hdf5(), 0.5), "", "cannot be read"),
    "hdf5 of which the signature is left": (content("broken.h5", b"\x89HDF\r\n\x1a\n"), "", "cannot be read"),
    "empty parquet": (content("broken.parquet", b""), "", "cannot be read"),
    "text named parquet": (content("broken.parquet", b"PAR1 hello PAR1"), "", "cannot be read"),
    "truncated parquet": (shortened(parquet(), 0.7), "", "cannot be read"),
    "unknown ending": (content("broken.xls", b"a,b\n1,2\n"), "", "'.xls'"),
    "no ending": (content("broken", b"a,b\n1,2\n"), "", "has no ending"),
    "folder named npz": (folder_named("broken.npz"), "", "holds no data"),
    "folder named hdf5": (folder_named("broken.hdf5"), "", "holds no data"),
    "empty folder": (empty_folder, "", "holds no data"),
    # --- fields that are missing or named twice
    "no observations": (npz(observations=None), "observations", "missing"),
    "no actions": (hdf5(actions=None), "actions", "missing"),
    "no rewards": (npz(rewards=None), "rewards", "missing"),
    "no terminals": (hdf5(terminals=None), "terminals", "all 0 if it never ends"),
    "dones for terminals": (npz(terminals=None, dones=np.zeros(ROWS)), "terminals", "'dones' mixes"),
    "two names for time-outs": (npz(truncations=np.zeros(ROWS)), "truncations", "Keep one"),
    "no reward column": (parquet(reward=None), "rewards", "missing"),
    "no action columns": (parquet(**WIDE), "actions", "missing"),
    "a gap in the numbered columns": (parquet(action_0=None), "action_0", "missing among 1"),
    "numbered columns and a list": (parquet(action=[[0.0, 0.0]] * ROWS), "action", "beside action_0"),
    "one name for two columns": (two_names_for_one_column, "reward", "several columns"),
    "one bound without the other": (npz(action_low=np.zeros(2)), "action_high", "missing"),
    # --- things that are not numbers
    "object array": (npz(actions=np.array([[1, None]] * ROWS, object)), "actions", "never read"),
    "text for numbers": (npz(rewards=np.array(["one"] * ROWS)), "rewards", "not numbers"),
    "complex rewards": (hdf5(rewards=np.zeros(ROWS, complex)), "rewards", "not numbers"),
    "text in hdf5": (hdf5(actions=np.array([[b"a", b"b"]] * ROWS)), "actions", "not numbers"),
    "compound hdf5": (hdf5(rewards=np.zeros(ROWS, [("x", "f4")])), "rewards", "not numbers"),
    "a group for an array": (hdf5_with_a_group, "actions", "not an array"),
    "hdf5 without content": (hdf5_with_nothing_in, "actions", "not an array"),
    "text column": (parquet(reward=["one"] * ROWS), "reward", "holds string"),
    "time for a step": (parquet(step=np.arange(ROWS).astype("M8[s]")), "step", "not numbers"),
    "null reward": (parquet(reward=[1.0, None] + [0.0] * 5), "reward", "row 1 is empty"),
    "null in a list": (
        parquet(**WIDE, action=[[0.0, 1.0], [0.0, None]] + [[0.0, 1.0]] * 5), "action", "row 1 is empty"
    ),
    "null list": (parquet(**WIDE, action=[None] + [[0.0, 0.0]] * 6), "action", "row 0 is empty"),
    "null episode": (parquet(episode=["a", None] + ["b"] * 5), "episode", "row 1 is empty"),
    "episode NaN": (npz(episode=np.array([0, np.nan, 1, 1, 1, 1, 1])), "episode", "row 1 is NaN"),
    "episode without meaning": (npz(episode=np.zeros((ROWS, 2))), "episode", "one name or number"),
    "episode NaN, parquet": (
        parquet(episode=[0, 0, 0, LOST, LOST, 1, 2]), "episode", "row 3 is NaN (2 such rows)"
    ),
    "null number for an episode": (
        parquet(episode=[0, 0, 0, None, None, 1, 2]), "episode", "row 3 is empty (2 such values)"
    ),
    "infinite episode": (parquet(episode=[0.0] * 5 + [np.inf] * 2), "episode", "row 5 is infinite (2 such rows)"),
    "negative episode": (parquet(episode=[0, 0, 0, -1, -1, 1, 2]), "episode", "row 3 holds -1 (2 such rows)"),
    "negative episode, npz": (npz(episode=np.array([0, 0, 0, 1, 1, -1, -1])), "episode", "row 5 holds -1"),
    "episode yes or no": (parquet(episode=[True] * 3 + [False] * 4), "episode", "true and false"),
    "episode yes or no, hdf5": (hdf5(episode=np.arange(ROWS) < 3), "episode", "true and false"),
    "episode of one half": (npz(episode=np.arange(ROWS) + 0.5), "episode", "row 0 holds 0.5 (7 such rows)"),
    "episode without a name": (parquet(episode=["a"] * 3 + [" "] * 4), "episode", "row 3 holds ' ' (4 such rows)"),
    "episode NaN as text": (parquet(episode=["a"] * 3 + ["nan"] * 4), "episode", "row 3 holds 'nan'"),
    "episode None as text": (npz(episode=np.array(["a"] * 3 + ["None"] * 4)), "episode", "row 3 holds 'None'"),
    "episode too large to be exact": (
        npz(episode=np.array([2.0**53] * 3 + [2.0**53 + 1] * 4)), "episode", "float64 does not tell"
    ),
    "episode too large for float32": (
        npz(episode=np.full(ROWS, 2.0**24, np.float32)), "episode", "float32 does not tell"
    ),
    "episode of several numbers": (parquet(episode=[[1]] * ROWS), "episode", "holds list"),
    "negative step": (parquet(step=np.arange(ROWS) - 2), "step", "row 0 holds -2, but counting starts at 0 (2"),
    "step yes or no": (npz(step=np.arange(ROWS) > 0), "step", "true and false"),
    "step NaN": (parquet(step=[0, 1, LOST, 0, 1, 0, 0]), "step", "row 2 holds nan, which is not a whole number"),
    "null step": (parquet(step=[0, 1, None, 0, 1, 0, 0]), "step", "row 2 is empty (1 such value)"),
    "step in words": (parquet(step=list("0120100")), "step", "holds string"),
    "a step twice, no episodes": (
        npz(step=np.array([0, 1, 1, 2, 0, 0, 1])), "step", "step 1 occurs twice in a row (row 2)"
    ),
    # --- columns of Parquet
    "numbered with a leading zero": (parquet(observation_00=np.zeros(ROWS)), "observation_00", "no leading zeros"),
    "numbered in Arabic": (parquet(observation_٣=np.zeros(ROWS)), "observation_٣", "with the digits 0 to 9"),
    "numbered below zero": (parquet(**{"action_-1": np.zeros(ROWS)}), "action_-1", "from 0 on"),
    "lists of lists": (parquet(**WIDE, action=[[[0.0]]] * ROWS), "action", "not numbers"),
    "records for numbers": (parquet(reward=[{"value": 1.0}] * ROWS), "reward", "holds struct"),
    # --- members of NPZ
    "an array twice": (npz_with("rewards.npy", array_bytes(np.ones(ROWS))), "rewards", "is there twice"),
    "an array twice, once without ending": (npz_with("rewards", array_bytes(np.ones(7))), "rewards", "there twice"),
    "header and content disagree": (npz_with_a_lying_header, "rewards", "declares 4,000,000,000,000 bytes, but"),
    "two archives in one file": (
        lambda tmp: written(tmp, "broken.npz", 2 * npz()(tmp).read_bytes()) / "broken.npz", "", "before its arrays"
    ),
    # --- arrays of HDF5 that are elsewhere, or nowhere
    "an array that refers to itself": (
        hdf5_with("rewards", lambda store: refer_to_itself(store["/"], "rewards", ROWS)), "rewards", "virtual"
    ),
    "an array that refers to itself, minari": (
        minari_that_refers_to_itself, "episode_0/rewards", "is a virtual dataset"
    ),
    "an array stored in another file": (
        hdf5_with("rewards", lambda store: store.create_dataset(
            "rewards", (ROWS,), "f4", external=[("/dev/zero", 0, 4 * ROWS)])), "rewards", "stored outside the file"
    ),
    "a link into another file": (
        hdf5_with("rewards", lambda store: store.__setitem__("rewards", h5py.ExternalLink("o.hdf5", "/rewards"))),
        "rewards", "link into another file",
    ),
    "a way into another file": (hdf5_with("rewards", link_elsewhere), "elsewhere", "link into another file"),
    "a link to itself": (
        hdf5_with("rewards", lambda store: store.__setitem__("rewards", h5py.SoftLink("/rewards"))),
        "rewards", "cannot be read",
    ),
    "an array that was never written": (
        hdf5_with("rewards", lambda store: store.create_dataset("rewards", (ROWS,), "f4", chunks=(2,))),
        "rewards", "never written",
    ),
    "references for numbers": (
        hdf5_with("rewards", lambda store: store.create_dataset("rewards", (ROWS,), h5py.ref_dtype)),
        "rewards", "not numbers",
    ),
    # --- values without meaning
    "NaN reward": (npz(**at("rewards", 3, np.nan)), "rewards", "row 3 is NaN"),
    "infinite observation": (hdf5(**at("observations", (5, 1), np.inf)), "observations", "row 5 is NaN or inf"),
    "NaN next observation": (npz(**at("next_observations", (2, 0), np.nan)), "next_observations", "row 2"),
    "NaN action column": (parquet(action_1=np.full(ROWS, np.nan)), "action", "row 0 is NaN"),
    "too large for float32": (npz(**at("rewards", 6, 1e300)), "rewards", "row 6 is too large"),
    "too large to subtract a mean": (npz(**at("observations", (4, 0), 3e38)), "observations", "row 4 is too large"),
    "terminal of one half": (npz(**at("terminals", 2, 0.5)), "terminals", "row 2 holds 0.5"),
    "NaN time-out": (hdf5(**at("timeouts", 4, np.nan)), "timeouts", "row 4 holds nan"),
    "step of one half": (npz(step=np.arange(ROWS) + 0.5), "step", "row 0 holds 0.5"),
    "a step twice": (parquet(episode=[0] * ROWS, step=[0, 1, 1, 2, 3, 4, 5]), "step", "step 1 occurs twice"),
    "action beyond its bound": (npz(**at("actions", (3, 0), 1.5), **BOUNDS), "actions", "row 3 holds 1.5"),
    "action beyond its bound, hdf5": (hdf5(**at("actions", (0, 1), -2), **BOUNDS), "actions", "row 0 holds -2"),
    "action beyond its bound, parquet": (
        parquet(PARQUET_BOUNDS, action_0=np.full(ROWS, 1.5)), "action", "holds 1.5, outside the bounds [-1, 1]"
    ),
    "action beyond its bound, minari": (
        minari({"actions": np.full((3, 2), 1.5, np.float32)}), "episode 0: actions", "row 0 holds 1.5"
    ),
    "bounds the wrong way round": (npz(action_low=np.ones(2), action_high=-np.ones(2)), "action_high", "exceed"),
    "infinite bound": (npz(action_low=np.full(2, -np.inf), action_high=np.ones(2)), "action_low", "infinite"),
    "bounds of another size": (npz(action_low=np.zeros(3), action_high=np.ones(3)), "action_low", "2 columns"),
    "bounds that are no JSON": (parquet({"action_low": "low", "action_high": "[1]"}), "action_low", "JSON"),
    "ragged bounds": (parquet({"action_low": "[[-1], [0, 0]]", "action_high": "[1]"}), "action_low", "unequal"),
    "ragged bounds, npz": (
        npz(action_low=np.array([[-1], [-1, -1]], object), action_high=np.ones(2)), "action_low", "never read"
    ),
    "ragged bounds, hdf5": (hdf5_with("zero", lists_of_unequal_length), "action_low", "not numbers"),
    "ragged bounds, minari": (metadata(action_space=box([[-1], [-1, -1]], [1, 1])), "action_space", "cannot be"),
    "bounds beyond float32": (
        npz(action_low=np.full(2, -1e300), action_high=np.full(2, 1e300)), "action_low", "infinite in float32"
    ),
    "bounds that are no numbers": (parquet({"action_low": "{}", "action_high": "[1]"}), "action_low", "numbers"),
    # --- shapes
    "flat observations": (npz(observations=np.zeros(ROWS)), "observations", "(rows, 1)"),
    "images": (hdf5(observations=np.zeros((ROWS, 8, 8, 3))), "observations", "Flatten"),
    "scalar reward": (npz(rewards=np.array(1.0)), "rewards", "(rows,)"),
    "rewards of two columns": (npz(rewards=np.zeros((ROWS, 2))), "rewards", "(rows,)"),
    "no columns": (npz(actions=np.zeros((ROWS, 0))), "actions", "no columns"),
    "actions too short": (hdf5(actions=np.zeros((4, 2))), "actions", "has 4 rows, but rewards has 7"),
    "terminals too long": (npz(terminals=np.zeros(9)), "terminals", "has 9 rows"),
    "time-outs too short": (npz(timeouts=np.zeros(1)), "timeouts", "has 1 row,"),
    "next observations too wide": (npz(next_observations=np.zeros((ROWS, 3))), "next_observations", "3 columns"),
    "one observation too many": (
        npz(observations=np.zeros((8, 2)), next_observations=None), "terminals", "row 2 ends an episode"
    ),
    "lists of unequal length": (parquet(**WIDE, action=[[0.0]] * 6 + [[0.0, 1.0]]), "action", "row 6 holds 2"),
    "zero steps": (npz(**{name: values[:0] for name, values in columns().items()}), "rewards", "empty"),
    "zero steps, parquet": (
        parquet(**{name: np.asarray(values)[:0] for name, values in parquet_columns().items()}), "reward", "empty"
    ),
    "one step that leads nowhere": (
        npz(**{name: values[:1] for name, values in columns().items()} | {"next_observations": None}),
        "next_observations", "no complete step",
    ),
    "absurd size, hdf5": (hdf5_of_absurd_size, "rewards", "more data than can be there"),
    "absurdly many pieces": (hdf5_in_absurdly_many_pieces, "terminals", "4,000,000 pieces"),
    "absurd size, npz": (npz_with_a_lying_header, "rewards", ""),
    "bomb": (npz_that_is_a_bomb, "", "more data than can be there"),
    # --- Minari
    "minari without episodes": (metadata(total_episodes=0), "total_episodes", "no episode"),
    "minari with too few episodes": (metadata(total_episodes=9), "total_episodes", "holds 4"),
    "minari counted in words": (metadata(total_episodes="four"), "total_episodes", "'four'"),
    "minari without a space": (metadata(action_space=None), "action_space", "missing"),
    "minari with a broken space": (metadata(action_space="{"), "action_space", "cannot be read"),
    "minari with an odd space": (metadata(observation_space='{"type": "Odd"}'), "observation_space", "cannot be"),
    "minari of the future": (metadata(minari_version="9.0.0"), "minari_version", "9.0.0"),
    "minari in an unknown format": (metadata(data_format="tape"), "data_format", "tape"),
    "minari without an id": (metadata(dataset_id=None), "dataset_id", "missing"),
    "minari's metadata is no JSON": (shortened(minari(), 0.5, "data/metadata.json"), "metadata.json", "cannot be"),
    "minari's data cut short": (shortened(minari(), 0.5, "data/main_data.hdf5"), "main_data.hdf5", "cannot be"),
    "minari's data without rewards": (minari_without("episode_2/rewards"), "episode 2", "rewards"),
    "minari with episodes nobody counted": (metadata(total_episodes=3), "total_episodes", "holds 4"),
    "minari without an episode": (minari_without("episode_1"), "total_episodes", "holds 3"),
    "actions of several codes": (
        metadata(action_space=serialised(MultiDiscrete([3, 3]))), "action_space", "MultiDiscrete"
    ),
    "image observations": (
        metadata(observation_space=serialised(Box(0, 1, (2, 2)))), "observation_space", "vectors"
    ),
    "minari NaN": (minari({"rewards": np.array([0, np.nan, 1])}), "episode 0: rewards", "row 1 is NaN"),
    "minari without the final observation": (
        minari({"observations": np.zeros((3, 2), np.float32)}), "episode 0: observations", "one observation more"
    ),
    "minari with too many actions": (
        minari({"actions": np.zeros((5, 2), np.float32)}), "episode 0: actions", "has 5 rows"
    ),
    "minari's metadata is a list": (
        lambda tmp: written(minari()(tmp), "data/metadata.json", b"[1, 2]"), "metadata.json", "no table of names"
    ),
    "minari with an observation of no parts": (
        metadata(observation_space='{"type": "Dict", "subspaces": {}}'), "observation_space", "has no parts"
    ),
    "minari with a split episode": (minari_in_two_batches, "episodes", "hold 11 rows, of which Minari gave"),
    "minari with an empty episode": (minari_with_an_empty_episode, "episode 1", "holds no rows"),
    # --- folders of episodes
    "one file of another task": (folder(actions=np.zeros((2, 5))), "episode_1.npz: actions", "5 columns"),
    "one file without a field": (folder(rewards=None), "episode_1.npz: rewards", "missing"),
    "one file with a NaN": (folder(rewards=np.array([0, np.nan])), "episode_1.npz: rewards", "row 1"),
    "one file without its final observation": (
        folder(observations=np.zeros((2, 2))), "episode_1.npz: next_observations", "missing"
    ),
    "one file with other bounds": (folder(**BOUNDS), "episode_1.npz: action_low", "Make the files alike"),
}  # fmt: skip


@pytest.mark.parametrize("fault", BROKEN)
def test_one_message_names_file_and_field(fault, tmp_path):
    make, field, words = BROKEN[fault]
    file = make(tmp_path)
    with pytest.raises(FovaError) as error:
        load(file)
    message = str(error.value)
    assert str(file) in message
    assert f": {field}" in message.replace("/episode_1.npz", ": episode_1.npz")
    assert words in message
    assert len(message.splitlines()) == 1
    assert message.endswith((".", ".)"))
    assert ("'dones'" in message) == (fault == "dones for terminals")


@pytest.mark.parametrize("name", ["broken.npz", "broken.hdf5", "broken.parquet"])
def test_no_permission(name, tmp_path, monkeypatch):
    """Simulated, because the superuser may read everything."""
    write = {".npz": write_npz, ".hdf5": write_hdf5, ".parquet": write_parquet}[Path(name).suffix]
    file = write(tmp_path / name)

    def denied(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(zipfile, "is_zipfile", denied)
    monkeypatch.setattr(h5py, "File", denied)
    monkeypatch.setattr("pyarrow.parquet.ParquetFile", denied)
    with pytest.raises(FovaError, match=f"{name}: permission was denied.*chmod"):
        load(file)


def test_too_large_for_memory(tmp_path, monkeypatch):
    def full(*_, **__):
        raise MemoryError

    file = write_npz(tmp_path / "broken.npz")
    monkeypatch.setattr(np, "load", full)
    with pytest.raises(FovaError, match=r"broken\.npz: is too large for this machine's memory"):
        load(file)


@pytest.mark.parametrize("name", ["terminals", "timeouts"])
def test_endings_that_were_never_written_are_noted(name, tmp_path):
    file = hdf5_with(name, lambda store: store.create_dataset(name, (ROWS,), "u1", chunks=(2,)))(tmp_path)
    assert f"{name}: 4 pieces of the array never written, read as 0." in load(file).notes


def test_episodes_that_are_there_twice_are_noted(tmp_path):
    whole = write_folder(tmp_path / "logs")
    (whole / "episode_1 copy.npz").write_bytes((whole / "episode_1.npz").read_bytes())
    (whole / "episode_9.npz").symlink_to(whole / "episode_0.npz")
    source = load(whole)
    assert len(source.transitions) == ROWS + 2 + 3
    assert source.notes == (
        "episode_1.npz has the same content as episode_1 copy.npz, and both count.",
        "episode_9.npz has the same content as episode_0.npz, and both count.",
    )
    for number in range(5):
        (whole / f"more_{number}.npz").symlink_to(whole / "episode_0.npz")
    notes = load(whole).notes
    assert len(notes) == 4
    assert notes[-1] == "Further files like these: 4."


def test_files_that_differ_are_not_noted(tmp_path):
    assert load(write_folder(tmp_path / "logs")).notes == ()
