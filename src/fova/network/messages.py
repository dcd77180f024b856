"""The wire format: the content of every message between server and clients, as Flower records.

    hello (query)   server -> client   ConfigRecord about: version, run, plan (JSON)
                    client -> server   ConfigRecord about: version, run, client
                                       ArrayRecord  statistics: rows, episodes, terminals, reward_sum,
                                                    reward_squares, reward_deviations, behaviour_return and, if
                                                    observations are normalised, total, squares (not under privacy)
    round (train)   server -> client   ConfigRecord about: version, run, plan, round, counted, fingerprint
                                       ArrayRecord  broadcast:  actor/..., critic/..., extra/...
                                       ArrayRecord  frame: mean, std, reward_unit
                    client -> server   ConfigRecord about: version, run, client, round, fingerprint
                                       ArrayRecord  parameters: actor/..., critic/..., extra/...
                                                    (in the form that the plan's envelope encodes)
                                       MetricRecord metrics: submission/log_weight and the algorithm's metrics
    any refusal     client -> server   ConfigRecord about: version, run, client, refused (the reason in words)

`round` counts from 0. `counted` is the number of finished rounds when the server last accepted a submission of this
client; the client continues from the state that it saved then. A reply with another run, round or fingerprint than
the request is stale. A reply with any other record, array or metric is refused. Nothing else is ever sent.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from fova.algorithms.base import Submission
from fova.data.normalise import Normaliser, Sums
from fova.errors import FovaError
from fova.federation.statistics import ClientStatistics, Statistics
from fova.federation.wire import from_named_arrays, named_arrays
from fova.network.plan import Plan
from fova.version import __version__

HELLO, ROUND = "query", "train"  # Flower's names for the two kinds of message
COUNTS = ("rows", "episodes", "terminals")
NUMBERS = (*COUNTS, "reward_sum", "reward_squares", "reward_deviations", "behaviour_return")
WEIGHT = "submission/log_weight"  # sent among the metrics, under a name that no metric uses


class Refused(FovaError):
    """The other side refuses the message. The text gives the reason."""


# --- From the server ---


def hello(plan: Plan) -> RecordDict:
    return RecordDict({"about": _about(plan.run_id, plan=plan.to_json())})


def round_question(plan: Plan, number: int, counted: int, broadcast: Any, statistics: Statistics) -> RecordDict:
    about = _about(plan.run_id, plan=plan.to_json(), round=number, counted=counted, fingerprint=plan.fingerprint())
    frame: dict[str, NDArray[Any]] = {
        "mean": statistics.normaliser.mean,
        "std": statistics.normaliser.std,
        "reward_unit": np.asarray(statistics.reward_unit, np.float64),
    }
    return RecordDict({"about": about, "broadcast": _record(named_arrays(broadcast)), "frame": _record(frame)})


def read_plan(content: RecordDict) -> Plan:
    """The plan in a server's message. If the message has a fingerprint, the plan must match it."""
    about = _config(content)
    if about.get("version") != __version__:
        raise Refused(
            f"The server runs fova {about.get('version')}, but this client has fova {__version__}. "
            "Install the same version on both."
        )
    plan = Plan.from_json(str(about["plan"]))
    if "fingerprint" in about and about["fingerprint"] != plan.fingerprint():
        raise Refused(
            "The server's plan does not match its fingerprint, so the two sides would compute differently."
        )
    return plan


def read_round_question(content: RecordDict, plan: Plan, broadcast_like: Any) -> tuple[int, int, Any, Statistics]:
    """The round, the round of the client's last accepted state, the broadcast and the federation's statistics."""
    about = _config(content)
    broadcast = from_named_arrays(_arrays(content, "broadcast"), broadcast_like)
    frame = _arrays(content, "frame")
    columns = (plan.space.observation,)
    if {name: array.shape for name, array in frame.items()} != {"mean": columns, "std": columns, "reward_unit": ()}:
        raise Refused(f"The normaliser does not fit observations of {plan.space.observation} numbers.")
    statistics = Statistics(Normaliser(frame["mean"], frame["std"]), float(frame["reward_unit"]))
    if not (np.isfinite(statistics.reward_unit) and statistics.reward_unit > 0.0):
        raise Refused(f"The unit of reward is {statistics.reward_unit}, but must be a number above 0.")
    return int(about["round"]), int(about["counted"]), broadcast, statistics


# --- From a client ---


