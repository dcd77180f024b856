"""Print what clinicians of five skills achieve with patients of three age groups: 60 days each, as a table.

python examples/insulin/clinicians.py
"""

import itertools

import numpy as np

from fova.tasks import registry
from fova.tasks.glucose import GROUPS
from fova.tasks.glucose.table import SKILLS, clinical_figures

DAYS = 60

print("| patients | clinician | return | 70 to 180 | below 70 | above 180 | ended early |")
print("|---|---|---:|---:|---:|---:|---:|")
for group in GROUPS:
    task = registry.get(f"glucose-{group}")
    assert task.generate is not None
    for skill in SKILLS:
        days = list(itertools.islice(task.generate(skill, 0, 0), DAYS))
        figures = clinical_figures([day.observations for day in days])
        earned = np.mean([day.rewards.sum() for day in days])
        print(f"| {group} | {skill} | {earned:.1f} | " + " | ".join(f"{f:.3f}" for f in figures.values()) + " |")
