"""What one answer of a deployed policy costs: in Python, as an ONNX file, over HTTP. Called by `bench.py`."""

import http.client
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnxruntime
from playing_and_loading import untrained
from turns import Timer, now, ratios, spread, take_turns

from fova.deploy.answers import Answers
from fova.deploy.graph import policy_model
from fova.deploy.service import Limits, Service
from fova.policy import Floats, Policy
from fova.tasks import registry

TASK = "halfcheetah"
CALLS = {1: 300, 256: 30}  # rows of a request -> calls of a turn


def deployed(turns: int) -> dict[str, Any]:
    """Microseconds of an answer by rows of the request, and how many times as long as `policy(observation)`."""
    policy = untrained(registry.get(TASK), seed=0)
    with _service(policy) as service:
        return {str(rows): _compared(policy, service, rows, turns) for rows in CALLS}


def _compared(policy: Policy, service: Service, rows: int, turns: int) -> dict[str, Any]:
    observations = np.random.default_rng(0).standard_normal((rows, policy.space.observation), np.float32)
    timers = {
        "policy(observation)": _timer(lambda: policy(observations), CALLS[rows]),
        "ONNX Runtime": _onnx(policy, observations),
        "HTTP service": _http(service, observations),
    }
    seconds = take_turns(timers, turns)
    plain = seconds["policy(observation)"]
    return {
        name: {"microseconds": spread([1e6 * s for s in values]), "times": ratios(values, plain)}
        for name, values in seconds.items()
    }


def _timer(work: Any, calls: int) -> Timer:
    def timer() -> float:
        began = now()
        for _ in range(calls):
            work()
        return (now() - began) / calls

    return timer


def _onnx(policy: Policy, observations: Floats) -> Timer:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    content = policy_model(policy).SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return _timer(lambda: session.run(["action"], {"observation": observations}), CALLS[len(observations)])


def _http(service: Service, observations: Floats) -> Timer:
    """Client and service in one process, on one connection: the client's share is part of the figure."""
    connection = http.client.HTTPConnection(service.server_name, service.server_port)
    connection.connect()
    rows = observations.tolist()
    body = json.dumps({"observations": rows} if len(rows) > 1 else {"observation": rows[0]})

    def ask() -> None:
        connection.request("POST", "/act", body)
        response = connection.getresponse()
        content = json.loads(response.read())
        assert response.status == 200, content

    return _timer(ask, CALLS[len(observations)])


@contextmanager
def _service(policy: Policy) -> Iterator[Service]:
    service = Service(Answers(policy), "127.0.0.1", 0, Limits(bytes=10_000_000, idle_seconds=600))
    thread = threading.Thread(target=service.serve_forever)
    thread.start()
    try:
        yield service
    finally:
        service.shutdown()
        thread.join()
        service.stop()


if __name__ == "__main__":
    print(json.dumps(deployed(5), indent=1))
