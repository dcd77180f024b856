"""The wire format: the content of every message between server and clients, as Flower records.

    survey (query)  server -> client   ConfigRecord about: version, run, columns (JSON); only if clients hold tables
                    client -> server   ConfigRecord about: version, run, client, survey (JSON): the kind of every
                                                    column, the values of each category, and a count and a sum of
                                                    each column whose mean stands in for missing values
    hello (query)   server -> client   ConfigRecord about: version, run, plan (JSON)
                    client -> server   ConfigRecord about: version, run, client
                                       ArrayRecord  statistics: rows, episodes, terminals, reward_sum,
                                                    reward_squares, reward_deviations, behaviour_return and, if
                                                    observations are normalised, total, squares (not under privacy);
                                                    where a policy is judged, reward_range: powers of two;
                                                    if rows are weighted, counted_rows (the sum of the weights)
                                                    and low_of_all, a low reward
    round (train)   server -> client   ConfigRecord about: version, run, plan, round, counted, fingerprint
                                       ArrayRecord  broadcast:  actor/..., critic/..., extra/...
                                       ArrayRecord  frame: mean, std, reward_unit, reward_zero
                    client -> server   ConfigRecord about: version, run, client, round, fingerprint
                                       ArrayRecord  parameters: actor/..., critic/..., extra/...
                                                    (in the form that the plan's envelope encodes)
                                       MetricRecord metrics: submission/log_weight and the algorithm's metrics
    figures (evaluate), after the rounds in which a policy is judged
                    server -> client   ConfigRecord about: version, run, plan, fingerprint
                                       ArrayRecord  broadcast: critic/...
                    client -> server   ConfigRecord about: version, run, client, fingerprint
                                       MetricRecord figures: those of `fova.evaluation.judging.verdict.Figures`
    any refusal     client -> server   ConfigRecord about: version, run, client, refused (the reason in words)

`round` counts from 0. `counted` is the number of finished rounds when the server last accepted a submission of this
client; the client continues from the state that it saved then. A reply with another run, round or fingerprint than
the request is stale. A reply with any other record, array or metric is refused. Nothing else is ever sent.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from fova.algorithms.base import Submission
from fova.data.normalise import Normaliser, Sums
from fova.data.sampling import LEAST_WEIGHT, SPREADS_BELOW
from fova.data.tables.columns import Columns
from fova.data.tables.survey import Survey
from fova.evaluation.judging.verdict import Figures
from fova.federation.statistics import ClientStatistics, Statistics
from fova.federation.wire import expected_arrays, from_named_arrays, named_arrays
from fova.network import intake
from fova.network.intake import Refused, one_line
from fova.network.plan import Plan
from fova.settings import LARGEST, MOST_ROWS
from fova.version import __version__

LONGEST_SURVEY = 10_000_000  # characters
HELLO, ROUND, FIGURES = "query", "train", "evaluate"  # Flower's names for the kinds of message
COUNTS = ("rows", "episodes")
NUMBERS = (*COUNTS, "terminals", "reward_sum", "reward_squares", "reward_deviations", "behaviour_return")
OF_WEIGHTED_ROWS = ("counted_rows", "low_of_all")  # where policies learn more often from some rows
FIGURE_NAMES = tuple(field.name for field in fields(Figures))
UNKNOWN: dict[str, Any] = {field.name: np.nan for field in fields(Figures) if field.default is not None}
LOWEST_OF_ALL = (1 + 2 * SPREADS_BELOW) * LARGEST  # a mean and so many deviations, each at most twice the largest
ROUNDING = 1e-3  # of sums of weights; a billion rows have less
WEIGHT = "submission/log_weight"  # sent among the metrics, under a name that no metric uses


class SaidNo(Refused):
    """A client says in words why it takes no part. It is no offence."""


# --- From the server ---


def survey_question(run_id: str, columns: Columns) -> RecordDict:
    return RecordDict({"about": _about(run_id, columns=json.dumps(columns.to_table(), sort_keys=True))})


def read_survey_question(content: RecordDict) -> Columns | None:
    """The mapping that a server asks about; None if the message is no survey."""
    about = _config(content)
    if "columns" not in about:
        return None
    _insist_on_version(about)
    return Columns.of(json.loads(str(about["columns"])))


def hello(plan: Plan) -> RecordDict:
    return RecordDict({"about": _about(plan.run_id, plan=plan.to_json())})


def round_question(plan: Plan, number: int, counted: int, broadcast: Any, statistics: Statistics) -> RecordDict:
    return round_questions(plan, number, broadcast, statistics)(counted)


def round_questions(plan: Plan, number: int, broadcast: Any, statistics: Statistics) -> Callable[[int], RecordDict]:
    """The question of a round for a client whose last accepted state is `counted`. All share the same arrays."""
    facts = {"plan": plan.to_json(), "round": number, "fingerprint": plan.fingerprint()}
    frame: dict[str, NDArray[Any]] = {
        "mean": statistics.normaliser.mean,
        "std": statistics.normaliser.std,
        "reward_unit": np.asarray(statistics.reward_unit, np.float64),
        "reward_zero": np.asarray(statistics.reward_zero, np.float64),
    }
    records = {"broadcast": _record(named_arrays(broadcast)), "frame": _record(frame)}
    return lambda counted: RecordDict({"about": _about(plan.run_id, **facts, counted=counted), **records})


def read_plan(content: RecordDict) -> Plan:
    """The plan in a server's message. If the message has a fingerprint, the plan must match it."""
    about = _config(content)
    _insist_on_version(about)
    plan = Plan.from_json(str(about["plan"]))
    if "fingerprint" in about and about["fingerprint"] != plan.fingerprint():
        raise Refused(
            "The server's plan does not match its fingerprint, so the two sides would compute differently."
        )
    return plan


