"""`fova export`: a policy as a file for other programs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from fova.commands.flags import parse
from fova.commands.terminal import Terminal


@dataclass(frozen=True)
class ExportOptions:
    """Write a policy as a file for other programs: raw observations in, actions in your units out.

    The file holds everything: the observation normaliser, the network and the bounds of actions. Its inputs and
    outputs are described in docs/using-a-policy.md.
    """

    run: Path
    """The run's directory, for instance runs/wards, or a policy's .safetensors file."""
    format: Literal["onnx"] = "onnx"
    """The kind of file: onnx, which ONNX Runtime and many other programs read."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """The file to write (default: beside the policy, with the ending .onnx)."""
    on_invalid: Literal["error", "flag"] = "error"
    """What happens to an observation that is missing (NaN), infinite or far too large. error: the call fails,
    for the whole batch. flag: the output `valid` is false for that row, and its action is NaN (a code: -2^63)."""


def command(arguments: list[str]) -> None:
    options = parse(ExportOptions, "fova export", arguments, positional=True)
    from fova.deploy.export import export_onnx
    from fova.policy import load_policy

    policy = load_policy(options.run)
    beside = options.run / "policy.safetensors" if options.run.is_dir() else options.run
    path = options.output or beside.with_suffix(".onnx")
    difference = export_onnx(policy, path, options.on_invalid)
    terminal = Terminal()
    terminal.write_line(f"{options.format}     {path}")
    records = policy.inputs.inputs if policy.inputs is not None else ()
    terminal.write_line(f"takes    {', '.join(each.name for each in records) or policy.space.words()}")
    unit = "probability" if policy.kind == "categorical" else "an action's range"
    found = f"at most {difference:.0e} of {unit} from the policy" if difference else "no difference from the policy"
    terminal.write_line(f"checked  on 64 observations: {found}")
