"""What a counted vocabulary saves where a draft borrows SmolLM2's head: milliseconds of drafting a round, side by side.

    python -m lab.smollm2.counted_head VALID [--size 8192] [--rounds 7]     VALID: answers as ids, of which one is asked

The drafts are untrained, and guess four tokens in a chain; a text is written by both in turns, greedily. Data out: of
each kind the medians with all tokens and with `--size` of them, and their ratio.
"""

import argparse
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from outdraft import LLM, SamplingParams
from outdraft.core.learner_registry import find_learner
from outdraft.training.computing import open_target
from outdraft.weights.hub import resolve
from outdraft.weights.known import usual_model

DEPTH, TOKENS = 4, 48
KINDS: dict[str, dict[str, Any]] = {
    "mtp": {},
    "eagle1": {},
    "hydra": {"own_projections": False, "num_layers": 2},
    "medusa": {"own_projections": False},
}


def main() -> int:
    """A line for each kind."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("valid", type=Path)
    parser.add_argument("--size", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    with asked.valid.open(encoding="utf-8") as lines:
        prompt = {"prompt_token_ids": json.loads(next(lines))["prompt_token_ids"]}
    target = open_target(resolve(usual_model("smollm2")[0]), "bfloat16", "cpu")[0]
    params, sizes = SamplingParams(max_tokens=TOKENS, ignore_eos=True), (0, asked.size)
    with TemporaryDirectory() as place, LLM("smollm2", drafter="none") as plain:
        for kind, options in KINDS.items():
            method, took = find_learner(kind), {size: list[float]() for size in sizes}
            with ExitStack() as stack:
                engines = {}
                for size in sizes:
                    home = Path(place) / f"{kind}-{size}"
                    method.new(method.options(**options, draft_vocab_size=size), target, 0).save(home)
                    drafter = {"name": kind, "model": str(home), "width": 1}
                    llm = plain.with_speculation(drafter=drafter, num_speculative_tokens=DEPTH, policy="fixed")
                    engines[size] = stack.enter_context(llm)
                for turn in range(1 + asked.rounds):  # the first pays for what is done once
                    for size in sizes if turn % 2 else reversed(sizes):
                        stats = engines[size].generate(prompt, params).stats
                        took[size] += [1e3 * stats.draft_seconds / stats.num_steps] * (turn > 0)
            whole, cut = (median(took[size]) for size in sizes)
            sys.stdout.write(
                f"{kind}: {whole:.2f} ms with all tokens, {cut:.2f} ms with {asked.size}: {whole / cut:.2f}\n"
            )
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
