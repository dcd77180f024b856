"""The former name of `fova.experiments.execution.run_entry`, until the commands import that."""

from fova.experiments.execution import run_entry as conduct

__all__ = ["conduct"]
