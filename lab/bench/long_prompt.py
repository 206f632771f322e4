"""`python -m lab.bench.long_prompt MODEL`: a long prompt arrives while others stream. What do they notice?

    others   | . . . . . . . . . | .  .  .  .  .  .  .  .  . | ...
               quiet               the long prompt is read     its first token

Shown are the gaps between two pieces of the others' texts (median and 99th percentile) and their tokens a second, quiet
and meanwhile, and how long the prompt took to its first token, beside the time it takes alone. The model's context is
set to what is asked for: beyond the one that it was trained for its text is noise, the timing is not.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from outdraft.bench.machine import busy_note
from outdraft.bench.made import make_model
from outdraft.bench.shelf import Shelf
from outdraft.engine.llm import LLM
from outdraft.engine.naming.roles import FILE as COMPANIONS
from outdraft.engine.naming.roles import read_companions
from outdraft.options.errors import OutdraftError
from outdraft.options.params import SamplingParams

_WARM = 2.0  # seconds before anything is counted
_LENGTH = 256  # tokens of each of the others' texts: with endless ones every round would take longer, prompt or not


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What the others got in a span of time."""

    median_gap: float  # seconds
    p99_gap: float
    tokens_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the streaming texts fared before the long prompt came, and while it was read."""

    quiet: Window
    beside: Window
    first_seconds: float  # of the long prompt, beside the others


Arrival = tuple[float, int]  # when a piece came, and how many tokens it had


def window(texts: Seq[Seq[Arrival]], start: float, stop: float) -> Window:
    """Of texts: the gaps that end in [start, stop), and the tokens that came in it."""
    gaps = [
        later - sooner for arrivals in texts for (sooner, _), (later, _) in pairwise(arrivals) if start <= later < stop
    ]
    tokens = sum(num for arrivals in texts for at, num in arrivals if start <= at < stop)
    p50, p99 = np.percentile(gaps, [50, 99]) if gaps else (float("nan"), float("nan"))
    return Window(median_gap=float(p50), p99_gap=float(p99), tokens_per_second=tokens / (stop - start))


async def measure(llm: LLM, prompt: list[int], *, others: int, seconds: float) -> Outcome:
    """`others` stream for so long in quiet, one text after another each; then the prompt comes."""
    vocab = llm.engine.parts.target.vocab_size
    texts: list[list[Arrival]] = []

    async def listen(i: int) -> None:
        for number in count():  # no text is written twice, so none copies an earlier one
            start = {"prompt_token_ids": [(37 * i + 101 * number + 11 * j) % (vocab - 2) + 1 for j in range(24)]}
            # the first ones have different lengths, so that not all begin anew at once
            length = max(1, _LENGTH * (i + 1) // others) if number == 0 else _LENGTH
            texts.append(text := list[Arrival]())
            async for chunk in llm.astream(start, SamplingParams(max_tokens=length, ignore_eos=True)):
                text.append((time.perf_counter(), len(chunk.token_ids)))

    tasks = [asyncio.create_task(listen(i)) for i in range(others)]
    try:
        await asyncio.sleep(_WARM + seconds)
        arrives = time.perf_counter()
        await llm.agenerate({"prompt_token_ids": prompt}, SamplingParams(max_tokens=1, ignore_eos=True))
        first = time.perf_counter()
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return Outcome(
        quiet=window(texts, arrives - seconds, arrives),
        beside=window(texts, arrives, first),
        first_seconds=first - arrives,
    )


def with_context(model: Path, max_len: int, place: Path) -> Path:
    """The same weights with another limit of positions, in the directory `place`."""
    for file in model.iterdir():
        (place / file.name).symlink_to(file.resolve())
    config = place / "config.json"
    told = json.loads(config.read_text())
    config.unlink()
    config.write_text(json.dumps({**told, "max_position_embeddings": max_len}))
    if (companions := place / COMPANIONS).exists():  # it names them from where the model lies
        companions.unlink()
        companions.write_text(json.dumps(read_companions(model)))
    return place


def main(words: Seq[str] | None = None) -> int:
    """Measure and show; 2 for a model that cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.long_prompt", description=__doc__)
    parser.add_argument("model", nargs="?", default="zoo:target@4x12")
    parser.add_argument("--prompt", type=int, default=16_000, help="tokens of the long prompt")
    parser.add_argument("--context", type=int, default=32_768, help="positions that the model is set to")
    parser.add_argument("--others", type=int, default=4, help="texts that stream meanwhile")
    parser.add_argument("--seconds", type=float, default=10.0, help="of quiet before the prompt")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--drafter", default="none", help='who drafts for the others; "default": what LLM(model) does')
    given = parser.parse_args(words)
    drafts: dict[str, Any] = {} if given.drafter == "default" else {"drafter": given.drafter}
    try:
        made = make_model(given.model, Shelf())
        with TemporaryDirectory() as place:
            llm = LLM(with_context(made.path, given.context, Path(place)), **drafts)
            _show(llm, given)
    except OutdraftError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


def _show(llm: LLM, given: argparse.Namespace) -> None:
    sys.stdout.write(f"{given.model}, {given.others} texts stream, a prompt of {given.prompt} tokens; {busy_note()}\n")
    vocab = llm.engine.parts.target.vocab_size
    for turn in range(given.rounds):
        prompt = [(13 * i * i + 7 * i + turn) % (vocab - 2) + 1 for i in range(given.prompt)]
        if turn == 0:  # the first pass of an engine pays for things that are done once
            llm.generate({"prompt_token_ids": prompt[:64]}, SamplingParams(max_tokens=4, ignore_eos=True))
        llm.forget()
        began = time.perf_counter()
        llm.generate({"prompt_token_ids": prompt}, SamplingParams(max_tokens=1, ignore_eos=True))
        alone = time.perf_counter() - began
        prompt = [1 + i % (vocab - 2) for i in prompt]
        found = asyncio.run(measure(llm, prompt, others=given.others, seconds=given.seconds))
        for name, one in (("quiet", found.quiet), ("beside", found.beside)):
            sys.stdout.write(
                f"  {name:7} gap {1000 * one.median_gap:7.1f} ms, p99 {1000 * one.p99_gap:7.1f} ms, "
                f"{one.tokens_per_second:7.1f} tokens a second\n"
            )
        sys.stdout.write(
            f"  beside / quiet: p99 gap {found.beside.p99_gap / found.quiet.p99_gap:.2f}, rate "
            f"{found.beside.tokens_per_second / found.quiet.tokens_per_second:.2f}; first token of the long prompt "
            f"after {found.first_seconds:.1f} s, alone {alone:.1f} s\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
