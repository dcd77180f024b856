"""`fova data`: make, inspect, check and convert data. One file per command, imported when it runs."""

import importlib

from fova.errors import unknown

HELP = """fova data: make, inspect, check and convert data

usage: fova data COMMAND [options]   fova data COMMAND --help explains a command

  fova data list                     what has been made, and what can be made
  fova data make TASK/QUALITY        make a dataset ahead of time (training makes what it needs by itself)
  fova data inspect TABLE ...        the columns of tables, and a proposal for --columns
  fova data inspect X                episodes, returns, lengths, coverage, bounds, problems
  fova data inspect X Y ...          how clients differ in what they see and do
  fova data validate FILE            for scripts: exit code 0 if training can use it, else 2 and the reason
  fova data import X --to ID         convert to a Minari dataset
  fova data train-behaviour TASK     train the policies that data is made with

TABLE is a file with one row per step (.csv, .tsv, both also with .gz, .parquet).
X is a TABLE with --columns, which says what its columns mean, a file with arrays (.npz, .hdf5, .parquet), a folder
of such files, a Minari dataset's id or TASK/QUALITY. validate and import take no TABLE.

by example

  fova data make hopper/expert --size 100000
  fova data inspect hopper/medium-replay
  fova data inspect ward-1.csv ward-2.csv
  fova data inspect ward-1.csv --columns episode=patient_id time=hour observations=hr,map action=dose \\
      reward=score terminal=died --missing hr=carry-mean
  fova data inspect ward-1.npz --json
  fova data inspect ward-1.npz ward-2.npz ward-3.npz
  fova data import halfcheetah_medium-v2.hdf5 --to halfcheetah/medium-v0
"""

# Each command and its module here.
COMMANDS = {
    "make": "make",
    "list": "list",
    "inspect": "inspect",
    "validate": "validate",
    "import": "to_minari",
    "train-behaviour": "train_behaviour",
}


def command(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return
    name, *rest = arguments
    if name not in COMMANDS:
        raise unknown("data command", name, COMMANDS, "See: fova data --help")
    try:
        importlib.import_module(f"{__name__}.{COMMANDS[name]}").command(rest)
    except KeyboardInterrupt:
        if name == "train-behaviour":  # the only one that leaves checkpoints
            raise
        raise KeyboardInterrupt("Stopped; nothing was written.") from None
