"""Pictures of policies that play. Films show fresh policies: a policy need not be trained to be drawn."""

import io
import subprocess
from types import SimpleNamespace
from unittest.mock import Mock

import jax
import numpy as np
import pytest

from fova.data.normalise import Normaliser
from fova.federation.client_specs import ClientSpec
from fova.networks import make_actor
from fova.policy import from_actor
from fova.reports import film
from fova.reports.groups import read_groups
from fova.reports.maze import panels_figure
from fova.reports.scenes import Scene, scene
from fova.spaces import Space
from made_runs import make_run, start_run

WARDS = (ClientSpec("ward-1.npz"), ClientSpec("ward-2.npz"))


def save_policy(run, space):
    actor = make_actor(jax.random.key(0), space, "clipped", (8,))
    from_actor(actor, Normaliser.identity(space.observation), space).save(run / "policy.safetensors")


def picture_of(run):
    return scene(read_groups([run])[0])


# --- Mazes ---


def test_a_maze_shows_the_best_and_the_worst_data_and_the_policy(tmp_path, monkeypatch):
    run = make_run(tmp_path / "maze")
    draw = Mock(wraps=panels_figure)
    monkeypatch.setattr("fova.reports.scenes.panels_figure", draw)
    assert picture_of(run).png.startswith(b"\x89PNG")
    task, panels = draw.call_args.args
    assert task == "maze2d-umaze"
    assert [title for title, _ in panels] == ["Data of expert-1", "Data of random-1", "The server's policy, fova"]
    assert [len(trajectory) for trajectory in panels[-1][1]] == [301] * 6


def test_data_that_has_moved_leaves_the_policy_to_be_drawn(tmp_path):
    run = start_run(tmp_path / "maze", clients=WARDS)
    save_policy(run, Space.unit(4, 2))
    picture = picture_of(run)
    assert isinstance(picture, Scene)
    assert "The clients' data cannot be drawn: " in picture.caption
    assert "ward-1.npz" in picture.caption


def test_no_picture_without_a_policy_or_for_a_task_that_has_none(tmp_path):
    assert picture_of(start_run(tmp_path / "maze")) == "No picture of fova: there is no server's policy in maze."
    assert picture_of(start_run(tmp_path / "wards", task=None)) is None


# --- Films ---


@pytest.fixture
def hopper(tmp_path):
    run = start_run(tmp_path / "hopper", task="hopper")
    save_policy(run, Space.unit(11, 3))
    return run


def test_a_film_is_rendered_where_a_renderer_is(hopper):
    try:
        shown = film.film(hopper, "hopper")
    except film.NoRenderer as reason:
        pytest.skip(f"no renderer: {reason}")
    assert shown.frames.shape == (len(shown.times), film.HEIGHT, film.WIDTH, 3)
    assert shown.times[0] == 0
    assert shown.times[-1] == shown.length
    assert shown.frames[0].std() > 10  # there is something to be seen
    assert not np.array_equal(shown.frames[0], shown.frames[-1])  # and it moves


def test_without_a_renderer_a_note_says_why(hopper, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    note = picture_of(hopper)
    assert note.startswith("No film of fova: MuJoCo cannot render here: ")
    assert "GLContext" in note


def test_a_driver_that_hangs_or_ends_the_process_is_survived(hopper, monkeypatch):
    def hang(*arguments, timeout, **options):
        raise subprocess.TimeoutExpired("python", timeout)

    monkeypatch.setattr(film.subprocess, "run", hang)
    assert picture_of(hopper) == "No film of fova: rendering took longer than 180 seconds."
    monkeypatch.setattr(film.subprocess, "run", lambda *a, **o: SimpleNamespace(returncode=-11, stderr=b""))
    assert picture_of(hopper) == "No film of fova: MuJoCo cannot render here: exit code -11."


def test_the_frames_become_a_strip_with_their_times(hopper, monkeypatch):
    frames = np.arange(6, dtype=np.uint8).reshape(6, 1, 1, 1).repeat(3, axis=3)
    times = np.array([0, 2, 4, 6, 8, 10])
    file = io.BytesIO()
    np.savez(file, frames=frames, times=times, episode_return=12.5, length=10)
    answer = SimpleNamespace(returncode=0, stdout=file.getvalue())
    monkeypatch.setattr(film.subprocess, "run", lambda *a, **o: answer)
    picture = picture_of(hopper)
    assert picture.caption == "One episode of the server's policy of fova (seed 0): return 12.5 in 10 steps."
    figure = film.strip_figure(film.film(hopper, "hopper"), "title")
    shown = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title() for axes in shown] == [f"step {time}" for time in times]
    assert [int(axes.images[0].get_array()[0, 0, 0]) for axes in shown] == list(range(6))
    assert len(figure.axes) == 8  # two rows of four, the last two empty
