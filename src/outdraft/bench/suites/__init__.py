"""Prompts, by suite. A suite is one of ours by name, or a file in a format that others already use.

    copy prose code docs    openings of texts that no zoo model was trained on (`zoo.heldout_prompts`)
    log                     made up by rule: lines of a server's log
    mt-bench gsm8k          80 questions each, for a model that answers; `real` is all three
    humaneval
    PATH, NAME=PATH         JSON lines of Spec-Bench, MT-bench, SPEED-Bench, HumanEval, GSM8K; or plain text
Data in: such a name, and how many prompts; data out: `Prompt`s, spread over the whole suite.
"""

from collections.abc import Sequence as Seq
from itertools import chain
from pathlib import Path

from outdraft.bench.suites.formats import read_file
from outdraft.bench.suites.prompt import Prompt
from outdraft.bench.suites.workloads import DEFAULT, NAMES, REAL, workload
from outdraft.options.errors import ConfigError
from outdraft.options.near_miss import near_miss
from outdraft.options.paths import user_path

__all__ = ["DEFAULT", "NAMES", "Prompt", "load_suite", "load_suites"]

_GENERIC = ("question", "questions", "data", "train", "test", "prompts")


def load_suites(given: Seq[str], *, count: int = 0) -> list[Prompt]:
    """All prompts of these suites, at most `count` of each (0: all). Raises `ConfigError` if two have one name."""
    prompts: list[Prompt] = []
    for one in chain.from_iterable(REAL if name == "real" else (name,) for name in given):
        loaded = load_suite(one)
        name = loaded[0].suite
        if any(prompt.suite == name for prompt in prompts):
            raise ConfigError(f"two suites are called {name!r}: name one of them, --suite NAME=PATH")
        prompts += spread(loaded, count)
    return prompts


def load_suite(given: str) -> list[Prompt]:
    """The prompts of one suite; raises `ConfigError` naming what is wrong with its name or its file."""
    if given in NAMES:
        return workload(given)
    name, equals, path = given.partition("=")
    file = user_path(path if equals else given)
    if not file.is_file():
        known = f"{', '.join(NAMES)}, real (the last three), or a file"
        raise ConfigError(f"suite {given!r}{near_miss(given, [*NAMES, 'real'])}: no such file; a suite is {known}")
    return read_file(file, name if equals else name_of(file))


def name_of(file: Path) -> str:
    """The file's name without its endings, or its folder's where the file has a generic name."""
    stem = file.name.split(".")[0]
    return file.absolute().parent.name if stem in _GENERIC else stem


def spread(prompts: list[Prompt], count: int) -> list[Prompt]:
    """`count` of them at equal distances, so that every category has its share; all if `count` is 0."""
    if not 0 < count < len(prompts):
        return prompts
    return [prompts[i * len(prompts) // count] for i in range(count)]
