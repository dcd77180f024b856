"""The former place of `fova.reports.groups`, until the commands import from there."""

from fova.reports.groups import read_groups

__all__ = ["read_groups"]
