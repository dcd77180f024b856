"""An exported policy answers as `load_policy` does, and refuses what `load_policy` refuses."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest

from deploy.made_policies import CHOICE, KINDS, MEAN, SPACE, STD, make_policy, observations
from fova.deploy import export
from fova.deploy.export import export_onnx
from fova.deploy.graph import REFUSED, policy_model
from fova.errors import FovaError
from fova.policy import LARGEST_INPUT, load_policy, stack
from fova.recipe import Input, Recipe

LEVELS = onnxruntime.GraphOptimizationLevel


def session(model, level=LEVELS.ORT_ENABLE_ALL):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4  # failures are expected
    content = str(model) if not isinstance(model, onnx.ModelProto) else model.SerializeToString()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def answer(running, rows):
    return running.run(["action", "valid"], {"observation": rows})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("normaliser", [False, True])
def test_onnxruntime_gives_the_actions_of_the_saved_policy(tmp_path, kind, layer_norm, normaliser):
    make_policy(kind, layer_norm, normaliser).save(tmp_path / "policy.safetensors")
    policy = load_policy(tmp_path)
    difference = export_onnx(policy, tmp_path / "policy.onnx")
    assert difference < 1e-6
    running = session(tmp_path / "policy.onnx")
    for rows in (observations(6), observations(1), 1000 * observations(4), observations(6)[:0]):
        actions, valid = answer(running, rows)
        np.testing.assert_allclose(actions, policy(rows), rtol=1e-5, atol=1e-5)
        assert actions.shape == (len(rows), 2)
        assert valid.tolist() == [True] * len(rows)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("on_invalid", ["error", "flag"])
def test_discrete_actions_are_codes_with_probabilities_and_names(tmp_path, layer_norm, on_invalid):
    policy = make_policy("categorical", layer_norm, seed=4)
    assert export_onnx(policy, tmp_path / "policy.onnx", on_invalid) < 1e-6
    running = session(tmp_path / "policy.onnx")
    for rows in (observations(40), observations(1), observations(6)[:0]):
        codes, shares, valid = running.run(["action", "probabilities", "valid"], {"observation": rows})
        assert codes.dtype == np.int64
        np.testing.assert_array_equal(codes, policy(rows))
        np.testing.assert_allclose(shares, policy.probabilities(rows), atol=1e-5)
        assert valid.tolist() == [True] * len(rows)
    assert set(policy(observations(40))) == {0, 1, 2}
    assert json.loads(running.get_modelmeta().custom_metadata_map["action_names"]) == list(CHOICE.action.names)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_no_discrete_action_is_chosen_for_what_the_policy_refuses(bad):
    policy = make_policy("categorical")
    rows = observations()
    rows[2, 0] = bad
    for wanted in ("action", "probabilities"):
        with pytest.raises(Exception, match=REFUSED):
            session(policy_model(policy)).run([wanted], {"observation": rows})
    codes, shares, valid = session(policy_model(policy, "flag")).run(None, {"observation": rows})
    assert valid.tolist() == [True, True, False, True, True, True]
    assert np.isnan(shares[2]).all()
    with pytest.raises(IndexError):
        CHOICE.action.names[codes[2]]
    np.testing.assert_array_equal(codes[valid], policy(rows[valid]))


def test_an_action_by_hand():
    policy = make_policy("deterministic", layer_norm=False, hidden=())
    weights = policy.weights | {
        "last.weight": np.float32([[1, 0], [0, 0], [0, 2]]),
        "last.bias": np.float32([0, -0.5]),
    }
    model = policy_model(type(policy)(policy.kind, weights, SPACE))
    # normalised: (3 - 1) / 2 = 1, ignored, (75 - 60) / 15 = 1; actions between -1 and 3, 0 and 10
    actions, _ = answer(session(model), np.float32([[3, 8, 75]]))
    expected = [-1 + 2 * (np.tanh(1) + 1), 5 * (np.tanh(1.5) + 1)]
    np.testing.assert_allclose(actions, [expected], rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("level", [LEVELS.ORT_DISABLE_ALL, LEVELS.ORT_ENABLE_ALL])
def test_the_runtime_fails_on_what_the_policy_refuses_and_says_why(bad, level):
    policy = make_policy()
    running = session(policy_model(policy), level)
    rows = observations()
    rows[4, 1] = bad
    with pytest.raises(FovaError):
        policy(rows)
    with pytest.raises(Exception, match=REFUSED) as failed:
        answer(running, rows)
    assert "onnxruntime" in type(failed.value).__module__
    np.testing.assert_allclose(answer(running, rows[:4])[0], policy(rows[:4]), rtol=1e-5, atol=1e-5)  # still serves


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_flagged_rows_have_no_action_and_the_others_have_theirs(bad):
    policy = make_policy()
    rows = observations()
    rows[4, 1] = bad
    actions, valid = answer(session(policy_model(policy, "flag")), rows)
    assert valid.tolist() == [True, True, True, True, False, True]
    assert np.isnan(actions[4]).all()
    np.testing.assert_allclose(actions[valid], policy(rows[valid]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("on_invalid", ["error", "flag"])
def test_the_largest_observation_is_the_same(on_invalid):
    policy = make_policy(layer_norm=False, normaliser=False)
    running = session(policy_model(policy, on_invalid))
    rows = np.float32([[0, 0, LARGEST_INPUT * 0.99]])
    actions, valid = answer(running, rows)
    np.testing.assert_allclose(actions, policy(rows), rtol=1e-5, atol=1e-5)
    assert valid.all()


def test_the_file_says_what_it_is(tmp_path):
    export_onnx(make_policy(), tmp_path / "policy.onnx", "flag")
    model = onnx.load(tmp_path / "policy.onnx")
    about = {entry.key: entry.value for entry in model.metadata_props}
    assert about["kind"] == "clipped"
    assert json.loads(about["space"]) == SPACE.to_json()
    assert (about["task"], about["rounds"], about["on_invalid"]) == ("somewhere", "4", "flag")
    assert (model.producer_name, model.ir_version, model.opset_import[0].version) == ("fova", 8, 17)


def test_a_graph_that_differs_from_the_policy_is_not_written(tmp_path, monkeypatch):
    other = make_policy(seed=3)
    monkeypatch.setattr(export, "policy_model", lambda policy, on_invalid: policy_model(other, on_invalid))
    with pytest.raises(FovaError, match="differs from the policy"):
        export_onnx(make_policy(), tmp_path / "policy.onnx")
    assert list(tmp_path.iterdir()) == []


def test_stacked_policies_and_other_file_names_are_refused(tmp_path):
    with pytest.raises(FovaError, match="has shape"):
        policy_model(stack([make_policy(), make_policy(seed=1)]))
    with pytest.raises(FovaError, match=r"must end in \.onnx"):
        export_onnx(make_policy(), tmp_path / "policy.pb")


def test_the_command_writes_beside_the_policy_or_where_it_is_told(tmp_path, fova_command):
    make_policy().save(tmp_path / "policy.safetensors")
    code, out, err = fova_command("export", str(tmp_path))
    assert (code, err) == (0, "")
    assert str(tmp_path / "policy.onnx") in out
    assert "3 observation columns and 2 action columns" in out
    code, _, _ = fova_command("export", str(tmp_path / "policy.safetensors"), "-o", str(tmp_path / "a/b.onnx"))
    assert code == 0
    assert (tmp_path / "a/b.onnx").read_bytes() == (tmp_path / "policy.onnx").read_bytes()
    code, _, err = fova_command("export", str(tmp_path / "nothing"))
    assert (code, "There is no policy at" in err) == (2, True)


def test_exporting_needs_no_jax_and_says_when_onnx_is_missing(tmp_path):
    make_policy().save(tmp_path / "policy.safetensors")
    program = f"""
