"""docs/cli.md, written from the options: `python -m lab.cli_page > docs/cli.md`; a test says if it is current."""

import json
import sys
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from typing import Any, get_type_hints

from outdraft.cli.command import Command, command_names, find_command
from outdraft.cli.options import default_of, flag_name

HEAD = """# Command line

This page is written by `python -m lab.cli_page` from the options themselves; do not edit it.

Every command ends with 0 when it is done, 1 when a proof failed (`audit`, `demo`, `bench`), said too little (`audit`)
or a promise was broken (`train check`, which ends with 3 where it cannot say), 2 after an error (one line on stderr),
130 after Ctrl-C, and 141 where the reader of a pipe left. `--json` writes one JSON value to stdout and nothing else.
Colours appear on a terminal only, and not at all where `NO_COLOR` is set. An option of a plug-in is given as
`--drafter-options key=value`, which may be repeated, or as one JSON object: `--drafter-options '{"max_ngram": 4}'`;
`outdraft methods --options` lists them.
"""


def page() -> str:
    """The page docs/cli.md, made from the commands and their options."""
    parts = [HEAD]
    for name in command_names():
        command = find_command(name)
        parts += _section(command, f"## outdraft {name}")
        for action in command.actions:
            parts += _section(action, f"### outdraft {name} {action.name}")
    return "".join(parts)


def _section(command: Command, heading: str) -> Iterator[str]:
    yield f"\n{heading}\n\n{command.description}\n"
    if command.run is not None:
        yield from _tables(command.options, "")
    if command.epilog:
        yield f"\n```text\n{command.epilog}\n```\n"


def _tables(options: type, title: str) -> Iterator[str]:
    """One table for the flags of this dataclass, then one for each dataclass in it."""
    hints = get_type_hints(options)
    own = [one for one in fields(options) if not is_dataclass(hints[one.name])]
    yield f"\n{title[:1].upper()}{title[1:]}:\n" if title else ""
    yield "\n| option | default | meaning |\n| --- | --- | --- |\n"
    for one in own:
        default = default_of(one)
        shown = "" if default in (None, (), {}) else f"`{json.dumps(default)}`"
        told = one.metadata["help"].replace("|", "\\|")  # else a cell ends there
        yield f"| {_names(one)} | {shown} | {told} |\n".replace("|  |", "| |")
    for one in fields(options):
        if is_dataclass(hints[one.name]):
            yield from _tables(hints[one.name], one.metadata["title"])  # type: ignore[arg-type]


def _names(one: "Field[Any]") -> str:
    if one.metadata.get("positional"):
        return f"`{one.metadata.get('metavar') or one.name.upper()}`"
    long = f"`--{flag_name(one.name)}`"
    if one.type in (bool, "bool", bool | None, "bool | None") and default_of(one) is not False:
        long += f", `--no-{flag_name(one.name)}`"
    long = ", ".join([long, *(f"`{name}`" for name in one.metadata.get("also", ()))])
    short = one.metadata.get("short")
    return f"`{short}`, {long}" if short else long


if __name__ == "__main__":
    sys.stdout.write(page())
