"""The flags of every command, with words that somebody might type."""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any, get_type_hints

from outdraft.core.errors import OutdraftError
from outdraft.testing.strange.argument import Argument
from outdraft.testing.strange.stage import Stage
from outdraft.testing.strange.values import as_words


def command_arguments(stage: Stage) -> Iterator[Argument]:
    """All of them. Commands that work for minutes are given a model that is not there: flags come before the work."""
    model, away, out = str(stage.target), str(stage.directory / "away"), str(stage.directory / "out")
    sure: dict[str, list[str]] = {
        "generate": ["abc", "--model", model, "--max-tokens", "3", "--dtype", "float32"],
        "chat": ["--model", away],
        "audit": ["--model", away],
        "bench": ["--model", away, "--out", f"{out}.jsonl"],
        "demo": ["--model", away],
        "datastore build": [f"{out}-store", "--model", away],
        "datastore info": [str(stage.store)],
        "datastore bench": [str(stage.store), "--queries", "1", "--tokens", "1"],
        "completion": ["bash"],
        "info": [],
        "quantize": [away, "--out", f"{out}-int4"],
        "tune-skip": [away, "--out", f"{out}.json"],
        "theory": [],
        "methods": [],
    }
    line = import_module("outdraft.cli.command")  # found when it is needed: `outdraft audit` leans on the test kit
    for name, command in line.all_commands():
        words = sure.get(name, ["--model", away])
        known = [flag for flag, _ in _flags(command.options)]
        if "model" not in known and "--model" in words:
            words = [word for word in words if word not in ("--model", away)]
        for flag, is_switch in _flags(command.options):

            def use(value: Any, name: str = name, flag: str = flag, words: list[str] = words) -> object:
                return _run([*name.split(), *words, f"--{_spelled(flag)}={as_words(value)}"])

            if not is_switch and not (flag == "model" and away in words):  # a good one would begin the work
                yield Argument(name=f"outdraft {name} --{_spelled(flag)}", use=use)
        yield Argument(name=f"outdraft {name} WORD", use=_word(name))


def _word(name: str) -> Callable[[Any], object]:
    return lambda value: _run([*name.split(), as_words(value)[:50]])


def _run(words: list[str]) -> object:
    """Exit code 2 is a refusal, as an `OutdraftError` is."""
    try:
        code = import_module("outdraft.cli.main").main(words)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    if code == 2:
        raise OutdraftError("exit code 2")
    return code


def _spelled(field_name: str) -> str:
    return field_name.rstrip("_").replace("_", "-")


def _flags(options: Any) -> Iterator[tuple[str, bool]]:
    """Fields, and whether they are switches without a value."""
    hints = get_type_hints(options)
    for one in fields(options):
        if is_dataclass(hints[one.name]):
            yield from _flags(hints[one.name])
        elif not one.metadata.get("positional"):
            yield one.name, hints[one.name] in (bool, bool | None)