def hello_answer(plan: Plan, client: str, statistics: ClientStatistics | None) -> RecordDict:
    records: dict[str, Any] = {"about": _about(plan.run_id, client=client)}
    if statistics is not None:
        arrays = {name: np.asarray(getattr(statistics, name), np.float64) for name in NUMBERS}
        if statistics.observations is not None:
            arrays |= {"total": statistics.observations.total, "squares": statistics.observations.squares}
        records["statistics"] = _record(arrays)
    return RecordDict(records)


def round_answer(plan: Plan, number: int, client: str, sent: Submission) -> RecordDict:
    about = _about(plan.run_id, client=client, round=number, fingerprint=plan.fingerprint())
    metrics = {WEIGHT: sent.log_weight, **sent.metrics}
    return RecordDict(
        {
            "about": about,
            "parameters": _record(named_arrays(sent.parameters)),
            "metrics": MetricRecord({name: float(value) for name, value in metrics.items()}),
        }
    )


def refusal(run_id: str, client: str, reason: str) -> RecordDict:
    return RecordDict({"about": _about(run_id, client=client, refused=reason)})


def read_client(content: RecordDict, plan: Plan) -> str:
    """The name of the client that replies. Raises `Refused` for a refusal or a reply to another run."""
    about = _config(content)
    if "refused" in about:
        raise Refused(f"refused: {about['refused']}")
    if about.get("version") != plan.version:
        raise Refused(f"it runs fova {about.get('version')}, but the server fova {plan.version}")
    if about.get("run") != plan.run_id:
        raise Refused(f"stale: it answers run {about.get('run')}, not {plan.run_id}")
    return str(about["client"])


def read_statistics(content: RecordDict, plan: Plan) -> ClientStatistics | None:
    """The statistics in the reply to a hello. They must be present if the plan asks for them, and absent if not."""
    _insist_on_records(content, {"about", "statistics"} if plan.gathers_statistics else {"about"})
    if not plan.gathers_statistics:
        return None
    arrays = _arrays(content, "statistics")
    columns = {"total": (plan.space.observation,), "squares": (plan.space.observation,)}
    expected = dict.fromkeys(NUMBERS, ()) | (columns if plan.run.normalise else {})
    if {name: array.shape for name, array in arrays.items()} != expected:
        raise Refused(f"its statistics are not {', '.join(expected)} of {plan.space.observation} columns")
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise Refused("its statistics are not finite")
    numbers = {name: float(arrays[name]) for name in NUMBERS}
    counts = {name: int(numbers[name]) for name in COUNTS}
    if not (counts["rows"] >= 1 and 0 <= counts["terminals"] <= counts["episodes"] <= counts["rows"]):
        raise Refused("its statistics count more episodes than rows, or more ends than episodes")
    sums = Sums(counts["rows"], arrays["total"], arrays["squares"]) if plan.run.normalise else None
    return ClientStatistics(**numbers | counts, observations=sums)  # type: ignore[arg-type]


def read_round_answer(content: RecordDict, plan: Plan, number: int, like: Submission) -> Submission:
    """The submission in a reply. The reply must be for round `number` and hold exactly the expected records."""
    about = _config(content)
    if about.get("round") != number:
        raise Refused(f"stale: it answers round {about.get('round')}, not {number}")
    if about.get("fingerprint") != plan.fingerprint():
        raise Refused("it follows another plan: the fingerprints differ")
    _insist_on_records(content, {"about", "parameters", "metrics"})
    parameters = from_named_arrays(_arrays(content, "parameters"), like.parameters)
    metrics = {name: np.asarray(value, np.float32) for name, value in content.metric_records["metrics"].items()}
    if set(metrics) != {WEIGHT, *like.metrics}:
        raise Refused(f"its metrics are {', '.join(sorted(metrics))}, which is not what was asked for")
    return Submission(parameters, metrics.pop(WEIGHT), metrics)  # type: ignore[arg-type]


# --- Records ---


def _about(run_id: str, **facts: Any) -> ConfigRecord:
    return ConfigRecord({"version": __version__, "run": run_id, **facts})


def _config(content: RecordDict) -> dict[str, Any]:
    if "about" not in content.config_records:
        raise Refused("the message does not say what it is about")
    return dict(content.config_records["about"])


def _record(arrays: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def _arrays(content: RecordDict, name: str) -> dict[str, NDArray[Any]]:
    if name not in content.array_records:
        raise Refused(f"the message has no {name}")
    return {key: array.numpy() for key, array in content.array_records[name].items()}


def _insist_on_records(content: RecordDict, expected: set[str]) -> None:
    if set(content) != expected:
        raise Refused(
            f"the message holds {', '.join(sorted(content))}, but {', '.join(sorted(expected))} are expected"
        )
