"""`outdraft`: find the command, read its flags, run it, and turn what goes wrong into one line and an exit code.

    0 done   1 a proof failed   2 a deliberate error (one line on stderr)   3 `train check` cannot say
    130 Ctrl-C   141 the reader of a pipe left

Imports the standard library alone: `outdraft --help` does not wait for torch.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import NoReturn

from outdraft import __version__
from outdraft.cli.command import Command, command_names, find_command
from outdraft.cli.foreign_flags import cure
from outdraft.cli.options import add_flags, build, flag_names, placed_names
from outdraft.options.errors import OutdraftError
from outdraft.options.near_miss import near_miss


def make_parser() -> "_Parser":
    """The parser of everything."""
    parser = _Parser(prog="outdraft", description="Speculative decoding, lossless and provable.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"outdraft {__version__}")
    _add_commands(parser, "command", map(find_command, command_names()))
    return parser


def _add_commands(parser: "_Parser", what: str, found: Iterable[Command]) -> None:
    choices = parser.add_subparsers(title=f"{what}s", metavar=what.upper(), dest=what, parser_class=_Parser)
    for command in found:
        sub = choices.add_parser(
            command.name,
            help=command.summary,
            description=command.description,
            epilog=command.epilog or None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        add_flags(sub, command.options)
        if command.actions:
            _add_commands(sub, "action", command.actions)


def main(words: Seq[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who began the process
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    try:
        return _run(sys.argv[1:] if words is None else words)
    except KeyboardInterrupt:
        _complain("")
        return 130


def _run(words: Seq[str]) -> int:
    parser = make_parser()
    _check_names(parser, words)
    given, unknown = parser.parse_known_args(words)
    if given.command is None and not unknown:
        parser.print_help()
        return 0
    command = _chosen(given)
    named = " ".join(("outdraft", *words[: 1 if command is None or command.name == given.command else 2]))
    if unknown:
        _refuse(parser if command is None else _Parser(prog=named), unknown[0], command)
    if command is None or command.run is None:
        actions = command.actions if command else ()
        _Parser(prog=named).error(f"it needs an action: {', '.join(one.name for one in actions)}")
    _reach_plug_ins(words)
    try:
        code = command.run(build(command.options, given))
        sys.stdout.flush()
        return code
    except OutdraftError as error:
        _complain(f"{named}: {error}")
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the exit does not fail again
        return 141
    except OSError as error:
        _complain(f"{named}: {error}; choose another path, or free space there")
        return 2


def _check_names(parser: "_Parser", words: Seq[str]) -> None:
    """Name the near miss of a command or an action that is not known; argparse would only list them all."""
    if not words or words[0].startswith("-"):
        return
    if words[0] not in (known := command_names()):
        parser.error(f"{words[0]!r} is no command{near_miss(words[0], known)}; commands: {', '.join(known)}")
    actions = [action.name for action in find_command(words[0]).actions]
    if actions and len(words) > 1 and not words[1].startswith("-") and words[1] not in actions:
        cure = f"{near_miss(words[1], actions)}; actions: {', '.join(actions)}"
        _Parser(prog=f"outdraft {words[0]}").error(f"{words[1]!r} is no action{cure}")


def _reach_plug_ins(words: Seq[str]) -> None:
    """Look for "module:METHOD" in the working directory too, last, where it lies there: a script does not by itself."""
    named = re.findall(r"\b([A-Za-z_]\w*)(?:\.\w+)*:[A-Za-z_]", " ".join(words))
    here = os.getcwd()
    if here not in sys.path and any(os.path.isfile(f"{one}.py") or os.path.isdir(one) for one in named):
        sys.path.append(here)


def _chosen(given: argparse.Namespace) -> Command | None:
    if given.command is None:
        return None
    command = find_command(given.command)
    return next((one for one in command.actions if one.name == given.action), command)


def _refuse(parser: "_Parser", word: str, command: Command | None) -> NoReturn:
    """An unknown argument, with the flag or the position that was probably meant."""
    word = word.partition("=")[0]
    if command is not None and (name := word.removeprefix("--").replace("-", "_")) in placed_names(command.options):
        parser.error(f"unrecognized argument {word!r}: give {name.upper()} by its position, without a flag")
    known = flag_names(command.options) if command is not None else []
    parser.error(f"unrecognized argument {word!r}{cure(word, known) or near_miss(word, known)}")


class _Parser(argparse.ArgumentParser):
    """One line for a wrong flag, as for every other error."""

    def error(self, message: str) -> NoReturn:
        _complain(f"{self.prog}: {message} (see {self.prog} --help)")
        raise SystemExit(2)


def _complain(message: str) -> None:
    sys.stderr.write(" ".join(message.splitlines()) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
