"""A policy as an ONNX graph, written node by node: raw observations or records in, actions in the user's units out.

The graph computes what `Policy.__call__` computes, in the same order. A row that `Policy` refuses is refused by the
graph, too: see `_guarded`.
"""

import json
from typing import Any, Literal

import numpy as np

from fova.deploy.nodes import Graph, TensorProto, checker, helper
from fova.deploy.record_inputs import CATEGORY_OPERATORS, encoded
from fova.policy import LARGEST_INPUT, LAYER_NORM_EPSILON, NORMALISER, Policy, insist_on_sound_weights
from fova.spaces import Box, Discrete
from fova.version import __version__

# The first version of the operators that has LayerNormalization, so that old runtimes can read the file.
OPERATORS, CATEGORY_VERSION, FILE_VERSION = 17, 2, 8
OBSERVATION, ACTION, PROBABILITIES, VALID = "observation", "action", "probabilities", "valid"
# The code of no discrete action. -1 would be taken for the last one as a Python index.
NO_CODE = np.iinfo(np.int64).min
# A runtime that fails names the node. This name is what a person reads.
REFUSED = "an observation is missing, not finite or too large for this policy"

OnInvalid = Literal["error", "flag"]


def policy_model(policy: Policy, on_invalid: OnInvalid = "error") -> Any:
    """The policy as an ONNX model.

    Input: `observation`, float [batch, columns]; for a policy that was trained on tables one input for each column
    of a record, float or text [batch]. Outputs: `action`, float [batch, size], and `valid`, bool [batch]. Discrete
    actions are codes, int64 [batch], and have `probabilities`, float [batch, count].

    For a row with a missing (NaN), infinite or far too large number, `on_invalid` decides: "error" makes the
    runtime fail; "flag" answers the other rows, and this one with `valid` false and NaN (or `NO_CODE`) as action.
    """
    insist_on_sound_weights(policy)
    graph = Graph()
    if policy.inputs is None:
        observation = graph.input(OBSERVATION, TensorProto.FLOAT, policy.space.observation)
    else:
        observation = encoded(graph, policy.inputs, (ACTION, PROBABILITIES, VALID))
    rows = _normalised(graph, policy, observation)
    good, zeros = _guarded(graph, rows, policy.space.observation, on_invalid)
    outputs = _network(graph, policy, rows)
    if zeros is not None:
        outputs = graph.add("Add", [outputs, zeros], "checked")
    if isinstance(policy.space.action, Discrete):
        _choose(graph, outputs, good, policy.space.action.count)
    else:
        _act(graph, outputs, good, policy.space.action, policy.kind)
    graph.output(VALID, graph.add("Squeeze", [good, _column(graph)], "valid_rows"), TensorProto.BOOL)
    return _model(graph, policy, on_invalid)


def _column(graph: Graph) -> str:
    return graph.constant("column", [1], np.int64)


def _normalised(graph: Graph, policy: Policy, observation: str) -> str:
    if NORMALISER[0] not in policy.weights:
        return observation
    mean, std = (graph.constant(name, policy.weights[name]) for name in NORMALISER)
    return graph.add("Div", [graph.add("Sub", [observation, mean], "centred"), std], "normalised")


def _guarded(graph: Graph, rows: str, columns: int, on_invalid: OnInvalid) -> tuple[str, str | None]:
    """Which rows the network can take, bool [batch, 1], and zeros [batch, 1] that exist for these rows only.

    ONNX has no node that raises an error. Zeros are looked up in a table with one entry, at place 0 for good rows
    and 1 for bad ones: place 1 does not exist, and a runtime that checks its indices fails there. The result is
    added to what actions are computed from, so no optimiser leaves the look-up out. Where a runtime does not check,
    `valid` is false and the action NaN.
    """
    most = graph.constant("largest_input", LARGEST_INPUT)
    small = graph.add("LessOrEqual", [graph.add("Abs", [rows], "size_of_input"), most], "is_small")  # NaN is not
    bad = graph.add("Cast", [graph.add("Not", [small], "is_bad")], "bad", to=TensorProto.FLOAT)
    # A product counts them: ONNX Runtime's reductions give a wrong shape for a batch of no rows.
    number = graph.add("MatMul", [bad, graph.constant("ones", np.ones((columns, 1)))], "number_of_bad")
    good = graph.add("Equal", [number, graph.constant("none", 0)], "is_valid")
    if on_invalid == "flag":
        return good, None
    table = graph.constant("only_entry", [0])
    place = graph.add("Cast", [graph.add("Not", [good], "is_invalid")], "place", to=TensorProto.INT64)
    return good, graph.add("Gather", [table, place], "zeros", name=REFUSED, axis=0)


