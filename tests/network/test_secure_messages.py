"""Messages of secure aggregation as the other side reads them: what comes back, and what is refused."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from test_messages import BROADCAST, FRAME, plan, saying, without

from fova.network import messages, secure_messages
from fova.network.intake import Refused
from fova.network.secure_messages import LONGEST_BYTES, Reader
from fova.network.secure_session import ClientSession, PublicKeys, Shared

PLAN = plan()
SESSION, ROUND = "s1", 4
OTHERS = {"north": b"for north", "south": b"for south"}
NAMES = ["east", *OTHERS]


def reader():
    return Reader(PLAN, SESSION, "east")


def changed(content, record, **values):
    content[record] = ConfigRecord({**content[record], **values})
    return content


# --- From the server ---


def test_every_question_says_what_it_is_about():
    questions = {
        "keys": secure_messages.keys_question(PLAN, ROUND, SESSION),
        "shares": secure_messages.shares_question(PLAN, ROUND, SESSION, {}),
        "unmask": secure_messages.unmask_question(PLAN, ROUND, SESSION, []),
    }
    for step, content in questions.items():
        assert secure_messages.step_of(content) == step
        assert secure_messages.session_of(content) == (SESSION, ROUND)
        assert messages.read_plan(content) == PLAN
    assert secure_messages.step_of(messages.hello(PLAN)) == ""
    with pytest.raises(Refused, match="the message has no about"):
        secure_messages.session_of(RecordDict({}))


def test_the_keys_of_all_clients_come_back_as_they_were_sent():
    keys = {name: PublicKeys(b"m" + name.encode(), b"s" + name.encode(), b"signed") for name in NAMES}
    content = secure_messages.shares_question(PLAN, ROUND, SESSION, keys)
    assert secure_messages.read_shares_question(content, 3) == keys
    with pytest.raises(Refused, match="its names are no list of at most 2"):
        secure_messages.read_shares_question(content, 2)
    with pytest.raises(Refused, match="the message has no keys"):
        secure_messages.read_shares_question(without(content, "keys"), 3)


def test_the_question_of_a_masked_round_is_that_of_a_round_with_shares():
    content = secure_messages.masked_question(PLAN, ROUND, 3, BROADCAST, FRAME, SESSION, OTHERS)
    assert secure_messages.read_masked_question(content, 2) == (SESSION, OTHERS)
    number, counted, broadcast, _ = messages.read_round_question(content, PLAN, BROADCAST)
    assert (number, counted) == (ROUND, 3)
    np.testing.assert_array_equal(broadcast["w"], BROADCAST["w"])


def test_who_arrived_comes_back_as_it_was_sent():
    content = secure_messages.unmask_question(PLAN, ROUND, SESSION, NAMES)
    assert secure_messages.read_unmask_question(content, 3) == NAMES
    with pytest.raises(Refused, match="its names are no list of at most 2"):
        secure_messages.read_unmask_question(content, 2)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"names": "east"}, "its names are no list of at most 3"),
        ({"names": [1, 2]}, "its names hold something else than str"),
        ({"names": [b"north", b"south"]}, "its names hold something else than str"),
        ({"names": ["north", "s" * (LONGEST_BYTES + 1)]}, "its names hold something else than str"),
        ({"sealed": ["for north", "for south"]}, "its sealed hold something else than bytes"),
        ({"sealed": [b"x" * (LONGEST_BYTES + 1), b"y"]}, "its sealed hold something else than bytes"),
        ({"sealed": [b"for north"]}, "its names and its sealed do not fit together"),
        ({"names": ["north", "north"]}, "its names and its sealed do not fit together"),
    ],
)
def test_lists_that_do_not_fit_are_refused(values, words):
    content = secure_messages.masked_question(PLAN, ROUND, 3, BROADCAST, FRAME, SESSION, OTHERS)
    with pytest.raises(Refused, match=words):
        secure_messages.read_masked_question(changed(content, "shares", **values), 3)


def test_texts_and_bytes_of_the_greatest_length_are_taken():
    assert LONGEST_BYTES == 8192
    longest = {"n" * LONGEST_BYTES: b"x" * LONGEST_BYTES}
    content = secure_messages.masked_question(PLAN, ROUND, 3, BROADCAST, FRAME, SESSION, longest)
    assert secure_messages.read_masked_question(content, 1)[1] == longest


# --- A client's keys ---


@pytest.fixture(scope="module")
def keys():
    return ClientSession.start(SESSION, ROUND, "east").announce()


def keys_answer(keys, client="east"):
    return secure_messages.keys_answer(PLAN, SESSION, client, keys)


def test_keys_come_back_as_they_were_sent_and_are_taken_from_then_on(keys):
    taken = {b"another"}
    assert reader().keys(keys_answer(keys), ROUND, b"", taken) == keys
    assert taken == {b"another", keys.mask, keys.seal}


def test_keys_that_are_taken_or_equal_are_refused(keys):
    for taken in ({keys.mask}, {keys.seal}, {keys.mask, keys.seal}):
        with pytest.raises(Refused, match="its keys are equal, or another client's"):
            reader().keys(keys_answer(keys), ROUND, b"", taken)
    with pytest.raises(Refused, match="its keys are equal, or another client's"):
        reader().keys(keys_answer(keys._replace(seal=keys.mask)), ROUND, b"", set())


def test_keys_without_the_signature_of_the_joined_key_are_refused(keys):
    with pytest.raises(Refused, match="not signed with the key that it joined with"):
        reader().keys(keys_answer(keys), ROUND, keys.mask, set())


@pytest.mark.parametrize("value", ["text", 3, b"k" * (LONGEST_BYTES + 1)])
def test_keys_that_are_no_bytes_are_refused(keys, value):
    with pytest.raises(Refused, match="its seal is missing, too long or no bytes"):
        reader().keys(changed(keys_answer(keys), "keys", seal=value), ROUND, b"", set())


def test_bytes_that_are_no_key_are_refused(keys):
    with pytest.raises(Refused, match="key"):
        reader().keys(keys_answer(keys._replace(seal=b"no key")), ROUND, b"", set())
    content = keys_answer(keys)
    del content["keys"]["seal"]
    with pytest.raises(Refused, match="its seal is missing"):
        reader().keys(content, ROUND, b"", set())


# --- A client's shares ---


def shares_answer(sealed=OTHERS, commitment=b"c"):
    return secure_messages.shares_answer(PLAN, SESSION, "east", Shared(dict(sealed), commitment))


def test_shares_come_back_as_they_were_sent():
    longest = b"c" * LONGEST_BYTES
    assert reader().shared(shares_answer(commitment=longest), NAMES) == Shared(OTHERS, longest)


@pytest.mark.parametrize("names", [["north"], ["north", "west"], ["east", "north", "south"]])
def test_shares_for_others_than_the_other_clients_are_refused(names):
    with pytest.raises(Refused, match="its shares are not one for each other client"):
        reader().shared(shares_answer(dict.fromkeys(names, b"x")), NAMES)


def test_a_commitment_must_be_there_and_short():
    with pytest.raises(Refused, match="its commitment is missing, too long or no bytes"):
        reader().shared(shares_answer(commitment=b"c" * (LONGEST_BYTES + 1)), NAMES)


def revealed(*names):
    return secure_messages.unmask_answer(PLAN, SESSION, "east", {name: name.encode() for name in names})


def test_revealed_shares_come_back_as_they_were_sent():
    assert reader().revealed(revealed(*NAMES), NAMES) == {name: name.encode() for name in NAMES}
    assert list(reader().revealed(revealed("east"), NAMES)) == ["east"]  # others it could not open


@pytest.mark.parametrize("names", [(), ("north",), ("east", "west")])
def test_a_client_reveals_its_own_share_and_none_of_strangers(names):
    with pytest.raises(Refused, match="it does not reveal one share for each client"):
        reader().revealed(revealed(*names), NAMES)


# --- A client's masked numbers ---


def masked_answer(numbers):
    return secure_messages.masked_answer(PLAN, SESSION, "east", numbers)


def test_masked_numbers_come_back_as_they_were_sent():
    numbers = np.array([0, 7, 2**64 - 1], np.uint64)
    found = reader().masked(masked_answer(numbers), 3)
    assert found.tolist() == numbers.tolist()
    assert found.dtype == np.uint64


def test_masked_numbers_of_another_size_or_type_are_refused():
    with pytest.raises(Refused, match=r"uint64\[4\] is needed"):
        reader().masked(masked_answer(np.zeros(3, np.uint64)), 4)
    with pytest.raises(Refused, match=r"uint64\[3\] is needed"):
        reader().masked(masked_answer(np.zeros(3)), 3)
    content = masked_answer(np.zeros(3, np.uint64))
    content["masked"] = ConfigRecord({"numbers": 3})
    with pytest.raises(Refused, match="the message has no masked numbers"):
        reader().masked(content, 3)
    content["masked"] = ArrayRecord({"others": Array(np.zeros(3, np.uint64))})
    with pytest.raises(Refused, match="its masked are 1 and not the 1 asked for"):
        reader().masked(content, 3)


# --- All answers ---


def test_an_answer_for_somebody_else_or_another_attempt_or_with_more_is_refused():
    with pytest.raises(Refused, match="it answers in another client's name"):
        reader().shared(saying(shares_answer(), client="west"), NAMES)
    with pytest.raises(Refused, match="stale: it answers another attempt at the round"):
        reader().shared(saying(shares_answer(), session="s2"), NAMES)
    with pytest.raises(Refused, match="stale: it answers run"):
        reader().shared(saying(shares_answer(), run="1" * 32), NAMES)
    content = shares_answer()
    content["more"] = ConfigRecord({})
    with pytest.raises(Refused, match="the message does not hold about and shares"):
        reader().shared(content, NAMES)
    with pytest.raises(Refused, match="the message does not hold about and keys"):
        reader().keys(shares_answer(), ROUND, b"", set())
