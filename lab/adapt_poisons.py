"""Poisoned requests against the gate: how often does a draft pass that learned from them, or one that gained nothing?

    python -m lab.zoo.stream toy.jsonl old.jsonl
    python -m lab.adapt_poisons toy.jsonl [--drafts 20] [--buffers 1000] [--tries 2000] [--target zoo:target]

A poison is a draft that learned from requests whose answers were spoiled: shuffled, one token again and again, random
ids, or the answers of other requests. Not each of them harms: shuffled answers still teach the words of a domain. An
honest update learned from the answers themselves. All are judged on requests that were held out, which are not spoiled.
Then, from these pairs of accepted tokens a round:

    buffers    a poison, and held-out requests drawn again with replacement: does the gate let it in?
    equal      any pair of drafts, old and new changing places by a coin for each request: their expected lengths are
               equal, so every pass is a false one; the level of a first try is 6/pi^2 of alpha

Data out: a line for each draft, and these rates by kind.
"""

import argparse
import random
import sys
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import replace
from itertools import compress
from math import pi
from pathlib import Path
from statistics import mean

from outdraft import zoo
from outdraft.adapt.gate import Gate, GateOptions
from outdraft.adapt.learning import Learning
from outdraft.training.computing import open_target
from outdraft.training.live import LiveDraft
from outdraft.training.served import ServedRequest, read_served
from outdraft.weights.hub import resolve

_STEPS = 8
_SETTINGS = Learning(lr=9e-4, muon_lr=3e-3, depth=3, held_out=0.3, step_tokens=512, temperature=0.7)
Pairs = list[tuple[float, float]]  # accepted tokens a round on a request: by the draft that serves, by the new one
Spoil = Callable[[Seq[ServedRequest], random.Random, int], list[ServedRequest]]


def _shuffled(some: Seq[ServedRequest], dice: random.Random, vocab: int) -> list[ServedRequest]:
    return [replace(one, answer=tuple(dice.sample(one.answer, len(one.answer)))) for one in some]


def _one_token(some: Seq[ServedRequest], dice: random.Random, vocab: int) -> list[ServedRequest]:
    token = dice.randrange(vocab)
    return [replace(one, answer=(token,) * len(one.answer)) for one in some]


def _random_ids(some: Seq[ServedRequest], dice: random.Random, vocab: int) -> list[ServedRequest]:
    return [replace(one, answer=tuple(dice.randrange(vocab) for _ in one.answer)) for one in some]


def _of_others(some: Seq[ServedRequest], dice: random.Random, vocab: int) -> list[ServedRequest]:
    answers = dice.sample([one.answer for one in some], len(some))
    return [replace(one, answer=answer) for one, answer in zip(some, answers, strict=True)]


def _honest(some: Seq[ServedRequest], dice: random.Random, vocab: int) -> list[ServedRequest]:
    return list(some)


POISONS: dict[str, Spoil] = {
    "shuffled": _shuffled,
    "one token": _one_token,
    "random ids": _random_ids,
    "of others": _of_others,
}


def judged(live: LiveDraft, kind: Spoil, served: Seq[ServedRequest], held: Seq[ServedRequest], seed: int) -> Pairs:
    """A draft that learned from a share of the requests, spoiled, beside the one that serves."""
    dice = random.Random(seed)
    vocab = live.teacher.target.config.vocab_size
    some = kind(dice.sample(served, len(served) // 2), dice, vocab)
    live.go_back()
    for step in range(_STEPS):
        live.step(some[4 * step : 4 * step + 4] or some[:4])
    old, new = live.judge(held, (live.serving, live.candidate()))
    return list(zip(old, new, strict=True))


def passes(pairs: Pairs, options: GateOptions, depth: int, dice: random.Random, *, swaps: bool) -> bool:
    """Whether the gate lets it in, on held-out requests that are drawn with replacement."""
    gate = Gate(options, depth, 1)
    while gate.outcome == "undecided":
        old, new = dice.choice(pairs)
        if swaps and dice.random() < 0.5:
            old, new = new, old
        gate.add("all", old, new)
    return gate.outcome == "passed"


def main() -> int:
    """Train, judge, and draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("stream", type=Path)
    parser.add_argument("--target", default="zoo:target")
    parser.add_argument("--draft", type=Path, default=zoo.path("eagle3"))
    parser.add_argument("--drafts", type=int, default=20, help="poisons, and as many honest updates")
    parser.add_argument("--buffers", type=int, default=1000)
    parser.add_argument("--tries", type=int, default=2000)
    asked = parser.parse_args()
    live = LiveDraft(open_target(resolve(asked.target), "float32", "cpu"), asked.draft, _SETTINGS)
    requests = read_served(asked.stream)
    held = [one for one in requests if one.number < _SETTINGS.held_out]
    served = [one for one in requests if one.number >= _SETTINGS.held_out]
    kinds = [*POISONS.items()]
    found: dict[str, list[Pairs]] = {}
    for seed in range(2 * asked.drafts):
        name, kind = kinds[seed % len(kinds)] if seed < asked.drafts else ("honest", _honest)
        pairs = judged(live, kind, served, held, seed)
        found.setdefault(name, []).append(pairs)
        sys.stdout.write(f"{seed:3d} {name}: gain {mean(new - old for old, new in pairs):+.3f}\n")
        sys.stdout.flush()
    options, dice, depth = GateOptions(), random.Random(0), _SETTINGS.depth
    for name, several in found.items():
        gains = [mean(new - old for old, new in pairs) for pairs in several]
        sys.stdout.write(f"{name}: gain {min(gains):+.3f} to {max(gains):+.3f}\n")
        for what, some in (("harm", [one <= 0 for one in gains]), ("gain", [one > 0 for one in gains])):
            chosen = list(compress(several, some))
            count = asked.buffers // len(POISONS) * len(chosen) // len(several)
            passed = sum(passes(dice.choice(chosen), options, depth, dice, swaps=False) for _ in range(count))
            sys.stdout.write(f"  {len(chosen)} that {what}: {passed} of {count} passed\n")
    every = [pairs for several in found.values() for pairs in several]
    equal = sum(passes(dice.choice(every), options, depth, dice, swaps=True) for _ in range(asked.tries))
    level = options.alpha * 6 / pi**2
    sys.stdout.write(f"equal pairs: {equal} of {asked.tries} passed, {equal / asked.tries:.4f} (level {level:.4f})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