import sys
for name in {{missing!r}}:
    sys.modules[name] = None  # importing it fails
sys.argv = ["fova", "export", {str(tmp_path)!r}]
from fova.commands.main import main
main()
"""
    for missing, code, words in ((["jax", "onnxruntime"], 0, ""), (["onnx"], 2, "pip install 'fova[onnx]'")):
        ended = subprocess.run(
            [sys.executable, "-c", program.format(missing=missing)], capture_output=True, text=True, check=False
        )
        assert (ended.returncode, words in ended.stderr) == (code, True), ended.stderr
        assert "Traceback" not in ended.stderr


# --- What a file is compared on ---


def test_the_comparison_is_made_where_training_was():
    drawn = np.random.default_rng(0).standard_normal((64, 3), np.float32)
    np.testing.assert_array_equal(export._plausible(make_policy()), MEAN + STD * drawn)
    np.testing.assert_array_equal(export._plausible(make_policy(normaliser=False)), drawn)


def test_records_of_the_comparison_have_every_category_and_gaps_where_they_are_filled():
    recipe = Recipe(
        (
            Input("hr"),
            Input("lactate", "mean", mean=1.5),
            Input("ward", "unknown", categories=("north", "south")),
            Input("sex", categories=("f", "m")),
            Input("age"),
        )
    )
    numbers = np.arange(7 * recipe.width, dtype=np.float32).reshape(7, -1)
    records, columns = export._records(recipe, numbers)
    strange = "a category that no client had"
    assert recipe.width == 10  # hr; lactate and whether it is missing; three places of each category; age
    assert columns["hr"].tolist() == numbers[:, 0].tolist()
    assert columns["age"].tolist() == numbers[:, 9].tolist()
    assert np.isnan(columns["lactate"]).tolist() == [True, False, False, True, False, False, True]
    assert columns["lactate"][1] == numbers[1, 1]
    assert columns["ward"].tolist() == ["north", "south", strange, "", "north", "south", strange]
    assert columns["sex"].tolist() == ["f", "m", strange, "f", "m", strange, "f"]
    assert [record["hr"] for record in records] == numbers[:, 0].tolist()
    assert records[4] == {name: values[4] for name, values in columns.items()}


def test_the_difference_is_a_share_of_the_range_of_an_action():
    policy = make_policy()
    low, high = policy.space.action.bounds
    rows = export._plausible(policy)
    other = replace(policy, weights=policy.weights | {"last.bias": policy.weights["last.bias"] + 0.05})
    expected = (np.abs(other(rows) - policy(rows)) / (high - low)).max()
    assert expected > export.TOLERANCE
    assert export._difference(policy, policy_model(other, "error")) == pytest.approx(expected, rel=1e-3)
