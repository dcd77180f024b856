"""A recipe as nodes of an ONNX graph: one input for each column of a record, one row of numbers out.

A number is a float input; NaN stands for a missing one. A category is a text input; the empty text, a text of
blanks and "nan" stand for a missing one. So do the values that training was told to take for missing ones. A
missing value that the recipe does not replace becomes NaN in the observation, which is refused.
"""

import numpy as np

from fova.deploy.nodes import Graph, TensorProto
from fova.errors import FovaError
from fova.recipe import NO_VALUE, Input, Recipe

CATEGORY_OPERATORS = "ai.onnx.ml"
BLANKS = tuple(" " * number for number in range(1, 65))  # no operator removes blanks, so these texts are listed


def encoded(graph: Graph, recipe: Recipe, reserved: tuple[str, ...]) -> str:
    """The observation, float [batch, width], of the inputs that are added for the recipe's columns."""
    for each in recipe.inputs:
        if each.name in reserved or each.name.startswith("/"):
            raise FovaError(
                f"The column {each.name!r} cannot be the name of an input, because the file has an output or a "
                "node of this name. Rename the column and train again."
            )
    axis = graph.constant("record_axis", [1], np.int64)
    parts = [part for each in recipe.inputs for part in _places(graph, each, axis)]
    return graph.add("Concat", parts, "record", axis=1)


def _places(graph: Graph, each: Input, axis: str) -> list[str]:
    """The numbers that a column becomes, [batch, 1] or [batch, places] each."""
    if each.categories is not None:
        return [_one_hot(graph, each, each.categories, axis)]
    given = graph.input(each.name, TensorProto.FLOAT)
    value = _without_marks(graph, each, graph.add("Unsqueeze", [given, axis], f"{each.name}/given"))
    if not each.has_indicator:
        return [value]
    absent = graph.add("IsNaN", [value], f"{each.name}/is_missing")
    mean = graph.constant(f"{each.name}/mean", each.mean or 0.0)
    filled = graph.add("Where", [absent, mean, value], f"{each.name}/filled")
    return [filled, graph.add("Cast", [absent], f"{each.name}/missing", to=TensorProto.FLOAT)]


def _without_marks(graph: Graph, each: Input, value: str) -> str:
    """The numbers, NaN where one marks a missing value."""
    nan = graph.constant(f"{each.name}/nan", np.nan) if each.missing_numbers else ""
    for place, number in enumerate(sorted(each.missing_numbers)):
        mark = graph.constant(f"{each.name}/mark.{place}", number)
        marked = graph.add("Equal", [value, mark], f"{each.name}/is_mark.{place}")
        value = graph.add("Where", [marked, nan, value], f"{each.name}/without_mark.{place}")
    return value


def _one_hot(graph: Graph, each: Input, categories: tuple[str, ...], axis: str) -> str:
    """One for the place of the category; NaN everywhere where it is missing and may not be."""
    given = graph.input(each.name, TensorProto.STRING)
    known = {category: code for code, category in enumerate(categories)}
    code_of_none = len(categories) if each.missing == "unknown" else NO_VALUE
    known |= dict.fromkeys((*sorted(each.missing_labels), *BLANKS), code_of_none)
    code = graph.add(
        "LabelEncoder",
        [given],
        f"{each.name}/code",
        domain=CATEGORY_OPERATORS,
        keys_strings=list(known),
        values_int64s=list(known.values()),
        default_int64=len(categories),
    )
    column = graph.add("Unsqueeze", [code, axis], f"{each.name}/code_column")
    places = graph.constant(f"{each.name}/places", np.arange(len(categories) + 1)[None], np.int64)
    there = graph.add("Equal", [column, places], f"{each.name}/there")
    ones = graph.add("Cast", [there], f"{each.name}/ones", to=TensorProto.FLOAT)
    none = graph.constant(f"{each.name}/no_value", NO_VALUE, np.int64)
    absent = graph.add("Equal", [column, none], f"{each.name}/is_missing")
    return graph.add("Where", [absent, graph.constant(f"{each.name}/nan", np.nan), ones], f"{each.name}/one_hot")
