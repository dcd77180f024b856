"""An ONNX graph under construction: nodes, constants, inputs and outputs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from fova.errors import FovaError

try:
    from onnx import TensorProto, checker, helper, numpy_helper
except ImportError as error:
    raise FovaError(
        "Exporting to ONNX needs the package onnx. Install it with: pip install 'fova[onnx]'"
    ) from error

__all__ = ["Graph", "TensorProto", "checker", "helper"]  # others import onnx from here, for the message above

BATCH = "batch"


class Graph:
    """Nodes and constants in the order in which they were added. A value is known by the name that is returned.

    Names inside the graph start with a slash, so that they cannot be those of inputs, which users choose.
    """

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def constant(self, name: str, value: ArrayLike, kind: DTypeLike = np.float32) -> str:
        inside = f"/{name}"
        self.constants[inside] = numpy_helper.from_array(np.array(value, kind, order="C"), inside)
        return inside

    def add(self, operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """The name of the node's result. `name`, if it is given, is what a runtime calls the node."""
        return self.add_several(operator, inputs, [output], **attributes)[0]

    def add_several(
        self, operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
    ) -> list[str]:
        """The names of the results of a node with several."""
        inside = [f"/{output}" for output in outputs]
        self.nodes.append(helper.make_node(operator, inputs, inside, **{"name": inside[0]} | attributes))
        return inside

    def input(self, name: str, kind: int, *shape: int) -> str:
        """An input with a row for each member of the batch."""
        self.inputs.append(helper.make_tensor_value_info(name, kind, [BATCH, *shape]))
        return name

    def output(self, name: str, value: str, kind: int, *shape: int) -> None:
        """Show a value outside under this name."""
        self.nodes.append(helper.make_node("Identity", [value], [name], name=f"/{name}"))
        self.outputs.append(helper.make_tensor_value_info(name, kind, [BATCH, *shape]))