def _insist_on_version(about: Mapping[str, Any]) -> None:
    if about.get("version") != __version__:
        raise Refused(
            f"The server runs fova {about.get('version')}, but this client has fova {__version__}. "
            "Install the same version on both."
        )


def read_round_question(content: RecordDict, plan: Plan, broadcast_like: Any) -> tuple[int, int, Any, Statistics]:
    """The round, the round of the client's last accepted state, the broadcast and the federation's statistics."""
    about = _config(content)
    expected = expected_arrays(broadcast_like)
    broadcast = from_named_arrays(_arrays(content, "broadcast", expected), broadcast_like)
    columns = (plan.space.observation,)
    shapes = dict.fromkeys(("mean", "std"), (columns, np.float32)) | dict.fromkeys(
        ("reward_unit", "reward_zero"), ((), np.float64)
    )
    try:
        frame = _arrays(content, "frame", shapes)
    except Refused as error:
        if "frame" not in content.array_records:
            raise
        raise Refused(f"The normaliser does not fit observations of {columns[0]} numbers: {error}") from error
    unit, zero = float(frame["reward_unit"]), float(frame["reward_zero"])
    statistics = Statistics(Normaliser(frame["mean"], frame["std"]), unit, reward_zero=zero)
    if not (np.isfinite(unit) and unit > 0.0):
        raise Refused(f"The unit of reward is {unit}, but must be a number above 0.")
    if not (np.isfinite(zero) and zero <= 0.0):
        raise Refused(f"The zero of reward is {zero}, but must be 0 or a number below it.")
    return int(about["round"]), int(about["counted"]), broadcast, statistics


# --- From a client ---


def survey_answer(run_id: str, client: str, survey: Survey) -> RecordDict:
    return RecordDict({"about": _about(run_id, client=client, survey=json.dumps(survey.to_json(), sort_keys=True))})


def read_survey_answer(content: RecordDict, run_id: str) -> tuple[str, Survey]:
    """The name of the client that replies to a survey, and what it told."""
    name = _client_of(content, run_id, __version__)
    _insist_on_records(content, {"about"})
    text = str(_config(content)["survey"])
    if len(text) > LONGEST_SURVEY:
        raise Refused(f"its survey has {len(text):,} characters, but at most {LONGEST_SURVEY:,} are expected")
    return name, Survey.from_json(json.loads(text))


def hello_answer(plan: Plan, client: str, statistics: ClientStatistics | None) -> RecordDict:
    records: dict[str, Any] = {"about": _about(plan.run_id, client=client)}
    if statistics is not None:
        arrays = {name: np.asarray(getattr(statistics, name), np.float64) for name in NUMBERS}
        if statistics.observations is not None:
            arrays |= {"total": statistics.observations.total, "squares": statistics.observations.squares}
        if statistics.reward_range is not None:
            arrays["reward_range"] = np.asarray(statistics.reward_range, np.float64)
        if statistics.counted_rows is not None:
            arrays |= {name: np.asarray(getattr(statistics, name), np.float64) for name in OF_WEIGHTED_ROWS}
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
    return _client_of(content, plan.run_id, plan.version)


