"""`fova certificates`: keys and certificates for a federation over a network."""

from dataclasses import dataclass
from pathlib import Path

from fova.commands.flags import parse
from fova.commands.flower import insist_on_flower
from fova.commands.terminal import Terminal
from fova.errors import FovaError


@dataclass(frozen=True)
class CertificatesOptions:
    """Make an authority, a certificate for the server and a key pair for every client. Existing files are kept."""

    hosts: tuple[str, ...] = ()
    """Names or addresses that clients use for the server."""
    clients: tuple[str, ...] = ()
    """Names of the clients. Run again with further names to add clients."""
    directory: Path = Path("certificates")
    """Folder of the certificates and keys."""
    days: int = 825
    """Days for which the server's certificate is valid."""


def command(arguments: list[str]) -> None:
    if arguments[:1] not in (["make"], ["-h"], ["--help"]):
        raise FovaError("There is one command: fova certificates make --hosts fl.example.org --clients north south")
    options = parse(CertificatesOptions, "fova certificates make", arguments[arguments[0] == "make" :])
    insist_on_flower()
    from fova.network.certificates import make

    made = make(options.directory, options.hosts, options.clients, options.days)
    terminal = Terminal()
    for path in made:
        terminal.write_line(f"made  {path}")
    if not made:
        terminal.write_line("Everything is there already; nothing was changed.")
    terminal.write_line(
        f"\nkeep  {options.directory}/authority    where only you can read it; it is needed to add clients"
    )
    terminal.write_line(f"copy  scp -r {options.directory}/server SERVER:certificates/server")
    for name in options.clients:
        terminal.write_line(f"copy  scp -r {options.directory}/{name} {name.upper()}:certificate")
