"""The texts that setups write: prompts as ids, a record that an interrupted run goes on with, first differences.

A record is JSON lines: one that says how it was made, then one for each text ({"setup": [engine, weights, mode, k],
"prompt": "gsm8k 7013", "tokens": [...], ...}).
"""

import json
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import astuple
from pathlib import Path
from statistics import median
from typing import Any

from lab.bench.peers.setups import Setup
from outdraft.bench.suites import load_suites, spread
from outdraft.bench.suites.prompt import ask
from outdraft.models.files.load_codec import load_codec
from outdraft.options.errors import ConfigError

Texts = Mapping[str, Seq[int]]  # prompt -> ids


def read_prompts(target: Path, count: int, suite: str = "real") -> dict[str, list[int]]:
    """`count` questions at equal distances in the suite, as the target's own chats, by "SUITE NAME"."""
    codec = load_codec(target)
    if codec is None:
        raise ConfigError(f"{target} has no tokenizer")
    found = {}
    for prompt in spread(load_suites([suite]), count):
        asked = ask(codec, prompt, [{"role": "user", "content": prompt.turns[0]}])
        found[f"{prompt.suite} {prompt.name}"] = list(asked.ids)
    return found


class Record:
    """The lines of one file; `header` must be the same when a run goes on."""

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self._path = path
        self.lines: list[dict[str, Any]] = []
        if path.exists():
            first, *self.lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
            if first != header:
                raise ConfigError(f"{path} was made otherwise ({first}): choose another --out")
        else:
            self._add(header)

    def add(self, setup: Setup, prompt: str, told: Mapping[str, Any]) -> None:
        """One text, on the disk at once."""
        line = {"setup": list(astuple(setup)), "prompt": prompt, **told}
        self._add(line)
        self.lines.append(line)

    def texts(self) -> dict[Setup, dict[str, list[int]]]:
        """By setup and prompt; of several rounds the first."""
        found: dict[Setup, dict[str, list[int]]] = {}
        for line in self.lines:
            found.setdefault(setup_of(line), {}).setdefault(line["prompt"], line["tokens"])
        return found

    def _add(self, line: Mapping[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def setup_of(line: Mapping[str, Any]) -> Setup:
    """Whose line it is."""
    engine, weights, mode, k = line["setup"]
    return Setup(engine=engine, weights=weights, mode=mode, k=k)


def first_difference(mine: Seq[int], other: Seq[int]) -> int | None:
    """The first index at which they differ, or at which one has ended; None: they are equal."""
    pairs = enumerate(zip(mine, other, strict=False))
    parted = next((index for index, (one, two) in pairs if one != two), None)
    ended = min(len(mine), len(other)) if len(mine) != len(other) else None
    return ended if parted is None else parted


def differences(mine: Texts, plain: Texts) -> dict[str, int | None]:
    """By prompt that both have."""
    return {name: first_difference(mine[name], plain[name]) for name in mine if name in plain}


def says(found: Mapping[str, int | None]) -> str:
    """`3 of 25, from token 7 on, median 51`."""
    at = sorted(index for index in found.values() if index is not None)
    told = f"{len(at)} of {len(found)}"
    return f"{told}, from token {at[0]} on, median {median(at):g}" if at else told


def against_plain(texts: Mapping[Setup, Texts]) -> Iterator[tuple[Setup, dict[str, int | None]]]:
    """Every setup that guesses, and where its texts leave those of the same engine without a guess."""
    for setup, mine in texts.items():
        if setup != setup.alone and setup.alone in texts:
            yield setup, differences(mine, texts[setup.alone])
