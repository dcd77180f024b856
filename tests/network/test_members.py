"""Offences, the bench and the door, by hand."""

from fova.network.members import Door, Record


def test_a_member_is_out_at_its_last_offence():
    record = Record(eject_after=3)
    assert [record.offend("east") for _ in range(4)] == [False, False, True, False]
    assert record.is_out("east")
    assert not record.is_out("north")
    never = Record(eject_after=0)
    assert not any(never.offend("east") for _ in range(100))
    assert not never.is_out("east")


def test_the_bench_grows_with_every_silence_and_ends_with_an_answer():
    record, here = Record(0), {"a": 1, "b": 2, "c": 3}
    asked, number = [], 0
    while number < 20:
        if "c" in record.playing(here, number, 2):
            asked.append(number)
            record.missed(["c"], number)
        number += 1
    assert asked == [0, 2, 5, 10, 19]
    record.answered(["c"])
    assert "c" in record.playing(here, 20, 2)
    record.missed(["c"], 20)
    assert "c" not in record.playing(here, 21, 2), "it starts with one round again"
    assert "c" in record.playing(here, 22, 2)


def test_who_is_needed_is_asked_from_the_bench():
    record, here = Record(0), {"a": 1, "b": 2}
    record.missed(["b"], 0)
    assert set(record.playing(here, 1, 1)) == {"a"}
    assert set(record.playing(here, 1, 2)) == {"a", "b"}
    record.missed(["a"], 0)
    assert set(record.playing(here, 1, 1)) == {"a", "b"}


def test_the_door_stays_shut_longer_every_time():
    door, now, opened = Door(), 0.0, []
    for _ in range(8):
        door.refuse(7, now)
        opened.append(door.until[7] - now)
        assert 7 in door.closed(now + opened[-1] - 1)
        now += opened[-1]
        assert 7 not in door.closed(now)
    assert opened == [60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_nobody_sits_out_more_than_64_rounds():
    record = Record(0)
    for _ in range(6):
        record.missed(["c"], 0)
    assert record.benched["c"] == 33  # rounds 1 to 32
    record.missed(["c"], 100)
    assert record.benched["c"] == 165
    record.missed(["c"], 200)
    assert record.benched["c"] == 265


def test_the_offence_that_counts_puts_a_member_out_at_once():
    record = Record(eject_after=2)
    record.offend("east")
    assert not record.is_out("east")
    record.offend("east")
    assert record.is_out("east")
    strict = Record(eject_after=1)
    assert not strict.is_out("east")
    assert strict.offend("east")
    assert strict.is_out("east")


def test_who_was_never_silent_plays_from_the_first_round_on():
    record = Record(0, benched={"b": 1})
    assert record.playing({"a": 1, "b": 2}, 0, 1) == {"a": 1}
    assert record.playing({"a": 1, "b": 2}, 1, 1) == {"a": 1, "b": 2}