def _network(graph: Graph, policy: Policy, x: str) -> str:
    """Linear, LayerNorm where there is one, ReLU; the last layer is linear only."""
    weights = policy.weights
    hidden = sum(name.startswith("layers.") and name.endswith(".weight") for name in weights)
    for i in range(hidden):
        x = _linear(graph, policy, f"layers.{i}", x)
        if f"norms.{i}.scale" in weights:
            scaling = [graph.constant(name, weights[name]) for name in (f"norms.{i}.scale", f"norms.{i}.shift")]
            x = graph.add(
                "LayerNormalization", [x, *scaling], f"norms.{i}.out", axis=-1, epsilon=LAYER_NORM_EPSILON
            )
        x = graph.add("Relu", [x], f"relu.{i}.out")
    return _linear(graph, policy, "last", x)


def _linear(graph: Graph, policy: Policy, layer: str, x: str) -> str:
    weight, bias = (graph.constant(name, policy.weights[name]) for name in (f"{layer}.weight", f"{layer}.bias"))
    return graph.add("Gemm", [x, weight, bias], f"{layer}.out")


def _act(graph: Graph, outputs: str, good: str, box: Box, kind: str) -> None:
    """The best actions in the user's units; the spread of a Gaussian policy is left out."""
    if kind != "deterministic":
        first, end = graph.constant("first", [0], np.int64), graph.constant("end", [box.size], np.int64)
        outputs = graph.add("Slice", [outputs, first, end, _column(graph)], "mean")
    low, high = box.bounds
    unit = graph.add("Tanh", [outputs], "unit_action")
    above = graph.add("Add", [unit, graph.constant("one", 1)], "above_lowest")
    scaled = graph.add("Mul", [above, graph.constant("half_range", 0.5 * (high - low))], "in_units")
    action = graph.add("Add", [graph.constant("action_low", low), scaled], "action_in_units")
    known = graph.add("Where", [good, action, graph.constant("no_action", np.nan)], "known_action")
    graph.output(ACTION, known, TensorProto.FLOAT, box.size)


def _choose(graph: Graph, logits: str, good: str, count: int) -> None:
    """The code of the most probable action, and the probabilities of all."""
    # As ArgMax, of which ONNX Runtime gives a wrong shape for a batch of no rows.
    _, best = graph.add_several("TopK", [logits, _column(graph)], ["largest", "best"], axis=-1)
    code = graph.add("Where", [good, best, graph.constant("no_code", NO_CODE, np.int64)], "code_column")
    graph.output(ACTION, graph.add("Squeeze", [code, _column(graph)], "code"), TensorProto.INT64)
    shares = graph.add("Softmax", [logits], "shares", axis=-1)
    known = graph.add("Where", [good, shares, graph.constant("no_shares", np.nan)], "known_shares")
    graph.output(PROBABILITIES, known, TensorProto.FLOAT, count)


def _model(graph: Graph, policy: Policy, on_invalid: OnInvalid) -> Any:
    made = helper.make_graph(
        graph.nodes, "fova_policy", graph.inputs, graph.outputs, list(graph.constants.values())
    )
    operators = [helper.make_opsetid("", OPERATORS)]
    if policy.inputs is not None:
        operators.append(helper.make_opsetid(CATEGORY_OPERATORS, CATEGORY_VERSION))
    model = helper.make_model(made, opset_imports=operators, ir_version=FILE_VERSION, producer_name="fova")
    model.producer_version = __version__
    about: dict[str, Any] = policy.facts | {
        "kind": policy.kind,
        "space": policy.space.to_json(),
        "on_invalid": on_invalid,
    }
    if isinstance(policy.space.action, Discrete):
        about["action_names"] = list(policy.space.action.names)
    if policy.inputs is not None:
        about["inputs"] = policy.inputs.to_json()
    helper.set_model_props(model, {name: _text(value) for name, value in about.items()})
    checker.check_model(model, full_check=True)
    return model


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
