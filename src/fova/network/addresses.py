"""Names and addresses of machines, as people write them. No network here: nothing is looked up."""

import ipaddress
import re

from fova.errors import FovaError
from fova.settings import shown

LABEL = r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}"
NAME = re.compile(rf"{LABEL}(\.{LABEL})*")
LONGEST_NAME = 253
EVERYWHERE = ("0.0.0.0", "::")  # a server listens on all addresses of its machine
PORT = re.compile(r"[0-9]{1,5}")


def is_address(host: str) -> bool:
    """Whether this is an IP address, without a port, brackets or an interface."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return "%" not in host


def is_host(host: str) -> bool:
    """Whether this is an IP address, or can be the name of a machine. 256.1.1.1 and 0x7f.1 are neither."""
    last = host.rpartition(".")[2]
    looks_like_an_address = last.isdigit() or last.lower().startswith("0x")
    is_name = NAME.fullmatch(host) is not None and len(host) <= LONGEST_NAME and not looks_like_an_address
    return is_address(host) or is_name


def with_port(host: str, port: int) -> str:
    """HOST:PORT. An IPv6 address is put in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def insist_on_server(address: str) -> str:
    """The address of a server, if it is HOST:PORT and can be that of another machine."""
    host, _, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    fits = is_host(host) and (":" in host) == bracketed
    if not fits or not PORT.fullmatch(port) or not 1 <= int(port) <= 65_535:
        raise FovaError(
            f"The server's address is {shown(address)}, but must be HOST:PORT. For example: fl.example.org:8443, "
            "10.0.0.7:8443 or [2001:db8::7]:8443"
        )
    if host in EVERYWHERE:
        raise FovaError(
            f"The server's address is {shown(address)}, where a server listens but no client can connect. Give its "
            "name or address: --server fl.example.org:8443"
        )
    return with_port(host, int(port))
