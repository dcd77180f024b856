"""TensorBoard events: every known figure is a scalar."""

from fova.run.events import EventLog


def test_the_figures_of_a_task_are_scalars_beside_the_return(tmp_path):
    played = {"return": -20.0, "score": None, "measures": {"time in range": 0.95}}
    with EventLog(tmp_path, after=0) as events:
        events.write({"round": 3, "server": played, "clients": {}, "client_play": {"north": played}})
    (file,) = tmp_path.glob("events.out.tfevents.*")
    written = file.read_bytes()
    for tag in (b"server/return", b"server/time_in_range", b"return/north", b"time_in_range/north"):
        assert tag in written
    assert b"score" not in written
    assert b"measures" not in written
