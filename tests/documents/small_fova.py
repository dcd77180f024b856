"""The command `fova` for blocks of the documents: as written there, but with few rounds, steps and rows.

Only sizes are changed. Every flag is parsed by fova itself.
"""

import sys

TRAIN = {"--rounds": "1", "--local-steps": "2", "--hidden": "8", "--batch-size": "8"}
PLAY = {"--evaluate-every": "1", "--final-episodes": "1"}
SMALL = {
    "train": TRAIN | PLAY | {"--episodes": "1", "--size": "400"},
    "compare": TRAIN | PLAY | {"--seeds": "1", "--size": "400", "--jobs": "1"},
    "judge": {"--rounds": "1", "--steps": "2", "--critics": "2", "--hidden": "8", "--batch-size": "8"},
    "evaluate": {"--episodes": "1"},
    "demo": {"--rounds": "1"},
    "theory": {"--mdps": "2"},
}


def smaller(arguments: list[str]) -> list[str]:
    """The arguments with small sizes in place of those that are written or are the default."""
    sizes = dict(SMALL.get(arguments[0], {})) if arguments else {}
    if "--task" not in arguments and "--size" not in arguments:
        sizes.pop("--size", None)  # files are taken whole
    if {"--resume", "--help"} & set(arguments):
        sizes = {}
    kept: list[str] = []
    dropping = False
    for word in arguments:
        if word.startswith("--"):
            dropping = word in sizes
        if not dropping:
            kept.append(word)
    return kept + [word for flag, value in sizes.items() for word in (flag, value)]


if __name__ == "__main__":
    from fova.commands.main import main

    sys.argv = ["fova", *smaller(sys.argv[1:])]
    main()
