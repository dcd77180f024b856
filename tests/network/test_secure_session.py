"""A round of secure aggregation between clients and server that are plain values: no network, no files."""

import json
from itertools import combinations

import numpy as np
import pytest

from fova.network import secure_session
from fova.network.intake import Refused
from fova.network.masking import mask
from fova.network.secure_session import (
    CannotUnmask,
    ClientSession,
    PublicKeys,
    ServerSession,
    Shared,
    most_liars,
    threshold,
)

NAMES = ("east", "north", "south", "west")
LENGTH = 4000


def stored(session):
    """The session after a way through the client's disk."""
    return ClientSession.from_json(json.loads(json.dumps(session.to_json())))


class Round:
    """Four clients, and a server, up to the masked numbers."""

    def __init__(self, names=NAMES, silent=()):
        self.clients = {name: ClientSession.start("s1", 0, name) for name in names}
        self.server = ServerSession("s1")
        self.numbers = {name: np.arange(LENGTH, dtype=np.uint64) * (i + 1) for i, name in enumerate(names)}
        self.server.keys = {name: client.announce() for name, client in self.clients.items()}
        self.on_disk()
        self.server.shared = {name: client.share(self.server.keys) for name, client in self.clients.items()}
        self.on_disk()
        self.sent = {name: self.masked(name) for name in names}
        for name in names:
            if name not in silent:
                self.server.add(name, self.sent[name])

    def on_disk(self):
        self.clients = {name: stored(client) for name, client in self.clients.items()}

    def masked(self, name):
        return self.clients[name].mask(self.numbers[name], self.server.sealed_for(name))

    def reveal(self, *names):
        self.on_disk()
        for name in names:
            self.server.revealed[name] = self.clients[name].reveal(self.server.arrived)


def looks_random(numbers):
    """Whether every bit of the numbers is set about half of the time: 6 standard deviations of a fair coin."""
    bits = np.unpackbits(numbers.view(np.uint8).reshape(-1, 8), axis=1).mean(axis=0)
    return np.abs(bits - 0.5).max() < 6 * 0.5 / np.sqrt(len(numbers))


@pytest.fixture(scope="module")
def whole_round():
    return Round()


@pytest.mark.parametrize(("clients", "needed"), [(3, 3), (4, 3), (5, 4), (6, 5), (7, 5), (9, 7), (100, 67)])
def test_more_than_two_thirds_are_needed(clients, needed):
    assert threshold(clients) == needed


def test_fewer_than_a_third_may_lie_and_the_others_are_enough():
    assert [most_liars(clients) for clients in range(3, 12)] == [0, 1, 1, 1, 2, 2, 2, 3, 3]
    for clients in range(3, 100):
        assert clients - most_liars(clients) >= threshold(clients)
        assert clients - most_liars(clients) - 1 < threshold(clients)


def test_sets_of_shares_are_all_of_them_or_some_by_chance(monkeypatch):
    shares = [bytes([i]) for i in range(6)]
    assert [b"".join(each) for each in secure_session._subsets(shares[:3], 2)] == [
        b"\x00\x01",
        b"\x00\x02",
        b"\x01\x02",
    ]
    monkeypatch.setattr(secure_session, "MOST_TRIED", 15)
    assert len(set(map(tuple, secure_session._subsets(shares, 4)))) == 15  # 6 choose 4: all
    monkeypatch.setattr(secure_session, "MOST_TRIED", 14)
    drawn = list(secure_session._subsets(shares, 4))
    assert len(drawn) == 14
    assert all(len(set(each)) == 4 for each in drawn)
    assert all(any(share not in each for each in drawn) for share in shares), "no share is in all"


def test_the_sum_of_all(whole_round):
    whole_round.reveal("east", "south", "west")
    np.testing.assert_array_equal(whole_round.server.unmask(), np.arange(LENGTH) * 10)


def test_a_client_that_drops_out_after_masking_does_not_lose_the_round():
    wards = Round(silent=["north"])
    wards.reveal("east", "south", "west")
    np.testing.assert_array_equal(wards.server.unmask(), np.arange(LENGTH) * (1 + 3 + 4))


def test_any_but_all_of_what_the_server_received_is_noise(whole_round):
    """Even after the server has learned every client's own seed in the last step."""
    own = {name: mask(client.own_seed, LENGTH) for name, client in whole_round.clients.items()}
    for size in (1, 2, 3):
        for some in combinations(NAMES, size):
            total = np.sum([whole_round.sent[name] for name in some], axis=0, dtype=np.uint64)
            assert looks_random(total), some
            assert looks_random(total - np.sum([own[name] for name in some], axis=0, dtype=np.uint64)), some
    total = np.sum([whole_round.sent[name] - own[name] for name in NAMES], axis=0, dtype=np.uint64)
    assert not looks_random(total)
    assert not looks_random(whole_round.numbers["east"])


def test_the_server_holds_one_sum_and_no_single_numbers(whole_round):
    held = [value for value in vars(whole_round.server).values() if isinstance(value, np.ndarray)]
    assert len(held) == 1
    np.testing.assert_array_equal(held[0], np.sum(list(whole_round.sent.values()), axis=0, dtype=np.uint64))


def test_fewer_than_the_threshold_cannot_undo_the_masks():
    wards = Round()
    wards.reveal("east", "south")
    with pytest.raises(CannotUnmask, match="the masks of east, north, south, west cannot be undone") as error:
        wards.server.unmask()
    assert error.value.clients == list(NAMES)


