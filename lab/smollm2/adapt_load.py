"""What a draft that learns costs the requests beside it, in a closed loop at half of an engine's capacity.

    python -m lab.smollm2.adapt_load forms.jsonl ROOM [--requests 60] [--rounds 3] [--model smollm2] [--while-busy]

One client asks, waits for the answer, and pauses as long as the answer took: the engine works half of the time. Without
and with a learner take turns, each with an engine of its own over the same room; the learner trains whenever it may.
Prompts are those of a stream (`lab.smollm2.streams`), 128 tokens each, sampled and seeded, so both write the same
texts. Data out: throughput, the 99th percentile of gaps between pieces and the time to the first token, as ratios of
learning to not learning, and what the learner took of a processor meanwhile.
"""

import argparse
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

from outdraft import LLM, SamplingParams
from outdraft.adapt.room import SHARED

_TOKENS = 128


@dataclass
class Half:
    """What one engine's requests took."""

    seconds: float = 0.0
    tokens: int = 0
    firsts: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    texts: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def figures(self) -> tuple[float, float, float]:
        """Tokens a second of answering, p99 of gaps, median time to the first token."""
        gaps = sorted(self.gaps)
        return self.tokens / self.seconds, gaps[int(0.99 * (len(gaps) - 1))], median(self.firsts)


def ask(llm: LLM, prompts: list[list[int]], half: Half) -> None:
    """Each prompt once, with a pause as long as its answer took."""
    for seed, prompt in enumerate(prompts):
        began = last = perf_counter()
        ids: list[int] = []
        for piece in llm.stream(
            {"prompt_token_ids": prompt},
            SamplingParams(max_tokens=_TOKENS, temperature=0.7, seed=seed, ignore_eos=True),
        ):
            now = perf_counter()
            (half.gaps if ids else half.firsts).append(now - last)
            ids += piece.token_ids
            last = now
        half.seconds, half.tokens = half.seconds + last - began, half.tokens + len(ids)
        half.texts.append(tuple(ids))
        sleep(last - began)


def main() -> int:
    """Print a line for each round, and the medians of the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("stream", type=Path)
    parser.add_argument("room", type=Path)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--while-busy", action="store_true", help="the learner does not stop while a request runs")
    asked = parser.parse_args()
    lines = asked.stream.read_text(encoding="utf-8").splitlines()
    prompts = [json.loads(line)["prompt_token_ids"] for line in lines][: asked.requests]
    ratios: list[list[float]] = []
    for number in range(asked.rounds):
        found = {}
        for learns in (False, True) if number % 2 else (True, False):
            (asked.room / "frozen").unlink(missing_ok=True)
            options = {"room": str(asked.room), "first": 1 << 30, "while_busy": asked.while_busy, "learner": learns}
            with LLM(asked.model, adapt=options) as llm:
                assert llm.adapting is not None
                ask(llm, prompts[:6], Half())  # warm; the learner reads the target meanwhile
                sleep(20 if learns else 0)
                spent = cpu(llm.adapting.learner.pid) if llm.adapting.learner is not None else 0.0
                ask(llm, prompts, half := Half())
                spent = cpu(llm.adapting.learner.pid) - spent if llm.adapting.learner is not None else 0.0
            found[learns] = half
            if learns:
                sys.stdout.write(f"round {number}: the learner took {spent:.1f} s of a processor\n")
        ratios.append([a / b for a, b in zip(found[True].figures, found[False].figures, strict=True)])
        same = sum(a == b for a, b in zip(found[True].texts, found[False].texts, strict=True))
        told = ", ".join(f"{one:.3f}" for one in ratios[-1])
        sys.stdout.write(
            f"round {number}: throughput, p99 gap, first token {told}; {same} of {len(prompts)} texts equal\n"
        )
        sys.stdout.flush()
    middle = [median(column) for column in zip(*ratios, strict=True)]
    sys.stdout.write(f"learning over frozen, medians: {', '.join(f'{one:.3f}' for one in middle)} ({SHARED})\n")
    return 0


def cpu(pid: int | None) -> float:
    """Seconds of a processor that a process has taken; 0 where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100
    except (OSError, IndexError):
        return 0.0


if __name__ == "__main__":
    sys.exit(main())
