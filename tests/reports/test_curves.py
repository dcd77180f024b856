import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex

from fova.errors import FovaError
from fova.reports import curves, palette
from fova.reports.groups import read_groups
from fova.reports.series import Votes, votes
from made_runs import described, entries, make_run, result, start_run


@pytest.fixture
def seeds(tmp_path):
    return read_groups([make_run(tmp_path / f"{seed}", seed) for seed in range(3)])


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
    other = read_groups([make_run(tmp_path / "other", algorithm="fed-bc")])
    names = [path.name for path in curves.write_plots([*seeds, *other], tmp_path / "plots", ["svg"])]
    assert names == [
        "learning-curve.svg", "server-and-clients-fova.svg", "votes-fova.svg", "server-and-clients-other.svg",
    ]  # fmt: skip
    same = read_groups([make_run(tmp_path / "again/other", algorithm="fed-bc", reward_scale=0.5)])
    names = [path.name for path in curves.write_plots([*other, *same], tmp_path / "plots", ["svg"])]
    assert names == ["learning-curve.svg", "server-and-clients-1-other.svg", "server-and-clients-2-other.svg"]


def test_without_a_played_policy_the_returns_of_the_data_are_drawn(tmp_path):
    group = read_groups([make_run(tmp_path / "files", task=None)])
    names = [path.name for path in curves.write_plots(group, tmp_path / "plots", ["svg"])]
    assert names == ["returns-of-the-data.svg", "votes.svg"]
    assert curves.learning_figure(group, "critic_loss").axes[0].get_title() == "own data (one seed)"
    (axes,) = curves.returns_figure(group[0]).axes
    (marks,) = axes.get_lines()
    assert list(marks.get_ydata()) == list(axes.get_yticks()) == [0, 1]  # every mark on its client's line


def test_the_curve_its_band_and_the_level_of_the_data(seeds):
    (axes,) = curves.learning_figure(seeds).axes
    curve, level = axes.get_lines()
    runs = [record.directory for record in seeds[0].records]
    along = [[line["server"]["return"] for line in entries(run) if "server" in line] for run in runs]
    returns = np.array([[*seed, result(run)["server"]] for seed, run in zip(along, runs)])
    assert curve.get_ydata() == pytest.approx(returns.mean(axis=0))
    data = [[client["behaviour_return"] for client in described(run).values()] for run in runs]
    assert level.get_ydata()[0] == pytest.approx(np.mean(data))
    (band,) = axes.collections
    heights = band.get_paths()[0].vertices[:, 1]
    # with three seeds, the band reaches from the lowest to the highest
    assert (heights.min(), heights.max()) == pytest.approx((returns.min(), returns.max()))
    assert axes.get_title() == "maze2d-umaze (3 seeds. Bands: lowest to highest seed)"


def test_votes_are_stacked_in_the_colours_of_the_candidates(seeds):
    figure = curves.vote_figure(votes(seeds[0]))
    assert [axes.get_title() for axes in figure.axes] == ["expert-1", "random-1"]
    colours = [to_hex(area.get_facecolor()[0]) for area in figure.axes[0].collections]
    assert colours == [palette.BLUE.lower(), palette.ORANGE.lower(), palette.GREEN.lower()]
    top = figure.axes[0].collections[-1].get_paths()[0].vertices[:, 1].max()
    assert top == pytest.approx(1.0)


@pytest.mark.parametrize("clients", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("style", curves.STYLES)
def test_the_legend_of_the_votes_is_whole(clients, style):
    shares = {voter: [1 / 3, 1 / 3] for voter in palette.VOTERS}
    look, size = curves.STYLES[style]
    with matplotlib.rc_context({**curves.LOOK, **look, "figure.figsize": size}):
        figure = curves.vote_figure([Votes(f"ward-{i}", [1.0, 2.0], shares, []) for i in range(clients)])
        figure.draw_without_rendering()
        (legend,) = figure.legends
        box = legend.get_window_extent()
    assert figure.bbox.x0 <= box.x0
    assert box.x1 <= figure.bbox.x1
    assert not any(box.overlaps(axes.get_tightbbox()) for axes in figure.axes if axes.get_visible())


def test_what_cannot_be_drawn_is_said(seeds, tmp_path):
    with pytest.raises(FovaError, match="png"):
        curves.write_plots(seeds, tmp_path / "plots", ["gif"])
    run = start_run(tmp_path / "files", task=None, algorithm="fed-bc")
    with pytest.raises(FovaError, match="nothing to draw"):
        curves.write_plots(read_groups([run]), tmp_path / "plots")


def test_a_legend_covers_nothing(seeds, tmp_path):
    other = read_groups([make_run(tmp_path / "other", algorithm="fed-bc")])
    for look, size in curves.STYLES.values():
        with matplotlib.rc_context({**curves.LOOK, **look, "figure.figsize": size}):
            for figure in (curves.learning_figure([*seeds, *other]), curves.returns_figure(seeds[0])):
                figure.draw_without_rendering()
                (legend,) = figure.legends
                boxes = [axes.get_tightbbox() for axes in figure.axes]
                assert not any(legend.get_window_extent().overlaps(box) for box in boxes)
                assert all(axes.get_legend() is None for axes in figure.axes)


def test_another_metric_is_drawn_alone(seeds, tmp_path):
    written = curves.write_plots(seeds, tmp_path / "plots", ["svg"], metric="critic_loss")
    assert [path.name for path in written] == ["curve-critic-loss.svg"]
    (axes,) = curves.learning_figure(seeds, "critic_loss").axes
    (curve,) = axes.get_lines()
    runs = [record.directory for record in seeds[0].records]
    losses = [
        [np.mean([client["critic_loss"] for client in line["clients"].values()]) for line in entries(run)[1:]]
        for run in runs
    ]
    assert curve.get_ydata() == pytest.approx(np.mean(losses, axis=0))
    assert axes.get_ylabel() == "critic loss"
    with pytest.raises(FovaError, match="Did you mean 'critic_loss'"):
        curves.write_plots(seeds, tmp_path / "plots", ["svg"], metric="critic_los")


def test_size_and_style(seeds, tmp_path):
    written = curves.write_plots(seeds, tmp_path / "plots", ["svg"], "score", (4.0, 2.5), "paper")
    text = written[0].read_text()
    assert 'width="288pt" height="180pt"' in text  # 72 points an inch
    assert "serif" in text
    with pytest.raises(FovaError, match="Did you mean 'paper'"):
        curves.write_plots(seeds, tmp_path / "plots", ["svg"], style="papr")
