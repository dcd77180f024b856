"""The one exception whose message is meant for the person at the keyboard.

Raise `FovaError` when somebody can put the matter right: say what was given, what was expected and how to fix
it. The command line prints the message alone and ends with exit code 2. Anything else that escapes is a bug.
"""

import difflib
from collections.abc import Iterable


class FovaError(Exception):
    """Something the user can fix; the message says how."""


def unknown(kind: str, given: str, known: Iterable[str], hint: str = "") -> FovaError:
    """An error for a name that does not exist, with the nearest names that do."""
    names = sorted(known)
    near = difflib.get_close_matches(given, names, n=3, cutoff=0.5)
    guess = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
    listed = ", ".join(names) if names else "none"
    return FovaError(f"There is no {kind} called {given!r}.{guess}\nKnown: {listed}.{' ' + hint if hint else ''}")
