import json

from made_runs import make_run

TINY = ("--hidden", 8, "--batch-size", 8, "--rounds", 2, "--local-steps", 2, "--quiet")


def test_a_trained_run_becomes_a_page_and_pictures(fova_command, tmp_path):
    flags = ("--task", "maze2d-umaze", "--clients", "expert", "random", "--size", 400, "--evaluate-every", 1)
    few = ("--episodes", 1, "--final-episodes", 1, "--evaluate-clients")
    assert fova_command("train", *flags, *few, *TINY, "--name", "one")[0] == 0
    code, out, err = fova_command("report", "runs/one", "-o", "one.html")
    assert (code, err) == (0, "")
    assert out.splitlines() == ["... playing fova for its picture", "report   one.html"]
    page = (tmp_path / "one.html").read_text()
    result = json.loads((tmp_path / "runs/one/result.json").read_text())
    assert f"the server's policy earns {result['server']['return']:,.1f} (normalised score" in page.replace(
        "&#x27;", "'"
    )
    assert "Server against clients, over training" in page
    assert "data:image/png;base64," in page
    code, out, err = fova_command("plot", "runs", "-o", "plots", "--format", "svg")
    assert (code, err) == (0, "")
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {
        "learning-curve.svg", "server-and-clients-over-training.svg", "server-and-clients.svg", "votes.svg",
    }  # fmt: skip
    assert out.count("picture  plots/") == 4


def test_without_pictures_nothing_is_played(fova_command, tmp_path):
    make_run(tmp_path / "runs/one")
    code, out, _ = fova_command("report", "runs/one", "--no-pictures", "--output", "one.html")
    assert (code, out) == (0, "report   one.html\n")
    assert "data:image/png" not in (tmp_path / "one.html").read_text()


def test_without_a_name_the_page_goes_where_the_other_commands_put_it(fova_command, tmp_path):
    for name in ("one", "two"):
        make_run(tmp_path / "runs" / name)
    assert fova_command("report", "runs/one", "--no-pictures")[1] == "report   runs/one/report.html\n"
    assert fova_command("report", "runs", "--no-pictures")[1] == "report   runs/report.html\n"
    assert fova_command("report", "runs/one", "runs/two", "--no-pictures")[1] == "report   report.html\n"
    for place in ("runs/one", "runs", "."):
        assert (tmp_path / place / "report.html").is_file()


def test_mistakes_end_in_one_message(fova_command, tmp_path):
    for command in ("report", "plot"):
        code, _, err = fova_command(command, "runs/nowhere")
        assert code == 2
        assert "runs/nowhere is neither a run's directory nor a folder of runs" in err
        assert "Traceback" not in err
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/config.toml").write_text("[run]\nrounds = 'many'\n")
    code, _, err = fova_command("report", "broken")
    assert code == 2
    assert "rounds" in err
