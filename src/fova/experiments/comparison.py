"""Several algorithms on the same data, with the same seeds and the same budget of gradient steps.

A comparison is an experiment with one case, put together on the spot; it is run, resumed and collected like any
other.
"""

from collections.abc import Sequence

from fova.data.tables.columns import Columns
from fova.experiments.specifications import Case, Entry, Mode, Scale, Settings, line_of


def comparison(
    task: str | None,
    clients: Sequence[str],
    size: int | None,
    algorithms: Sequence[str],
    modes: Sequence[Mode],
    seeds: int,
    run: Settings,
    settings: Settings,
    columns: Columns | None = None,
) -> tuple[Entry, Scale]:
    """`run` are fields of RunConfig, `settings` those of the algorithms that all share, where they have them.

    Without a task the clients are data files, and policies are judged instead of played. `columns` says what the
    columns of tables mean.
    """
    label = task or "own data"
    scale = Scale("as given", seeds, run, settings)
    entry = Entry(
        name="comparison",
        title=f"{label}: {', '.join(clients)}",
        cases=(Case(label, task, tuple(clients), size, columns=columns),),
        variants=tuple(line_of(algorithm, mode) for algorithm in algorithms for mode in modes),
        scales={scale.name: scale},
    )
    return entry, scale