def _client_of(content: RecordDict, run_id: str, version: str) -> str:
    about = _config(content)
    if "refused" in about:
        raise SaidNo(f"refused: {one_line(about['refused'])}")
    if about.get("version") != version:
        raise Refused(f"it runs fova {one_line(about.get('version'), 40)}, but the server fova {version}")
    if about.get("run") != run_id:
        raise Refused(f"stale: it answers run {one_line(about.get('run'), 40)}, not {run_id}")
    return intake.insist_on_name(about.get("client"))


def read_statistics(content: RecordDict, plan: Plan) -> ClientStatistics | None:
    """The statistics in the reply to a hello. They must be present if the plan asks for them, and absent if not."""
    _insist_on_records(content, {"about", "statistics"} if plan.gathers_statistics else {"about"})
    if not plan.gathers_statistics:
        return None
    columns = dict.fromkeys(("total", "squares"), (plan.space.observation,)) if plan.run.normalise else {}
    shapes: dict[str, tuple[int, ...]] = {**dict.fromkeys(NUMBERS, ()), **columns}
    if plan.judge is not None:
        shapes["reward_range"] = (2,)
    weighted = plan.sampling != "uniform"
    if weighted:
        shapes |= dict.fromkeys(OF_WEIGHTED_ROWS, ())
    try:
        arrays = _arrays(content, "statistics", {name: (shape, np.float64) for name, shape in shapes.items()})
    except Refused as error:
        raise Refused(
            f"its statistics are not {', '.join(shapes)} of {plan.space.observation} columns: {error}"
        ) from error
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise Refused("its statistics are not finite")
    numbers = {name: float(arrays[name]) for name in NUMBERS}
    whole = COUNTS if weighted else (*COUNTS, "terminals")
    if not all(0 <= numbers[name] <= MOST_ROWS and numbers[name].is_integer() for name in whole):
        raise Refused(f"its statistics count rows, episodes or ends that are not between 0 and {MOST_ROWS:,}")
    rows, episodes, terminals = (numbers[name] for name in (*COUNTS, "terminals"))
    weights = {name: float(arrays[name]) for name in OF_WEIGHTED_ROWS} if weighted else {}
    counted = weights.get("counted_rows")
    if not (rows >= 1 and 0 <= terminals <= episodes <= rows):
        raise Refused("its statistics count more episodes than rows, or more ends than episodes")
    if counted is not None and not terminals - ROUNDING <= counted <= rows + ROUNDING:
        raise Refused(f"its rows count for {counted:.6g}, but it has {rows:,.0f} rows and {terminals:.6g} ends")
    if counted is not None and counted < rows * LEAST_WEIGHT - ROUNDING:
        raise Refused(f"its {rows:,.0f} rows count for {counted:.6g}, less than the least weight allows")
    insist_on_possible_sums(rows, arrays)
    sums = Sums(int(rows), arrays["total"], arrays["squares"]) if plan.run.normalise else None
    counts = {name: int(numbers[name]) for name in COUNTS}
    told = ClientStatistics(**numbers | counts, observations=sums, **weights)  # type: ignore[arg-type]
    return told if plan.judge is None else replace(told, reward_range=_range(arrays["reward_range"]))


def _range(sent: NDArray[Any]) -> tuple[float, float]:
    low, high = (float(end) for end in sent)
    if not -LARGEST <= low <= high <= LARGEST:
        raise Refused(f"its rewards lie between {low:.3g} and {high:.3g}, which no data has")
    return low, high


