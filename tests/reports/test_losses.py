"""What the report says about losses, with figures that are made up: no run is trained here."""

from types import SimpleNamespace

import pytest

from fova.reports.losses import HARMLESS, in_a_row, losses_in_words
from fova.run.records import RoundRecord


def record(losses, seed=0):
    """A run of one client per name; `losses` are its actor's and critic's loss, round by round."""
    lengths = {len(actor) for actor, _ in losses.values()}
    (rounds,) = lengths
    lines = [RoundRecord(0, {})]
    for i in range(rounds):
        metrics = {
            name: {"actor_loss": actor[i], "critic_loss": critic[i]} for name, (actor, critic) in losses.items()
        }
        lines.append(RoundRecord(i + 1, metrics))
    return SimpleNamespace(rounds=tuple(lines), seed=seed)


def words(*records):
    return losses_in_words(SimpleNamespace(records=records))


FLAT = [5.0] * 10


def ends(first, last):
    """Ten rounds: the first fifth and the last fifth have these means, the rest is far away."""
    return [first - 1, first + 1, *[900.0] * 6, last - 2, last + 2]


def test_losses_within_bounds_are_not_worth_a_word():
    assert words(record({"north": (FLAT, FLAT)})) == []
    assert words(record({"north": (ends(5, 50), ends(5, 50))})) == [], "tenfold is not more than tenfold"
    assert words(record({"north": (FLAT, [0.1] * 8 + [9.9] * 2)})) == [], "losses below 1 count as 1"


def test_an_actors_loss_that_grows_alone_is_explained():
    (sentence,) = words(record({"north": (ends(5, 51), FLAT), "south": (FLAT, FLAT)}))
    assert sentence == (
        f"The actor's loss rose to more than ten times its first size at north (from 5 to 51). {HARMLESS}"
    )


def test_a_loss_may_be_negative():
    assert words(record({"north": (ends(7, -40), ends(-5, -500))})) == [], "a loss that falls has not grown"
    assert words(record({"north": (ends(-5, 50), ends(-500, -5))})) == []
    (sentence,) = words(record({"north": (ends(-5, 51), FLAT)}))
    assert "at north (from -5 to 51)" in sentence
    # The first fifth has the size 20, although its mean is 0.
    assert words(record({"north": ([-20.0, 20.0, *[0.0] * 6, 199.0, 201.0], FLAT)})) == []
    (sentence,) = words(record({"north": ([-20.0, 20.0, *[0.0] * 6, 200.0, 202.0], FLAT)}))
    assert "at north (from 0 to 201)" in sentence


def test_a_critics_loss_that_grows_is_a_sign_of_divergence():
    critics, actors = words(record({"north": (ends(5, 51), ends(2, 21)), "south": (FLAT, ends(1, 2_000_000))}))
    named = "north (from 2 to 21) and south (from 1 to 2e+06)"
    assert critics.startswith(
        f"The critics' loss exploded: it rose to more than ten times its first size at {named}. "
    )
    assert "lower the learning rates" in critics
    assert actors.endswith("at north (from 5 to 51). Together with the critics' loss this is a sign of divergence.")


def test_short_runs_are_compared_by_their_first_and_last_round():
    (sentence,) = words(record({"north": (FLAT[:4], [1.0, 7.0, 7.0, 11.0])}))
    assert "north (from 1 to 11)" in sentence


def test_losses_that_are_not_finite_are_named_with_their_first_round():
    broken = [5.0, 5.0, float("nan"), float("inf"), *[5.0] * 6]
    (sentence,) = words(record({"north": (ends(5, 51), FLAT), "south": (FLAT, broken)}))
    assert sentence.startswith("Training diverged: from round 3 on the losses of south are not finite numbers.")
    (sentence,) = words(record({"north": (broken, FLAT), "south": (FLAT, FLAT)}))
    assert "losses of north are" in sentence


def test_several_seeds_are_told_apart():
    grown = {"north": (ends(5, 51), FLAT)}
    (first, second) = words(record(grown, seed=3), record(grown, seed=4))
    assert first.startswith("The actor's loss rose to more than ten times its first size (seed 3) at north")
    assert "(seed 4)" in second


def test_large_losses_are_shown_with_three_digits():
    (sentence,) = words(record({"a": (FLAT, ends(1, 999_999)), "b": (FLAT, ends(1, 1_000_000))}))
    assert "a (from 1 to 999,999) and b (from 1 to 1e+06)" in sentence
    (sentence,) = words(record({"a": (FLAT, ends(1, 1_500_000))}))
    assert "a (from 1 to 1.5e+06)" in sentence


def test_a_loss_that_was_not_logged_counts_as_0():
    lines = [RoundRecord(i, {"north": {"critic_loss": 1.0}}) for i in range(1, 9)]
    lines += [RoundRecord(9, {"north": {"critic_loss": 21.0}}), RoundRecord(10, {"north": {}})]
    (sentence,) = words(SimpleNamespace(rounds=tuple(lines), seed=0))
    assert "north (from 1 to 10)" in sentence  # the mean of 21 and 0 is 10.5, which is rounded to even


def test_a_client_that_joined_later_or_left_is_not_compared():
    late = RoundRecord(1, {"north": {"critic_loss": 1.0}}), RoundRecord(2, {"south": {"critic_loss": 99.0}})
    assert words(SimpleNamespace(rounds=late, seed=0)) == []


@pytest.mark.parametrize(
    ("names", "sentence"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")]
)
def test_names_in_a_sentence(names, sentence):
    assert in_a_row(names) == sentence
