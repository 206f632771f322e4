"""Rounds of a draft, text by text, kept in a file so that a run that was stopped goes on; diagnoses resample the texts.

    FILE.jsonl   a line a text: [[accepted, [p(x) / max p, ...], [own probability, ...]], ...]

A run of 2,000 rounds is drawn from a pool of texts without replacement, whole texts at a time, since rounds of one text
resemble each other. Two runs of a pool share texts, so hundreds of them say less than as many that were decoded anew.
"""

import json
import random
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from outdraft.adapt.observe import Observed
from outdraft.core.drafter import Seen
from outdraft.engine.llm import LLM
from outdraft.options.params import SamplingParams

Round = tuple[int, list[float], list[float]]
Text = list[Round]


class _Rounds(Observed):
    """Only the numbers of each round, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds: Text = []

    def count(self, accepted: int, near: Seq[float], sure: Seq[float]) -> None:
        self.rounds.append((accepted, [round(one, 4) for one in near], [round(one, 4) for one in sure]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What serves: a pair, and how it samples."""

    target: str
    head: Path
    temperature: float = 1.0
    tokens: int = 96  # of a text
    batch: int = 24
    depth: int = 7
    ignore_eos: bool = False


def decode(serving: Serving, prompts: Seq[Seq[int] | str], seeds: Iterable[int], file: Path) -> list[Text]:
    """A text behind each prompt for each seed; what the file has is not decoded again, and comes too."""
    asked = [(prompt, 1000 * seed + i) for seed in seeds for i, prompt in enumerate(prompts)]
    texts = read(file)
    if len(texts) >= len(asked):
        return texts
    drafter = {"name": "eagle3", "model": str(serving.head)}
    policy = {"name": "threshold", "threshold": 1e-9}  # it asks for the draft's own probability, and ends no chain
    file.parent.mkdir(parents=True, exist_ok=True)
    with LLM(serving.target, drafter=drafter, policy=policy, num_speculative_tokens=serving.depth) as llm:
        parts = llm.engine.parts
        inner, found = parts.drafter.observe, dict[int, _Rounds]()

        def watch(several: Seq[Seen]) -> None:
            for one in several:
                found.setdefault(id(one.seq), _Rounds()).add(one)
            inner(several)

        parts.drafter.observe = watch  # type: ignore[method-assign, assignment]
        with file.open("a", encoding="utf-8") as out:
            for start in range(len(texts), len(asked), serving.batch):
                some = asked[start : start + serving.batch]
                given: list[Any] = [p if isinstance(p, str) else {"prompt_token_ids": list(p)} for p, _ in some]
                found.clear()
                llm.generate(given, [_params(serving, seed) for _, seed in some])
                out.writelines(json.dumps(one.rounds) + "\n" for one in found.values())
                out.flush()
    return read(file)


def _params(serving: Serving, seed: int) -> SamplingParams:
    return SamplingParams(
        max_tokens=serving.tokens, temperature=serving.temperature, seed=seed, ignore_eos=serving.ignore_eos
    )


def read(file: Path) -> list[Text]:
    """What a file holds; of none nothing."""
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.is_file() else []


def resampled(pools: Seq[Seq[Text]], rounds: int, seed: int) -> Observed:
    """So many rounds, an equal share of each pool, one behind the other."""
    dice, observed, done = random.Random(seed), Observed(), 0
    for part, pool in enumerate(pools, 1):
        most = rounds * part // len(pools)
        for accepted, near, sure in islice(chain(*dice.sample(pool, len(pool))), most - done):
            observed.count(accepted, near, sure)
            done += 1
            for i, own in enumerate(sure):
                observed.calibration[min(9, int(10 * own))].add(own, is_right=i < accepted)
        if done < most:
            raise ValueError(f"a pool of {sum(map(len, pool))} rounds is too small for {rounds}: decode more texts")
    return observed