def insist_on_possible_sums(rows: float, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse sums that no data can have: numbers that no data file may hold, or a sum that its squares rule out."""
    for name, array in arrays.items():
        most = LARGEST**2 if "squares" in name else LARGEST
        if np.max(np.abs(array), initial=0.0) > most * MOST_ROWS:
            raise Refused(f"its statistics hold {name} of {np.max(np.abs(array)):.3g}, which no data has")
    # |sum| <= sqrt(weights * squares), for a sum of deviations as for any other
    counted = float(arrays.get("counted_rows", rows))
    sums = [("reward_sum", "reward_squares", counted), ("reward_deviations", "reward_squares", counted)]
    for total, squares, weights in (*sums, ("total", "squares", rows)):
        if total in arrays:
            most = np.sqrt(weights * np.maximum(arrays[squares], 0.0)) * (1 + 1e-6)
            if (np.abs(arrays[total]) > most).any() or (arrays[squares] < 0.0).any():
                raise Refused(f"its statistics hold a {total} that their {squares} rule out")
    if np.abs(arrays.get("low_of_all", 0.0)) > LOWEST_OF_ALL:
        raise Refused(f"its statistics hold a low reward of {float(arrays['low_of_all']):.3g}, which no data has")
    if arrays["reward_deviations"] < 0.0:
        raise Refused("its statistics hold a negative reward_deviations")


def read_round_answer(content: RecordDict, plan: Plan, number: int, like: Submission) -> Submission:
    """The submission in a reply. The reply must be for round `number` and hold exactly the expected records."""
    about = _config(content)
    if about.get("round") != number:
        raise Refused(f"stale: it answers round {one_line(about.get('round'), 40)}, not {number}")
    if about.get("fingerprint") != plan.fingerprint():
        raise Refused("it follows another plan: the fingerprints differ")
    _insist_on_records(content, {"about", "parameters", "metrics"})
    arrays = _arrays(content, "parameters", expected_arrays(like.parameters))
    sent: Mapping[str, Any] = content.metric_records.get("metrics", {})
    intake.insist_on_names(sent, {WEIGHT, *like.metrics}, "metrics")
    metrics = {name: np.asarray(intake.number(value, name), np.float32) for name, value in sent.items()}
    parameters = from_named_arrays(arrays, like.parameters)
    return Submission(parameters, metrics.pop(WEIGHT), metrics)  # type: ignore[arg-type]


# --- Judging ---


def figures_question(plan: Plan, broadcast: Any) -> RecordDict:
    about = _about(plan.run_id, plan=plan.to_json(), fingerprint=plan.fingerprint())
    return RecordDict({"about": about, "broadcast": _record(named_arrays(broadcast))})


def read_critics(content: RecordDict, plan: Plan) -> Any:
    """The fitted critics in a question for figures."""
    like = plan.start()[1].broadcast
    return from_named_arrays(_arrays(content, "broadcast", expected_arrays(like)), like).critic


def figures_answer(plan: Plan, client: str, figures: Figures) -> RecordDict:
    """A client's own figures. What is unknown or not finite is left out."""
    about = _about(plan.run_id, client=client, fingerprint=plan.fingerprint())
    known = {name: value for name, value in asdict(figures).items() if value is not None and np.isfinite(value)}
    return RecordDict({"about": about, "figures": MetricRecord(known)})


def no_figures_answer(plan: Plan, client: str) -> RecordDict:
    """A client says that it has judged the policy for itself."""
    return RecordDict({"about": _about(plan.run_id, client=client, fingerprint=plan.fingerprint())})


def read_no_figures(content: RecordDict, plan: Plan) -> None:
    """Refuse a reply that holds more than the client's name."""
    if _config(content).get("fingerprint") != plan.fingerprint():
        raise Refused("it follows another plan: the fingerprints differ")
    _insist_on_records(content, {"about"})


def read_figures(content: RecordDict, plan: Plan, told: ClientStatistics) -> Figures:
    """The figures in a reply: single numbers, about as many rows and episodes as the client told before."""
    if _config(content).get("fingerprint") != plan.fingerprint():
        raise Refused("it follows another plan: the fingerprints differ")
    _insist_on_records(content, {"about", "figures"})
    sent: Mapping[str, Any] = content.metric_records.get("figures", {})
    strange = [name for name in sent if name not in FIGURE_NAMES]
    if strange:
        raise Refused(f"its figures hold {one_line(strange[0], 60)}, which was not asked for")
    numbers = {name: intake.number(value, name) for name, value in sent.items()}
    about = {name: numbers.get(name) for name in ("rows", "episodes")}
    if about != {"rows": told.rows, "episodes": told.episodes}:
        raise Refused(f"its figures are about other data than it told of: {about}")
    counts = {"rows": told.rows, "episodes": told.episodes}
    return Figures(**UNKNOWN | numbers | counts)


# --- Records ---


def _about(run_id: str, **facts: Any) -> ConfigRecord:
    return ConfigRecord({"version": __version__, "run": run_id, **facts})


def _config(content: RecordDict) -> dict[str, Any]:
    if "about" not in content.config_records:
        raise Refused("the message does not say what it is about")
    return dict(content.config_records["about"])


def _record(arrays: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def _arrays(content: RecordDict, name: str, expected: Mapping[str, intake.Expected]) -> dict[str, NDArray[Any]]:
    if name not in content.array_records:
        raise Refused(f"the message has no {name}")
    return intake.arrays(content.array_records[name], expected, name)


def _insist_on_records(content: RecordDict, expected: set[str]) -> None:
    if set(content) != expected:
        held = [one_line(name, 40) for name in sorted(content)[: len(expected) + intake.MOST_NAMES_SHOWN]]
        raise Refused(f"the message holds {', '.join(held)}, but {', '.join(sorted(expected))} are expected")
