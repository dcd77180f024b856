"""Algorithms whose equations change when actions are discrete: exact sums over actions instead of samples.

Each file holds the counterpart of one algorithm of the folder above, under the same name and with the same
settings. `fova.algorithms.for_space` chooses it when the action space is `Discrete`. Fed-BC and Fed-IQL need none:
their equations serve both kinds of action.
"""

from fova.algorithms.cql import CqlFl
from fova.algorithms.discrete.cql import DiscreteCqlFl
from fova.algorithms.discrete.fedora import DiscreteFedora
from fova.algorithms.discrete.fova import DiscreteFova
from fova.algorithms.fedora import Fedora
from fova.algorithms.fova import Fova

COUNTERPARTS: dict[type, type] = {Fova: DiscreteFova, CqlFl: DiscreteCqlFl, Fedora: DiscreteFedora}
