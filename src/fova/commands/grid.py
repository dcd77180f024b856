"""Options of the commands that train many runs: how many at a time, on which machines, which part of them."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from fova.errors import FovaError
from fova.settings import Within

if TYPE_CHECKING:
    from fova.experiments.execution import Execution
    from fova.experiments.parts import Part

MOST_JOBS = 1000


@dataclass(frozen=True)
class GridOptions:
    """Where the runs are trained. Machines that share the folder can join with the same command; see
    docs/cluster.md."""

    jobs: Annotated[int | None, Within(1, MOST_JOBS)] = None
    """Runs that are trained at the same time, each with one thread (default: one per core)."""
    shard: str | None = None
    """i/n: train only the i-th of n equal shares of the runs (default: in a job array of Slurm the task's own
    share, else all)."""
    on: Literal["here", "ray"] = "here"
    """Train on this machine or on a Ray cluster. Needs the extra ray, and a folder that all machines share."""
    address: str | None = None
    """Address of the Ray cluster (default: the one that this machine belongs to)."""
    dry_run: bool = False
    """Print what would be run, and run nothing."""
    plain: bool = False
    """Print plain lines instead of a live display."""

    def execution(self, part: "Part | None" = None, keep: tuple[Path, ...] = ()) -> "Execution":
        """The same for the runner."""
        from fova.experiments.execution import Execution
        from fova.experiments.parts import EVERYTHING, Shard

        if self.address == "":
            raise FovaError("--address is empty. Leave it out for the cluster that this machine belongs to.")
        if self.address is not None and self.on != "ray":
            raise FovaError("--address is for a Ray cluster. Add: --on ray")
        if self.jobs is not None and self.on == "ray":
            raise FovaError(
                "--jobs is for this machine. With --on ray, one run is trained on each core of the cluster. Leave "
                "--jobs out."
            )
        given = Shard.parse(self.shard) if self.shard is not None else None
        mine = given if given or self.on == "ray" else Shard.of_slurm(os.environ)
        return Execution(
            jobs=self.jobs,
            part=part or EVERYTHING,
            shard=mine,
            on=self.on,
            address=self.address,
            keep=keep,
            dry_run=self.dry_run,
            plain=self.plain,
        )
