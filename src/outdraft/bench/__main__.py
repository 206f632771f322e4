"""Real acceptance at a realistic size: inflate the zoo's target, which keeps its law, and race the drafters over it.

    python -m outdraft.bench [--width 4] [--depth 12] [--seconds 20]      about 300 million parameters in bfloat16

One line of JSON for each drafter and depth: tokens per target pass, speed-up (median over rounds of plain seconds /
drafter's seconds of the same round), the same by kind of prompt, and whether all texts equal plain decoding's.
"""

import argparse
import json
import sys
from collections.abc import Sequence as Seq
from dataclasses import asdict
from tempfile import TemporaryDirectory

from outdraft import zoo
from outdraft.bench.contest import hold
from outdraft.bench.lineup import Rival
from outdraft.engine.llm import LLM
from outdraft.models.base import Decoder
from outdraft.models.load import load_model
from outdraft.testing.inflate import inflate
from outdraft.testing.prompts import CODE, COPIES, PROSE

RIVALS = [
    *(Rival(name="draft_model", num_speculative_tokens=k) for k in (3, 5, 8)),
    *(Rival(name="ngram", num_speculative_tokens=k) for k in (4, 8)),
    Rival(name="lookahead", num_speculative_tokens=4),
]


def main(arguments: Seq[str] | None = None) -> int:
    """Inflate, race, report; 1 if a text differs."""
    parser = argparse.ArgumentParser(prog="python -m outdraft.bench", description="race drafters at a realistic size")
    parser.add_argument("--width", type=int, default=4, help="channels, heads and units times this (default 4)")
    parser.add_argument("--depth", type=int, default=12, help="layers, identity ones included (default 12)")
    parser.add_argument("--seconds", type=float, default=20, help="about how long to time each drafter (default 20)")
    parser.add_argument("--max-tokens", type=int, default=96, help="tokens of each text (default 96)")
    given = parser.parse_args(arguments)
    with TemporaryDirectory() as directory:
        inflate(zoo.path("target"), directory, width=given.width, depth=given.depth)
        size = count_parameters(load_model(directory))
        plain = LLM(directory)
    assert plain.codec is not None
    prompts = {"prose": PROSE[0], "python": CODE[1], "copy": COPIES[0]}
    ids = {kind: plain.codec.encode(text) for kind, text in prompts.items()}
    identical = True
    for rival in RIVALS:
        contest = hold(plain, [rival], ids, max_tokens=given.max_tokens, seconds=given.seconds)
        score = contest.scores[1]
        identical &= score.identical
        line = {"parameters": size, "dtype": plain.config["dtype"], "plain_tps": contest.plain_tps,
                "num_rounds": contest.num_rounds, **asdict(rival), **asdict(score)}  # fmt: skip
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    return 0 if identical else 1


def count_parameters(decoder: Decoder) -> int:
    """Tied weights once."""
    return sum(parameter.numel() for parameter in decoder.parameters())


if __name__ == "__main__":
    sys.exit(main())
