"""A server that gives out keys of its own in the clients' names, against clients that know one another's keys."""

import pytest
from test_rounds import settings

from fova.commands.client import command
from fova.errors import FovaError
from fova.network import secure_messages
from fova.network.certificates import make, public_keys
from fova.network.intake import Refused
from fova.network.secure_client import SecureClient
from fova.network.secure_identity import is_signed, signed, statement
from fova.network.secure_messages import Reader
from fova.network.secure_session import ClientSession
from fova.network.server_config import ServerConfig, make_plan
from tiny import make_transitions, save_npz

NAMES = ("east", "north", "south")
SESSION, ROUND = "s1", 4


class Wards:
    """Three clients with keys, up to the point where the server gives out what they announced."""

    def __init__(self, folder, pinned=True):
        make(folder / "certificates", ["127.0.0.1"], NAMES)
        self.peers = folder / "certificates" / "server" / "clients"
        config = settings("fed-bc", aggregation="uniform", normalise=False, reward_unit=1.0)
        network = ServerConfig(min_clients=3, observation=3, action=2, secure_aggregation=True)
        self.plan = make_plan(config, network, "0" * 32)
        self.clients = {
            name: SecureClient(
                self.plan,
                name,
                folder / name,
                folder / "certificates" / name / "client.key",
                self.peers if pinned else None,
            )
            for name in NAMES
        }
        self.keys = {name: self.announced(name) for name in NAMES}

    def announced(self, name, session=SESSION):
        answer = self.clients[name].answer(secure_messages.keys_question(self.plan, ROUND, session))
        identity = public_keys(self.peers)[name]
        return Reader(self.plan, session, name).keys(answer, ROUND, identity, set())

    def give_out(self, keys):
        """What east answers when it is given these keys."""
        return self.clients["east"].answer(secure_messages.shares_question(self.plan, ROUND, SESSION, keys))


def false_keys(wards):
    """Keys that the server made, with the true client's signature of its own keys."""
    made = ClientSession.start(SESSION, ROUND, "north").announce()
    return wards.keys | {"north": made._replace(signature=wards.keys["north"].signature)}


def test_true_keys_are_taken(tmp_path):
    wards = Wards(tmp_path)
    assert sorted(wards.give_out(wards.keys)["shares"]["names"]) == ["north", "south"]


def test_keys_that_the_server_made_are_refused(tmp_path):
    wards = Wards(tmp_path)
    with pytest.raises(Refused, match="in the name of north are not signed by north"):
        wards.give_out(false_keys(wards))
    unsigned = {name: keys._replace(signature=b"") for name, keys in wards.keys.items()}
    with pytest.raises(Refused, match="are not signed by north"):
        wards.give_out(unsigned)


def test_without_the_public_keys_nobody_notices(tmp_path):
    """As docs/privacy.md says."""
    wards = Wards(tmp_path, pinned=False)
    assert wards.give_out(false_keys(wards))["shares"]["names"]


def test_keys_of_another_attempt_or_client_are_refused(tmp_path):
    wards = Wards(tmp_path)
    with pytest.raises(Refused, match="not signed by north"):
        wards.give_out(wards.keys | {"north": wards.announced("north", "s2")})
    with pytest.raises(Refused, match="not signed by north"):
        wards.give_out({"east": wards.keys["east"], "north": wards.keys["south"], "south": wards.keys["south"]})


def test_a_client_that_is_not_among_the_peers_is_refused(tmp_path):
    wards = Wards(tmp_path)
    (wards.peers / "south.pub").unlink()
    with pytest.raises(Refused, match="no public key of south among its --peers"):
        wards.give_out(wards.keys)


def test_a_signature_holds_for_one_statement_and_one_key(tmp_path):
    wards = Wards(tmp_path)
    known, keys = public_keys(wards.peers), wards.keys["east"]
    said = statement(wards.plan.run_id, SESSION, ROUND, "east", keys)
    assert is_signed(known["east"], said, keys.signature)
    assert is_signed(known["north"], said, keys.signature) is False
    assert not is_signed(known["east"], statement(wards.plan.run_id, SESSION, 5, "east", keys), keys.signature)
    assert is_signed(b"no key", said, keys.signature) is False


def test_a_key_file_that_is_none_is_named(tmp_path):
    (tmp_path / "client.key").write_text("no key")
    with pytest.raises(FovaError, match=r"client\.key cannot be read"):
        signed(tmp_path / "client.key", b"words")


def test_an_empty_folder_of_peers_is_refused_before_anything_starts(tmp_path):
    save_npz(tmp_path / "north.npz", make_transitions(0))
    (tmp_path / "peers").mkdir()
    with pytest.raises(FovaError, match="peers holds no public keys"):
        command(
            ["--server", "127.0.0.1:1", "--data", str(tmp_path / "north.npz"), "--peers", str(tmp_path / "peers")]
        )
