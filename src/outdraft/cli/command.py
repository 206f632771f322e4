"""The record of a command, and how commands are found: every file of `cli/commands` is one.

A command either runs, or has actions, each of which is a command of its own: `outdraft datastore build`. A file holds
SUMMARY, Options and run, perhaps an EPILOG; or SUMMARY and ACTIONS. Imports the standard library alone.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_HOME = "outdraft.cli.commands"  # found when it is needed: its files lean on this one
_FIRST = (  # what most users need, in the order of their first day; the others stand below
    "demo generate chat serve bench audit info pull list rm methods train convert quantize datastore".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoFlags:
    """Of a command whose actions have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command: what it is called, what it takes and what it does. `run` returns the exit code."""

    name: str
    summary: str
    options: type = NoFlags
    run: Callable[[Any], int] | None = None  # None: an action has to be named
    epilog: str = ""
    actions: tuple["Command", ...] = ()

    @property
    def description(self) -> str:
        return self.summary[0].upper() + self.summary[1:] + "."


def action(run: Callable[[Any], int], options: type, summary: str) -> Command:
    """An action, called as its function is."""
    return Command(name=run.__name__, summary=summary, options=options, run=run)


def command_names() -> list[str]:
    """The names of all commands, one file each: those of a first day, then the others by name."""
    found = {module.name.replace("_", "-") for module in pkgutil.iter_modules(importlib.import_module(_HOME).__path__)}
    return [name for name in _FIRST if name in found] + sorted(found.difference(_FIRST))


def find_command(name: str) -> Command:
    """The command called `name`."""
    found = importlib.import_module(f"{_HOME}.{name.replace('-', '_')}")
    epilog = getattr(found, "EPILOG", "")
    if actions := getattr(found, "ACTIONS", ()):
        return Command(name=name, summary=found.SUMMARY, epilog=epilog, actions=actions)
    return Command(name=name, summary=found.SUMMARY, options=found.Options, run=found.run, epilog=epilog)


def all_commands() -> Iterator[tuple[str, Command]]:
    """Everything that runs, by its words: ("generate", ...), ("datastore build", ...)."""
    for name in command_names():
        command = find_command(name)
        yield from ((f"{name} {action.name}", action) for action in command.actions)
        if command.run is not None:
            yield name, command
