"""Generated messages against the real decoder: none ends the server, and every one is refused with a reason."""

import io
import json
import pickle

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from in_process import InProcessGrid

from fova.algorithms import configure
from fova.network import intake
from fova.network.engine import FlowerEngine
from fova.network.intake import Refused, one_line
from fova.network.members import Refusal
from fova.network.server_config import ServerConfig, make_plan
from fova.progress import Quiet
from fova.run.config import Config, RunConfig

LONGEST = 450


@pytest.fixture(scope="module")
def engine():
    config = Config(None, (), configure("fed-bc", hidden=(4,), batch_size=4), "fed-bc", RunConfig(rounds=1))
    network = ServerConfig(observation=3, action=2)
    return FlowerEngine(InProcessGrid({}), make_plan(config, network, "0" * 32), network, Quiet())


def honest(plan, like):
    """What a client that follows the plan sends."""
    arrays = {name: np.zeros(*about) for name, about in intake_expected(like).items()}
    return {
        "about": {
            "version": plan.version,
            "run": plan.run_id,
            "client": "east",
            "round": 0,
            "fingerprint": plan.fingerprint(),
        },
        "arrays": {name: ("float32", array.shape, "numpy.ndarray", npy(array)) for name, array in arrays.items()},
        "metrics": {"submission/log_weight": 0.0, **dict.fromkeys(like.metrics, 1.0)},
    }


def intake_expected(like):
    from fova.federation.wire import expected_arrays

    return expected_arrays(like.parameters)


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npz():
    stream = io.BytesIO()
    np.savez(stream, a=np.zeros(3))
    return stream.getvalue()


def message(content):
    metrics, about = content["metrics"], content["about"]
    return RecordDict(
        {
            "about": ConfigRecord(about),
            "parameters": ArrayRecord({name: Array(*parts) for name, parts in content["arrays"].items()}),
            "metrics": MetricRecord(metrics),
            **content.get("more", {}),
        }
    )


# --- Ways to be hostile ---

texts = st.one_of(
    st.text(max_size=60), st.sampled_from(["../../x", "\x1b[31mred", "a\nb", "", " ", "x" * 5000, "."])
)
values = st.one_of(
    texts, st.integers(-(2**60), 2**60), st.floats(), st.binary(max_size=20), st.lists(st.floats(), max_size=4)
)
shapes = st.lists(st.sampled_from([0, 1, 2, 4, 2**31, 2**50]), max_size=4).map(tuple)
kinds = st.sampled_from(["<f4", "<f8", ">f4", "|O", "<U8", "|V9", "<i8", "nonsense", "<f4, <f4"])


def header(shape, kind, version=1):
    text = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    size = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + text


payloads = st.one_of(
    st.binary(max_size=300),
    st.just(npz()),
    st.just(npz()[:50]),
    st.just(pickle.dumps({"a": 1})),
    st.just(header((4,), "|O") + pickle.dumps([1] * 4)),
    st.builds(
        lambda s, k, v, tail: header(s, k, v) + tail,
        shapes,
        kinds,
        st.sampled_from([1, 2, 3, 9]),
        st.binary(max_size=40),
    ),
    st.just(b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 5000),
    st.integers(1, 200).map(lambda n: npy(np.zeros(4, np.float32))[:-n]),
)
array_parts = st.tuples(texts, shapes, st.sampled_from(["numpy.ndarray", "torch.Tensor", "", "\x00"]), payloads)


@st.composite
def mutations(draw):
    """A change that makes an honest answer one that must be refused."""
    kind = draw(
        st.sampled_from(["array", "bytes", "missing", "extra", "metric", "metrics", "about", "drop", "more"])
    )
    return kind, draw(
        {
            "array": array_parts.filter(lambda parts: parts[2] != "numpy.ndarray"),
            "bytes": payloads,
            "missing": st.integers(0, 3),
            "extra": texts,
            "metric": st.one_of(
                st.lists(st.floats(allow_nan=False), max_size=3),
                st.sampled_from([float("nan"), float("inf"), 1e300]),
            ),
            "metrics": st.dictionaries(texts, st.floats(), max_size=30).filter(lambda found: "rows" not in found),
            "about": st.tuples(st.sampled_from(["version", "run", "client", "round", "fingerprint"]), values),
            "drop": st.sampled_from(["version", "run", "client", "round", "fingerprint"]),
            "more": texts.filter(lambda name: name not in ("about", "parameters", "metrics")),
        }[kind]
    )


