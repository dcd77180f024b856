"""Choosing an algorithm: by its name, by the path of a user's file, for a space of actions."""

import pytest

from fova import algorithms
from fova.algorithms.discrete import COUNTERPARTS
from fova.algorithms.fova import Fova
from fova.algorithms.fqe import Fqe
from fova.errors import FovaError
from fova.spaces import Discrete, Space

NUMBERS, CODES = Space.unit(3, 2), Space(3, Discrete(("a", "b")))


def test_what_evaluates_a_policy_is_found_but_not_offered():
    assert algorithms.get("fqe") is Fqe
    assert "fqe" not in algorithms.by_name()
    assert algorithms.evaluates(Fqe)
    assert algorithms.get("fova") is algorithms.by_name()["fova"] is Fova
    assert not algorithms.evaluates(Fova)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: algorithms.configure("fovv"), "'fova'"),
        (lambda: algorithms.configure("fova", "printed"), "equations"),
        (lambda: algorithms.configure("fova", alhpa=1.0), "'alpha'"),
        (lambda: algorithms.configure("fova", alpha="high"), "a number"),
        (lambda: algorithms.configure("fova", hidden=("a",)), "a whole number"),
        (lambda: algorithms.configure("fova", conservative="cql"), "'logsumexp'"),
        (lambda: algorithms.get("nowhere.py"), "nowhere.py"),
    ],
)
def test_wrong_settings_name_what_would_be_right(call, words):
    with pytest.raises(FovaError, match=words):
        call()


def test_the_first_preset_is_the_default():
    assert algorithms.preset_values("fova") == Fova.presets["recommended"]
    assert algorithms.preset_values("fova", "equations") == {"actor": "squashed"}


# --- For a space of actions ---


def test_discrete_actions_have_a_counterpart_with_the_same_settings():
    algorithm = algorithms.configure("fova", beta=0.7, hidden=(4,))
    assert algorithms.for_space(algorithm, NUMBERS) is algorithm
    counterpart = algorithms.for_space(algorithm, CODES)
    assert type(counterpart) is COUNTERPARTS[Fova]
    assert (counterpart.beta, counterpart.hidden) == (0.7, (4,))
    both = algorithms.configure("fed-iql")
    assert algorithms.for_space(both, CODES) is both


def test_an_algorithm_that_cannot_act_there_names_those_that_can():
    with pytest.raises(
        FovaError, match="fed-td3bc serves continuous actions only, but these are discrete"
    ) as error:
        algorithms.for_space(algorithms.configure("fed-td3bc"), CODES)
    assert str(error.value).endswith("choose one of cql-fl, fed-bc, fed-iql, fedora, fova.")


# --- A user's file ---

GOOD = """
from dataclasses import dataclass
from fova import algorithms

@dataclass(frozen=True)
class Mine(algorithms.get("fed-bc")):
    name = "mine"
"""


def written(folder, text):
    file = folder / "mine.py"
    file.write_text(text)
    return str(file)


def test_an_algorithm_of_the_users_own_is_found_by_its_path(tmp_path):
    kind = algorithms.get(written(tmp_path, GOOD))
    assert (kind.__name__, kind.name) == ("Mine", "mine")
    assert algorithms.preset_values(str(tmp_path / "mine.py")) == {}
    (tmp_path / "again.py").write_text(GOOD + "Same = Mine\nclass Part(Mine): ...\n")
    assert algorithms.get(str(tmp_path / "again.py")).__name__ == "Mine", (
        "another word for it, and no name of its own"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", "holds 0 algorithms, but exactly one is needed"),
        (GOOD + GOOD.replace("Mine", "Other"), "holds 2 algorithms"),  # of one name
        (GOOD + GOOD.replace("Mine", "Other").replace("mine", "other"), "holds 2 algorithms"),
        (GOOD.replace("(frozen=True)", ""), "cannot be used as an algorithm"),  # Python refuses it itself
        ("class Mine:\n    name = 'mine'", "Mine in .* must be a frozen dataclass"),
        (
            "import dataclasses\n@dataclasses.dataclass\nclass A:\n    name = 'a'",
            "A in .* must be a frozen dataclass",
        ),
        (
            "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass A:\n    name = 'a'\n    stride = 1",
            "A in .* lacks mergeable, action_spaces, batch_size, discount, reward_unit, .* data_changed",
        ),
        ("x = 1\nx +", "Line 2: SyntaxError: invalid syntax"),
        ("x = 1\n\nraise KeyError('y')", "Line 3: KeyError: 'y'"),
        ("import sys\nsys.exit(3)", "Line 2: SystemExit: 3"),
        ("exec('x +')", "Line 1: SyntaxError: invalid syntax .*string"),  # an error of another text
    ],
)
def test_a_file_that_holds_no_algorithm_says_why(tmp_path, text, words):
    with pytest.raises(FovaError, match=words):
        algorithms.get(written(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FovaError, match=r"There is no algorithm file .*nowhere"):
        algorithms.get(str(tmp_path / "nowhere.py"))