def test_wrong_shares_are_left_out_if_enough_others_are_there():
    wards = Round(silent=["north"])
    wards.reveal("east", "south", "west")
    honest = dict(wards.server.revealed)
    # north comes back and answers rubbish first: its shares are of the right form, but of nothing
    wards.server.revealed = {"north": {name: bytes(share) for name, share in honest["east"].items()}} | honest
    wards.server.revealed["north"] = {
        name: (2).to_bytes(4, "little") + bytes(len(share) - 4) for name, share in honest["east"].items()
    }
    np.testing.assert_array_equal(wards.server.unmask(), np.arange(LENGTH) * 8)
    del wards.server.revealed["west"]
    with pytest.raises(Refused, match="cannot be undone"):
        wards.server.unmask()


# --- What a client refuses ---


def test_a_client_gives_the_same_answer_to_the_same_question():
    wards = Round()
    east = stored(wards.clients["east"])
    assert east.announce() == wards.server.keys["east"]
    assert east.share(wards.server.keys) == wards.server.shared["east"]
    np.testing.assert_array_equal(
        east.mask(wards.numbers["east"], wards.server.sealed_for("east")), wards.sent["east"]
    )
    assert east.reveal(NAMES) == stored(east).reveal(NAMES)


def test_other_numbers_under_the_same_masks_are_refused():
    wards = Round()
    wards.numbers["east"] += np.uint64(1)
    with pytest.raises(Refused, match="other numbers under the same masks"):
        wards.masked("east")


def test_a_client_says_only_once_who_arrived():
    wards = Round()
    wards.clients["east"].reveal(["east", "north", "south"])
    with pytest.raises(Refused, match="told that other clients arrived"):
        wards.clients["east"].reveal(NAMES)


@pytest.mark.parametrize(
    ("survivors", "words"),
    [
        (["north", "south", "west"], "not among those of the round"),  # without itself
        (["east", "north", "stranger"], "not among those of the round"),
        (["east", "north"], "2 of 4 clients arrived, but 3 are needed"),
    ],
)
def test_a_client_opens_its_shares_for_a_sum_of_enough_clients_only(survivors, words):
    with pytest.raises(Refused, match=words):
        Round().clients["east"].reveal(survivors)


def test_nobody_reveals_both_secrets_of_a_client(whole_round):
    revealed = Round(silent=["north"])
    revealed.reveal("east")
    of_seed, of_key = revealed.clients["east"].shares["north"]
    assert revealed.server.revealed["east"]["north"] == of_key != of_seed


def test_a_client_refuses_keys_that_give_it_away():
    east, north = (ClientSession.start("s1", 0, name) for name in ("east", "north"))
    keys = {"east": east.announce(), "north": north.announce()}
    with pytest.raises(Refused, match="the round has 2 clients"):
        east.share(keys)
    with pytest.raises(Refused, match="two clients of the round have the same key"):
        east.share(keys | {"south": north.announce()})
    other = ClientSession.start("s1", 0, "south").announce()
    with pytest.raises(Refused, match="not its own"):
        east.share({"east": other, "north": north.announce(), "south": other})
    with pytest.raises(Refused, match="a public key cannot be read"):
        east.share(keys | {"south": PublicKeys(b"no key", b"at all")})


def test_other_keys_in_the_same_session_are_refused():
    wards = Round()
    other = ClientSession.start("s1", 0, "west").announce()
    with pytest.raises(Refused, match="other keys of the same clients"):
        wards.clients["east"].share(wards.server.keys | {"west": other})


def test_shares_that_cannot_be_opened_or_are_for_another_client_stop_nobody():
    wards = Round()
    for south in (b"rubbish", wards.server.shared["south"].sealed["north"]):
        east = stored(wards.clients["east"])
        east.shares, east.partners, east.sent = {}, [], ""
        sealed = wards.server.sealed_for("east") | {"south": south}
        np.testing.assert_array_equal(east.mask(wards.numbers["east"], sealed), wards.sent["east"])
        wards.server.revealed["east"] = east.reveal(NAMES)
        assert sorted(wards.server.revealed["east"]) == ["east", "north", "west"]
    for name in ("north", "south", "west"):
        wards.server.revealed[name] = wards.clients[name].reveal(NAMES)
    np.testing.assert_array_equal(wards.server.unmask(), np.arange(LENGTH) * 10)


def test_clients_that_are_told_of_different_rounds_cannot_open_one_anothers_shares():
    """Else a server could show east a round of three, and the others a larger one, and unmask east alone."""
    clients = {name: ClientSession.start("s1", 0, name) for name in NAMES}
    keys = {name: client.announce() for name, client in clients.items()}
    three = {name: keys[name] for name in ("east", "north", "south")}
    of_east = clients["east"].share(three).sealed["north"]
    assert clients["north"].share(keys).sealed
    assert clients["north"]._opened("east", of_east) is None
    fresh = stored(clients["north"])
    fresh.peers = {}
    fresh.share(three)
    assert fresh._opened("east", of_east) is not None


def test_a_client_refuses_shares_of_too_few_clients_or_of_strangers():
    wards = Round()
    fresh = {name: stored(client) for name, client in wards.clients.items()}
    fresh["east"].shares, fresh["east"].partners, fresh["east"].sent = {}, [], ""
    sealed = wards.server.sealed_for("east")
    for_north = wards.server.shared["south"].sealed["north"]
    with pytest.raises(Refused, match="2 of 4 clients made shares"):
        fresh["east"].mask(wards.numbers["east"], {"south": sealed["south"]})
    with pytest.raises(Refused, match="not in the round"):
        fresh["east"].mask(wards.numbers["east"], sealed | {"stranger": for_north})


def test_a_client_without_shares_masks_nothing():
    with pytest.raises(Refused, match="has not made its shares"):
        ClientSession.start("s1", 0, "east").mask(np.zeros(1, np.uint64), {})


def test_the_session_on_disk_is_the_session():
    client = Round().clients["east"]
    assert stored(client) == client
    assert isinstance(stored(client).share(client.peers), Shared)