def changed(content, mutation):
    kind, value = mutation
    name = sorted(content["arrays"])[0]
    shape = content["arrays"][name][1]
    match kind:
        case "array":
            content["arrays"][name] = value
        case "bytes":
            content["arrays"][name] = ("float32", shape, "numpy.ndarray", value)
        case "missing":
            content["arrays"].pop(sorted(content["arrays"])[value])
        case "extra":
            content["arrays"][f"{value}!"] = content["arrays"][name]
        case "metric":
            content["metrics"]["rows"] = value
        case "metrics":
            content["metrics"] = value
        case "about":
            content["about"][value[0]] = value[1]
        case "drop":
            del content["about"][value]
        case "more":
            content["more"] = {value: ConfigRecord({})}
    return content


def read(engine, content):
    """As the engine reads an answer of the member east to the first round."""
    answer = Message(content, 1, "train")
    return engine.read(answer, lambda records: engine._submission("east", 0, records))


def test_the_honest_message_is_accepted(engine):
    assert not isinstance(read(engine, message(honest(engine.plan, engine.like))), Refusal)


@settings(deadline=None, max_examples=1000, suppress_health_check=list(HealthCheck))
@given(mutations())
def test_a_thousand_hostile_messages_are_refused_each_with_a_reason(engine, mutation):
    content = changed(honest(engine.plan, engine.like), mutation)
    if mutation[0] == "about" and content["about"] == honest(engine.plan, engine.like)["about"]:
        return
    refused = read(engine, message(content))
    assert isinstance(refused, Refusal), mutation
    assert 0 < len(refused.why) <= LONGEST
    assert refused.why.isprintable()


@settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_objects_whose_bytes_are_changed_never_raise_anything_that_ends_the_server(engine, data):
    """As a member can push any bytes that hash to the name it gives them."""
    answer = Message(message(honest(engine.plan, engine.like)), 1, "train")
    contents = {name: bytes(item.deflate()) for name, item in get_all_nested_objects(answer).items()}
    victim = list(contents)[data.draw(st.integers(0, len(contents) - 1))]
    at = data.draw(st.integers(0, 2000)) % len(contents[victim])
    junk = data.draw(st.one_of(st.binary(min_size=1, max_size=8), st.just(b"")))
    contents[victim] = contents[victim][:at] + junk + contents[victim][at + len(junk) + 1 :]
    inflate = intake.limited_inflation(inflate_object_from_contents, 10**6)
    try:
        reply = inflate(answer.object_id, contents)
        read_or_not = read(engine, reply.content) if isinstance(reply, Message) and reply.has_content() else None
    except Exception as error:  # noqa: BLE001  what `_pull` hands on as the member's error
        read_or_not = engine.read(error, lambda records: records)
        assert isinstance(read_or_not, Refusal)
    if isinstance(read_or_not, Refusal):
        assert read_or_not.why.isprintable()


# --- Bounds before anything is put together ---


def test_an_array_that_names_one_chunk_a_million_times_is_refused_before_it_is_built():
    answer = Message(RecordDict({"parameters": ArrayRecord({"w": Array(np.zeros(1000))})}), 1, "train")
    contents = {name: bytes(item.deflate()) for name, item in get_all_nested_objects(answer).items()}
    (name,) = (name for name, content in contents.items() if content.startswith(b"Array "))
    head, _, body = contents[name].partition(b"\x00")
    bomb = json.loads(body) | {"arraychunk_ids": [0] * 10**6}
    contents[name] = head + b"\x00" + json.dumps(bomb).encode()
    assert intake.inflated_bytes(contents) > 8 * 10**9
    with pytest.raises(Refused, match="unpacks to more than 1,000,000 bytes"):
        intake.limited_inflation(inflate_object_from_contents, 10**6)(answer.object_id, contents)


def test_too_many_or_too_large_objects_are_not_fetched():
    fetched = []

    def pull(object_ids, fetch):
        return {number: fetch(number) for number in object_ids}

    def fetch(number):
        fetched.append(number)
        return bytes(400)

    limited = intake.limited_pull(pull, most_bytes=1000, most_objects=5)
    assert len(limited(["a", "b"], fetch)) == 2
    with pytest.raises(Refused, match="has 6 objects, but at most 5"):
        limited(list("abcdef"), fetch)
    assert len(fetched) == 2
    with pytest.raises(Refused, match="more than 1,000 bytes"):
        limited(list("abcde"), fetch)
    assert len(fetched) == 5


def test_flower_still_fetches_messages_where_the_limits_are_put(engine):
    """A newer Flower may move things; then the limits must be looked at again."""
    import inspect

    from flwr.superlink.grid import http_grid

    source = inspect.getsource(http_grid.HttpGrid.pull_messages)
    assert "all_object_contents = pull_objects(" in source
    assert "inflate_object_from_contents(msg_id" in source
    assert http_grid.pull_objects.__module__ == intake.__name__


@given(st.one_of(st.text(), values))
def test_text_of_a_member_is_one_short_printable_line(text):
    line = one_line(text)
    assert line.isprintable()
    assert len(line) <= intake.LONGEST_TEXT
