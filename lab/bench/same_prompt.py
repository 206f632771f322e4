"""`python -m lab.bench.same_prompt MODEL`: the same long prompt twice. How much sooner does it answer then?

Prefix caching is on, and every round has a prompt of its own. Shown are the median times to the first token, the first
time and the second, and how many tokens were taken over, by drafter: a head that reads the target's states must not
lower that number. The context is set to what is asked for, as in `lab.bench.long_prompt`.
"""

import argparse
import sys
import time
from collections.abc import Sequence as Seq
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from lab.bench.long_prompt import with_context
from outdraft.bench.machine import busy_note
from outdraft.bench.made import make_model
from outdraft.bench.shelf import Shelf
from outdraft.engine.llm import LLM
from outdraft.options.errors import OutdraftError
from outdraft.options.params import SamplingParams


def main(words: Seq[str] | None = None) -> int:
    """Measure and show; 2 for a model or a drafter that cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.same_prompt", description=__doc__)
    parser.add_argument(
        "model", nargs="?", default="zoo:target", help="a head of its own size must be beside it for eagle"
    )
    parser.add_argument("--prompt", type=int, default=2_000, help="tokens of the prompt")
    parser.add_argument("--drafter", action="append", help="may be repeated; without it none and eagle")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(words)
    try:
        made = make_model(given.model, Shelf())
        with TemporaryDirectory() as folder:
            place = with_context(made.path, 2 * given.prompt, Path(folder))
            sys.stdout.write(f"{given.model}, {given.prompt} tokens of prompt, {given.rounds} rounds; {busy_note()}\n")
            for drafter in given.drafter or ("none", "eagle"):
                with LLM(place, drafter=drafter, enable_prefix_caching=True) as llm:
                    _show(llm, drafter, given.prompt, given.rounds)
    except OutdraftError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


def _show(llm: LLM, drafter: str, length: int, rounds: int) -> None:
    vocab = llm.engine.parts.target.vocab_size
    seconds: tuple[list[float], list[float]] = ([], [])
    taken: set[int] = set()
    for turn in range(rounds):
        prompt = {"prompt_token_ids": [(13 * i * i + 7 * i + turn) % (vocab - 2) + 1 for i in range(length)]}
        for times in seconds:
            began = time.perf_counter()
            found = llm.generate(prompt, SamplingParams(max_tokens=1, ignore_eos=True))
            times.append(time.perf_counter() - began)
        taken.add(found.num_cached_tokens)
    first, second = map(median, seconds)
    sys.stdout.write(
        f"  {drafter:8} first token after {1000 * first:.0f} ms, the second time {1000 * second:.1f} ms: "
        f"{first / second:.1f}x sooner; tokens taken over: {', '.join(map(str, sorted(taken)))}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
