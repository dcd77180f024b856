"""Checks for the commands that run a federation over a network: Flower is installed and the key files exist."""

from pathlib import Path

from fova.errors import FovaError


def insist_on_flower() -> None:
    """Raise an error if Flower is not installed."""
    try:
        import flwr  # noqa: F401
    except ImportError as error:
        raise FovaError("A federation over a network needs Flower: pip install 'fova[flower]'") from error


def insist_on_files(folder: Path, names: tuple[str, ...], command: str) -> None:
    """Raise an error if the folder lacks one of these files of `fova certificates make`."""
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise FovaError(
            f"{folder} has no {' and no '.join(missing)}. Make them with `fova certificates make` and name the "
            f"folder with --certificates; or, for a trial on one machine only: {command} --insecure"
        )
