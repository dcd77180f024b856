"""How far this machine's clock is from the server's. Flower refuses a signature from the future or of long ago."""

import ssl
import time
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx

SECONDS_TO_ASK = 10.0
# Flower refuses a client that is more than 5 s ahead or 305 s behind. The server tells its time in whole seconds.
MOST_AHEAD, MOST_BEHIND = 4.0, 304.0


def seconds_ahead(server: str, authority: Path) -> float | None:
    """By how much this machine's clock is ahead of the server's; None if the server does not tell its time.

    The server tells it with every answer, also with a refusal.
    """
    try:
        context = ssl.create_default_context(cafile=authority)
        asked = time.time()
        response = httpx.get(f"https://{server}/v1/fleet/", timeout=SECONDS_TO_ASK, verify=context)
        told = parsedate_to_datetime(response.headers["date"]).timestamp()
    except (httpx.HTTPError, OSError, KeyError, ValueError):
        return None
    return (asked + time.time()) / 2 - (told + 0.5)


def in_words(ahead: float | None) -> str | None:
    """What is wrong with this machine's clock, if that is why the server refuses it."""
    if ahead is None or -MOST_BEHIND < ahead < MOST_AHEAD:
        return None
    direction = "ahead of" if ahead > 0 else "behind"
    return (
        f"refuses this client because this machine's clock is {abs(ahead):.0f} s {direction} the server's. Set the "
        "clocks of both machines, for instance with NTP"
    )
