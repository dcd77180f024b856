import pytest

from fova.errors import FovaError
from fova.experiments.specifications import Case, Entry, Scale, Variant, line_of
from fova.federation.client_specs import ClientSpec

RUN = {"rounds": 4, "local_steps": 2}


def entry(cases, variants, **scale):
    made = Scale("tiny", **{"seeds": 1, "run": RUN, **scale})
    return Entry("made-up", "Made up", tuple(cases), tuple(variants), {"tiny": made}), made


def test_every_case_with_every_variant_and_seed_one_seed_after_the_other():
    cases = [Case("A & b", "hopper", ("expert",)), Case("c", "hopper", ("random",), variants=(line_of("fed-bc"),))]
    made, scale = entry(cases, [line_of("fova"), line_of("fed-bc", "local")], seeds=2)
    names = [run.name for run in made.runs(scale)]
    assert names == [
        "a-b-fova-seed-0", "a-b-fed-bc-local-seed-0", "c-fed-bc-seed-0",
        "a-b-fova-seed-1", "a-b-fed-bc-local-seed-1", "c-fed-bc-seed-1",
    ]  # fmt: skip
    assert made.runs(scale)[4].config.run.mode == "local"
    assert made.runs(scale)[4].config.run.seed == 1


def test_what_is_nearer_to_the_line_wins():
    case = Case("a", "hopper", ("expert", ClientSpec("random", 7)), 50, settings={"lam": 2.0, "beta": 1.0}, at=2.0)
    line = Variant("x", "fova", "released", {"beta": 9.0}, {"aggregation": "size"}, paper="fova")
    made, scale = entry([case], [line, line_of("fed-bc")], settings={"hidden": (8,), "lam": 1.0}, most_rows=20)
    run, bc = made.runs(scale)
    config = run.config
    assert (config.algorithm.lam, config.algorithm.beta, config.algorithm.hidden) == (2.0, 9.0, (8,))
    assert config.algorithm.td_scale == 1.0  # the preset's
    assert [client.size for client in config.clients] == [20, 7]
    assert config.run.aggregation == "size"
    assert (run.at, run.paper) == (2.0, ("a", "fova"))
    assert bc.config.algorithm.hidden == (8,)  # and no lam, which it does not have
    assert bc.paper is None


def test_few_cases_are_spread_over_all():
    cases = [Case(str(n), "hopper", ("expert",)) for n in range(9)]
    made, scale = entry(cases, [line_of("fed-bc")], most_cases=3)
    assert [run.case for run in made.runs(scale)] == ["0", "4", "8"]


def test_the_scale_in_words():
    scale = Scale("tiny", 3, {"rounds": 1000, "local_steps": 2}, {"hidden": (16, 8)})
    assert scale.words() == "scale tiny: 1,000 rounds of 2 local steps, networks 16×8, 3 seeds"


def test_two_runs_of_one_name_are_refused():
    made, scale = entry([Case("a", "hopper", ("expert",))], [line_of("fova"), Variant("FOVA", "fova", "released")])
    with pytest.raises(FovaError, match="fova-seed-0"):
        made.runs(scale)


def test_unknown_settings_are_named():
    made, scale = entry([Case("a", "hopper", ("expert",))], [Variant("x", "fova", settings={"lamda": 1.0})])
    with pytest.raises(FovaError, match="'lambda'"):
        made.runs(scale)
    with pytest.raises(FovaError, match="scale"):
        made.scale("huge")
