"""The run of `fova demo insulin`: four clinics of different skill, one dosing policy for all, a picture, a report.

FOVA and weighted cloning are trained on the same data. Both policies then treat the patients of every clinic. All
patients are simulated, and nothing here is medical advice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from fova import algorithms
from fova.evaluation.rollouts import Rollouts, first_seed, play
from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.machine.files import write_atomically
from fova.policy import Policy
from fova.progress import Progress
from fova.reports.glucose import Section, outcomes_figure
from fova.reports.page import write_report
from fova.reports.scenes import Scene, png
from fova.run.config import Config, RunConfig
from fova.run.directory import free_name
from fova.run.training import start
from fova.tasks import registry
from fova.tasks.glucose.table import clinical_figures

TASK = "glucose"
NO_ADVICE = "Simulated patients. This is not medical advice."
DAYS = 30  # that each policy treats the patients of a clinic
CAPTION = (
    "Each clinic's patients treated by its own clinicians (its data), by weighted cloning and by FOVA: share of "
    f"the sensor readings in range, too low and too high, and one day of one patient. {NO_ADVICE}"
)


@dataclass(frozen=True)
class Clinic:
    """A client of the demo."""

    name: str
    skill: str
    group: str | None  # of its patients; None: patients of all ages

    def spec(self, size: int) -> ClientSpec:
        return ClientSpec(self.quality, size, name=self.name)

    @property
    def quality(self) -> str:
        return self.skill if self.group is None else f"{self.skill}-{self.group}"

    @property
    def task(self) -> str:
        return TASK if self.group is None else f"{TASK}-{self.group}"

    @property
    def patients(self) -> str:
        return {"adult": "adults", "adolescent": "adolescents", "child": "children", None: "all ages"}[self.group]


CLINICS = (
    Clinic("north", "experienced", "adult"),
    Clinic("south", "heavy-handed", "adolescent"),
    Clinic("east", "cautious", "child"),
    Clinic("west", "forgetful", None),
)
# What is trained: label -> algorithm and who counts how much. Cloning has the same client weights as FOVA.
TRAINED: Mapping[str, tuple[str, str]] = {"cloning": ("fed-bc", "returns"), "FOVA": ("fova", "algorithm")}
SETTINGS: dict[str, Any] = {"hidden": (64, 64), "batch_size": 128}
OWN = "its clinicians"
Outcomes = dict[str, dict[str, dict[str, float]]]  # clinic -> who treats -> figures


@dataclass(frozen=True)
class Demo:
    """What the demo leaves."""

    outcomes: Outcomes
    picture: Path
    report: Path


def run(progress: Progress, root: Path, rounds: int = 30, size: int = 4800, seed: int = 0) -> Demo:
    """Train both algorithms, treat the patients of every clinic with both policies, draw and report."""
    folder = free_name("demo-insulin", root)
    specs = tuple(clinic.spec(size) for clinic in CLINICS)
    policies: dict[str, Policy] = {}
    for label, (algorithm, aggregation) in TRAINED.items():
        config = Config(
            task=TASK,
            clients=specs,
            algorithm=algorithms.configure(algorithm, **SETTINGS),
            algorithm_name=algorithm,
            run=RunConfig(rounds=rounds, aggregation=aggregation, seed=seed, evaluate_every=0, final_episodes=30),
        )
        policy = start(config, folder / algorithm, progress).policy
        assert policy is not None
        policies[label] = policy
    federation = Federation.build(specs, registry.get(TASK), seed)
    played = {clinic: play(policies, registry.get(clinic.task), DAYS, first_seed(seed), 1) for clinic in CLINICS}
    outcomes = {clinic.name: _outcomes(federation, clinic, played[clinic]) for clinic in CLINICS}
    picture = folder / "picture.png"
    sections = [_section(clinic, outcomes[clinic.name], played[clinic]) for clinic in CLINICS]
    write_atomically(picture, png(outcomes_figure(sections, NO_ADVICE), dpi=130))
    scenes = {algorithm: None for algorithm, _ in TRAINED.values()} | {"fova": Scene(picture.read_bytes(), CAPTION)}
    report = write_report([folder], folder / "report.html", scenes)
    return Demo(outcomes, picture, report)


def _outcomes(
    federation: Federation, clinic: Clinic, played: Mapping[str, Rollouts]
) -> dict[str, dict[str, float]]:
    data = federation.clients[clinic.name]
    own = {"return": float(data.whole_episode_returns().mean())}
    days = data.episodes()
    own |= clinical_figures([day.observations for day in days])
    own["ended early"] = sum(day.terminated for day in days) / len(days)  # the last day may be cut short
    learned = {
        label: {"return": rollouts.mean_return} | dict(rollouts.measures) for label, rollouts in played.items()
    }
    return {OWN: own} | learned


def _section(
    clinic: Clinic, outcomes: Mapping[str, Mapping[str, float]], played: Mapping[str, Rollouts]
) -> Section:
    days = {label: rollouts.trajectories[0] for label, rollouts in played.items()}
    longest = max(days.values(), key=len)
    return Section(
        title=f"Clinic {clinic.name}: {clinic.skill} clinicians, {clinic.patients}",
        outcomes=outcomes,
        day={label: observations[:, 0] for label, observations in days.items()},
        meals=longest[:, 4],
        day_title=f"A day of one {clinic.group or 'patient'}",
    )


def outcomes_table(outcomes: Outcomes) -> Table:
    """One row per clinic and way to treat its patients."""
    table = Table(title="shares of the sensor readings", caption=NO_ADVICE)
    for column in ("clinic", "treated by"):
        table.add_column(column)
    names = [name for name in next(iter(next(iter(outcomes.values())).values())) if name != "return"]
    for column in ("return", *names):
        table.add_column(column, justify="right")
    for clinic in CLINICS:
        for who, figures in outcomes[clinic.name].items():
            first = f"{clinic.name} ({clinic.skill}, {clinic.patients})" if who == OWN else ""
            shares = (f"{100 * figures[name]:.1f} %" for name in names)
            table.add_row(first, who, f"{figures['return']:.1f}", *shares, end_section=who == "FOVA")
    return table
