import numpy as np
import pytest
from matplotlib.colors import to_hex

from fova.errors import FovaError
from fova.reports import curves, palette
from fova.reports.records import read_groups
from fova.reports.series import votes
from made_runs import make_run


@pytest.fixture
def seeds(tmp_path):
    return read_groups([make_run(tmp_path / f"{seed}", seed, shift=3.0 * seed) for seed in range(3)])


def test_every_picture_in_every_format(seeds, tmp_path):
    written = curves.write_plots(seeds, tmp_path / "plots")
    stems = ("learning-curve", "server-and-clients", "votes")
    assert [path.name for path in written] == [f"{stem}.{form}" for stem in stems for form in ("png", "svg", "pdf")]
    beginnings = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    assert all(path.read_bytes().startswith(beginnings[path.suffix[1:]]) for path in written)
    assert b">gradient steps of each client<" in (tmp_path / "plots/votes.svg").read_bytes()  # text stays text


def test_equal_runs_give_equal_files(seeds, tmp_path):
    first, second = (curves.write_plots(seeds, tmp_path / name, ["svg", "pdf"]) for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_several_settings_have_a_file_each_but_share_the_curves(seeds, tmp_path):
    other = read_groups([make_run(tmp_path / "other", algorithm="fedora")])
    names = [path.name for path in curves.write_plots([*seeds, *other], tmp_path / "plots", ["svg"])]
    assert names == [
        "learning-curve.svg", "server-and-clients-1-fova.svg", "votes-1-fova.svg",
        "server-and-clients-2-fedora.svg",
    ]  # fmt: skip


def test_the_curve_its_band_and_the_level_of_the_data(seeds):
    (axes,) = curves.learning_figure(seeds).axes
    curve, level = axes.get_lines()
    assert curve.get_ydata() == pytest.approx([3.0, 9.0, 15.0, 21.0, 27.0, 33.0])
    assert level.get_ydata()[0] == 25.0
    (band,) = axes.collections
    assert np.ptp(band.get_paths()[0].vertices[:, 1]) == pytest.approx(36.0)  # from 0 at first to 36 at the end
    assert axes.get_title() == "maze2d-umaze (3 seeds, bands: 95% intervals)"


def test_votes_are_stacked_in_the_colours_of_the_candidates(seeds):
    figure = curves.vote_figure(votes(seeds[0]))
    assert [axes.get_title() for axes in figure.axes] == ["expert-1", "random-1"]
    colours = [to_hex(area.get_facecolor()[0]) for area in figure.axes[0].collections]
    assert colours == [palette.BLUE.lower(), palette.ORANGE.lower(), palette.GREEN.lower()]
    top = figure.axes[0].collections[-1].get_paths()[0].vertices[:, 1].max()
    assert top == pytest.approx(1.0)


def test_what_cannot_be_drawn_is_said(seeds, tmp_path):
    with pytest.raises(FovaError, match="png"):
        curves.write_plots(seeds, tmp_path / "plots", ["gif"])
    run = make_run(tmp_path / "wards", task=None, algorithm="fed-bc")
    (run / "clients.json").write_text("{}")
    with pytest.raises(FovaError, match="nothing to draw"):
        curves.write_plots(read_groups([run]), tmp_path / "plots")
