"""`outdraft`: find the command, read its flags, run it, and turn what goes wrong into one line and an exit code.

    0 done   1 a proof failed   2 a deliberate error (one line on stderr)   130 Ctrl-C   141 the reader of a pipe left

Imports the standard library alone: `outdraft --help` does not wait for torch.
"""

import argparse
import importlib
import os
import pkgutil
import sys
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, NoReturn

from outdraft import __version__
from outdraft.cli import commands
from outdraft.cli.options import add_flags, build, flag_names, placed_names
from outdraft.core.errors import OutdraftError
from outdraft.core.near_miss import near_miss


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command: what it is called, what it takes and what it does. `run` returns the exit code."""

    name: str
    summary: str
    options: type
    run: Callable[[Any], int]
    epilog: str = ""


def command_names() -> list[str]:
    """The names of all commands, sorted: one file each."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(commands.__path__))


def find_command(name: str) -> Command:
    """The command called `name`."""
    found = importlib.import_module(f"{commands.__name__}.{name.replace('-', '_')}")
    return Command(
        name=name, summary=found.SUMMARY, options=found.Options, run=found.run, epilog=getattr(found, "EPILOG", "")
    )


def make_parser() -> argparse.ArgumentParser:
    """The parser of everything."""
    parser = _Parser(prog="outdraft", description="Speculative decoding, lossless and provable.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"outdraft {__version__}")
    choices = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", parser_class=_Parser)
    for name in command_names():
        command = find_command(name)
        sub = choices.add_parser(
            name,
            help=command.summary,
            description=command.summary[0].upper() + command.summary[1:] + ".",
            epilog=command.epilog or None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        add_flags(sub, command.options)
    return parser


def main(words: Seq[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    parser = make_parser()
    given, unknown = parser.parse_known_args(words)
    if unknown:
        word = unknown[0].partition("=")[0]
        options = find_command(given.command).options if given.command else None
        asked = _Parser(prog=f"outdraft {given.command}") if given.command else parser
        if options is not None and (name := word.removeprefix("--").replace("-", "_")) in placed_names(options):
            asked.error(f"unrecognized argument {word!r}: give {name.upper()} by its place, without a flag")
        known = flag_names(options) if options is not None else []
        asked.error(f"unrecognized argument {word!r}{near_miss(word, known)}")
    if given.command is None:
        parser.print_help()
        return 0
    command = find_command(given.command)
    try:
        code = command.run(build(command.options, given))
        sys.stdout.flush()
        return code
    except OutdraftError as error:
        _complain(f"outdraft {command.name}: {error}")
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the exit does not fail again
        return 141
    except OSError as error:
        _complain(f"outdraft {command.name}: {error}; choose another path, or free space there")
        return 2
    except KeyboardInterrupt:
        _complain("")
        return 130


class _Parser(argparse.ArgumentParser):
    """One line for a wrong flag, as for every other error."""

    def error(self, message: str) -> NoReturn:
        _complain(f"{self.prog}: {message} (see {self.prog} --help)")
        raise SystemExit(2)


def _complain(message: str) -> None:
    sys.stderr.write(" ".join(message.splitlines()) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
