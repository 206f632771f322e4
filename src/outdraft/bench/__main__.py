"""Drafters raced on held-out text: over the zoo's target, or over one inflated to a realistic size with the same law.

    python -m outdraft.bench                             the zoo's target as it is
    python -m outdraft.bench --width 4 --depth 12        about 300 million parameters in bfloat16

One line of JSON for each drafter and depth: tokens per target pass, speed-up (median over rounds of plain seconds /
drafter's seconds of the same round), both by kind of prompt, and whether all texts equal plain decoding's. Over an
inflated target only drafters that do not read its hidden states can run.
"""

import argparse
import json
import sys
from collections.abc import Sequence as Seq
from dataclasses import asdict
from statistics import harmonic_mean
from tempfile import TemporaryDirectory

from outdraft import zoo
from outdraft.bench.contest import Score, hold
from outdraft.bench.lineup import ZOO_OPTIONS, Rival
from outdraft.engine.llm import LLM
from outdraft.models.base import Decoder
from outdraft.models.load import load_model
from outdraft.testing.inflate import inflate

RIVALS = [
    *(Rival(name="draft_model", num_speculative_tokens=k) for k in (3, 5, 8)),
    *(Rival(name="ngram", num_speculative_tokens=k) for k in (4, 8, 16)),
    Rival(name="lookahead", num_speculative_tokens=4),
]
INSIDERS = [
    *(Rival(name="eagle", num_speculative_tokens=k) for k in (3, 5, 8)),
    *(Rival(name="early_exit", options=ZOO_OPTIONS["early_exit"], num_speculative_tokens=k) for k in (2, 4)),
]


def main(arguments: Seq[str] | None = None) -> int:
    """Inflate, race, report; 1 if a text differs."""
    parser = argparse.ArgumentParser(prog="python -m outdraft.bench", description="race drafters at a realistic size")
    parser.add_argument("--width", type=int, default=1, help="channels, heads and units times this (default 1)")
    parser.add_argument("--depth", type=int, help="layers, identity ones included (default: as many as there are)")
    parser.add_argument("--seconds", type=float, default=20, help="about how long to time each drafter (default 20)")
    parser.add_argument("--per-kind", type=int, default=0, help="prompts of each kind (default: all)")
    parser.add_argument("--max-tokens", type=int, default=96, help="tokens of each text (default 96)")
    given = parser.parse_args(arguments)
    with TemporaryDirectory() as directory:
        inflate(zoo.path("target"), directory, width=given.width, depth=given.depth)
        size = count_parameters(load_model(directory))
        plain = LLM(directory)
    assert plain.codec is not None
    ids = {name: plain.codec.encode(text) for name, text in zoo.heldout_prompts().items()}
    if given.per_kind:
        ids = {name: tokens for name, tokens in ids.items() if int(name.split()[1]) <= given.per_kind}
    inflated = given.width > 1 or given.depth is not None
    identical = True
    for rival in RIVALS if inflated else RIVALS + INSIDERS:
        contest = hold(plain, [rival], ids, max_tokens=given.max_tokens, seconds=given.seconds)
        score = contest.scores[1]
        identical &= score.identical
        line = {"parameters": size, "dtype": plain.config["dtype"], "plain_tps": contest.plain_tps}
        line |= {"num_rounds": contest.num_rounds, **asdict(rival), **asdict(score), "by_kind": by_kind(score)}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    return 0 if identical else 1


def by_kind(score: Score) -> dict[str, dict[str, float]]:
    """Prompts of one kind together: they write equally many tokens, so means over passes and seconds are harmonic."""
    kinds: dict[str, list[dict[str, float]]] = {}
    for name, figures in score.by_kind.items():
        kinds.setdefault(name.split()[0], []).append(figures)
    return {
        kind: {figure: harmonic_mean([one[figure] for one in group]) for figure in ("tau", "speedup")}
        for kind, group in kinds.items()
    }


def count_parameters(decoder: Decoder) -> int:
    """Tied weights once."""
    return sum(parameter.numel() for parameter in decoder.parameters())


if __name__ == "__main__":
    sys.exit(main())
