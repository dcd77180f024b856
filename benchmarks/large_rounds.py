"""Memory of a server in rounds of some hundreds of answers, each through Flower's own byte format.

    python benchmarks/large_rounds.py [--answers 16 64 256 512] [--against OTHER/src]

A grid in this process stands in for the network: every question and answer becomes the bytes that Flower sends, and
is read again by the server's real code. Each figure is a fresh process. `--against` names the source of another
version. Also called by `bench.py`.
"""

import argparse
import inspect
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ANSWERS = (16, 64, 256, 512)
HIDDEN = (512, 512)
ROWS = 1000


def large_rounds(answers: tuple[int, ...] = ANSWERS, source: Path | None = None) -> dict[str, Any]:
    """Peak memory of a round in megabytes and its seconds, for each number of answers."""
    path = str((source or Path(__file__).parent.parent / "src").resolve())
    found = {}
    for count in answers:
        command = [sys.executable, __file__, "--one", str(count)]
        printed = subprocess.check_output(command, env=os.environ | {"PYTHONPATH": path}, text=True)
        found[str(count)] = json.loads(printed.splitlines()[-1])
    return found


def _one(count: int) -> dict[str, float]:
    """One round of so many answers in this process."""
    from flwr.supercore.task_identity import TaskIdentity

    from fova.algorithms import configure
    from fova.federation.wire import payload_bytes
    from fova.network.engine import FlowerEngine
    from fova.network.server_config import ServerConfig, make_plan
    from fova.progress import Quiet
    from fova.run.config import Config, RunConfig

    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
    config = Config(None, (), configure("fed-bc", hidden=HIDDEN), "fed-bc", RunConfig(rounds=1, local_steps=1))
    network = ServerConfig(observation=17, action=6, min_clients=count, deadline=3600.0)
    plan = make_plan(config, network, "0" * 32)
    with tempfile.TemporaryDirectory() as folder:
        knows_folders = "folder" in inspect.signature(FlowerEngine).parameters
        options: dict[str, Any] = {"folder": Path(folder) / "answers"} if knows_folders else {}
        engine = FlowerEngine(_grid(plan, count), plan, network, Quiet(), **options)
        engine.prepare(None)
        state = engine.start()
        before, began = _peak(), time.perf_counter()
        _, report = engine.round(state)
    assert len(report.metrics if hasattr(report, "metrics") else report[0]) == count
    return {
        "message_megabytes": payload_bytes(engine.like) / 1e6,
        "megabytes_before": before,
        "megabytes": _peak(),
        "seconds": time.perf_counter() - began,
    }


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _grid(plan: Any, count: int) -> Any:
    """A grid of so many clients. It makes an answer when it is fetched, and keeps none."""
    import jax
    import numpy as np
    from flwr.app import Message
    from flwr.serverapp import Grid
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

    from fova.algorithms.base import Submission
    from fova.data.normalise import Sums
    from fova.federation.statistics import ClientStatistics
    from fova.network import messages

    like, broadcast = plan.submission_like(), plan.start()[1].broadcast
    columns = np.ones(plan.space.observation)
    told = ClientStatistics(ROWS, 10, 5, 100.0, 50.0, 40.0, 10.0, Sums(ROWS, columns, ROWS * columns))

    def answer(kind: str, node: int) -> Any:
        name = f"client-{node:05d}"
        if kind == messages.HELLO:
            return messages.hello_answer(plan, name, told)
        rng = np.random.default_rng(node)
        moved = jax.tree.map(
            lambda leaf: (np.asarray(leaf) + 1e-3 * rng.standard_normal(leaf.shape)).astype(leaf.dtype), broadcast
        )
        metrics = dict.fromkeys(like.metrics, np.float32(ROWS))
        return messages.round_answer(plan, 0, name, Submission(moved, np.float32(0.0), metrics))

    def over_the_wire(message: Any) -> Any:
        contents = {name: item.deflate() for name, item in get_all_nested_objects(message).items()}
        arrived = inflate_object_from_contents(message.object_id, contents)
        arrived.metadata.__dict__["_message_id"] = message.object_id
        return arrived

    class Loopback(Grid):  # type: ignore[misc]
        def __init__(self) -> None:
            self.asked: dict[str, tuple[str, int]] = {}

        def push_messages(self, asked: Any) -> list[str]:
            for message in asked:
                message.metadata.__dict__["_message_id"] = message.object_id
                self.asked[message.object_id] = (message.metadata.message_type, message.metadata.dst_node_id)
            return [message.object_id for message in asked]

        def pull_messages(self, numbers: Any) -> list[Any]:
            replies = []
            for kind, node in (self.asked.pop(number) for number in numbers):
                reply = Message(answer(kind, node), dst_node_id=1, message_type=kind)
                reply.metadata.__dict__["_src_node_id"] = node
                replies.append(over_the_wire(reply))
            return replies

        def get_nodes(self) -> list[Any]:
            return [SimpleNamespace(node_id=node, name="") for node in range(2, count + 2)]

        def get_node_ids(self) -> list[int]:
            return [node.node_id for node in self.get_nodes()]

        set_run = create_message = send_and_receive = None
        run = None

    return Loopback()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", type=int, nargs="+", default=ANSWERS)
    parser.add_argument("--against", type=Path, metavar="SRC", help="the src folder of another version")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(_one(options.one)))
        return
    for name, source in {"this": None, "other": options.against}.items():
        if name == "this" or source is not None:
            for count, figures in large_rounds(tuple(options.answers), source).items():
                print(f"{name}, {count} answers: {figures}", flush=True)


if __name__ == "__main__":
    main()
