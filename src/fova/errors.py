"""FovaError, the exception whose message is for the user.

Raise `FovaError` when the user can fix the problem. Say what was given, what was expected and how to fix it. The
command line prints only the message and ends with exit code 2. Any other exception that escapes is a bug.
"""

import difflib
from collections.abc import Iterable


class FovaError(Exception):
    """A problem that the user can fix. The message says how."""


def unknown(kind: str, given: object, known: Iterable[str], hint: str = "") -> FovaError:
    """An error for an unknown name, with the most similar known names. What is no text is no name either."""
    names = sorted(known)
    spelt = {name.casefold(): name for name in names}  # HR is hr, misspelt
    near = [spelt[name] for name in difflib.get_close_matches(str(given).casefold(), spelt, n=3, cutoff=0.5)]
    guess = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
    listed = ", ".join(names) if names else "none"
    return FovaError(f"There is no {kind} called {given!r}.{guess}\nKnown: {listed}.{' ' + hint if hint else ''}")
