"""The flags of every command, with words that a user might type."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any, get_type_hints

from lab.strange.argument import Argument
from lab.strange.stage import Stage
from lab.strange.values import as_words
from outdraft.options.errors import OutdraftError


def command_arguments(stage: Stage) -> Iterator[Argument]:
    """All of them. Commands that work for minutes are given a model that is not there: flags come before the work.

    Each runs in an empty directory of the stage, so that what it writes is new, and a strange name of a file harmless.
    """
    model, draft, away = str(stage.target), str(stage.draft), str(stage.directory / "away")
    texts = ["--target", model, "--data", str(stage.text)]
    sure: dict[str, list[str]] = {
        "generate": ["abc", "--model", model, "--max-tokens", "3", "--dtype", "float32"],
        "chat": ["--model", away],
        "audit": ["--model", away],
        "bench": ["--model", away, "--out", "out.jsonl"],
        "demo": ["--model", away],
        "datastore build": ["out-store", "--model", away],
        "datastore info": [str(stage.store)],
        "completion": ["bash"],
        "info": [],
        "quantize": [away, "--out", "out-int4"],
        "tune-skip": [away, "--out", "out.json"],
        "theory": [],
        "pull": ["away"],
        "list": [],
        "rm": ["away"],
        "methods": [],
        "cut": [model, "--out", "out-cut"],
        "merge": [model, "--lora", away, "--out", "out-merged"],
        "convert": [draft, "--target", model, "--to", "vllm", "--out", "out-other"],
        "train": ["draft_model", "--target", away, "--data", str(stage.text), "--out", "out-draft"],
    }
    also: dict[str, list[list[str]]] = {  # other things that a command does
        "train": [
            ["answers", *texts, "--out", "out-answers.jsonl", "--max-tokens", "1"],
            ["tree", draft, *texts],
            ["check", draft, "--target", model],
        ]
    }
    line = import_module("outdraft.cli.command")  # found when it is needed: `outdraft audit` leans on the test kit
    for name, command in line.all_commands():
        words = sure.get(name, ["--model", away])
        known = [flag for flag, _ in _flags(command.options)]
        if "model" not in known and "--model" in words:
            words = [word for word in words if word not in ("--model", away)]
        for given in (words, *also.get(name, ())):
            what = f"{name} {given[0]}" if name in also else name
            takes = None if given is words else import_module("outdraft.cli.commands.train").TAKES[given[0]]
            for flag, is_switch in _flags(command.options):

                def use(value: Any, name: str = name, flag: str = flag, words: list[str] = given) -> object:
                    return _run(stage, [*name.split(), *words, f"--{_spelled(flag)}={as_words(value)}"])

                needs_away = flag in ("model", "target") and away in given  # a good one would begin the work
                if not is_switch and not needs_away and (takes is None or flag in takes):
                    yield Argument(name=f"outdraft {what} --{_spelled(flag)}", use=use)
        yield Argument(name=f"outdraft {name} WORD", use=_word(stage, name))


def _word(stage: Stage, name: str) -> Callable[[Any], object]:
    return lambda value: _run(stage, [*name.split(), as_words(value)[:50]])


def _run(stage: Stage, words: list[str]) -> object:
    """Exit code 2 is a refusal, as an `OutdraftError` is."""
    place = stage.directory / "here"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    with chdir(place):
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
