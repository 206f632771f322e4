"""`python -m lab.replay_real`: record three kinds of traffic on a real model, and compare with replays.

    burst     48 short prompts at once
    stream    60 prompts at random times, every fifth of them long
    turns     8 talks of 4 turns behind one system prompt, with prefix caching

Throughput and the median time to the first token should be within 15 % on a quiet machine; on a busy one its pauses
come at other moments of the replay. `--keep DIR` keeps the traces, for `outdraft replay`.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine
from collections.abc import Sequence as Seq
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from outdraft.bench.machine import busy_note
from outdraft.bench.replay.simulate import learn, replay, scheduling_of
from outdraft.bench.replay.summary import Summary, summarise
from outdraft.bench.replay.trace import read_trace
from outdraft.engine.llm import LLM
from outdraft.engine.trace import record_trace
from outdraft.options.errors import OutdraftError
from outdraft.options.params import SamplingParams

_SEATS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Sends made-up prompts; `size` scales how many requests there are, `rate` is how many come a second."""

    llm: LLM
    random: Random
    size: float
    rate: float

    def prompt(self, least: int, most: int) -> list[int]:
        """Token ids that no text would have."""
        vocab = self.llm.engine.parts.target.vocab_size
        return [self.random.randrange(1, vocab) for _ in range(self.random.randint(least, most))]

    async def ask(self, prompt: Seq[int], num_tokens: int, *, after: float = 0.0) -> list[int]:
        """The answer, of exactly so many tokens, to what is asked `after` seconds."""
        await asyncio.sleep(after)
        params = SamplingParams(max_tokens=num_tokens, ignore_eos=True)
        return list((await self.llm.agenerate({"prompt_token_ids": list(prompt)}, params)).token_ids)


async def burst(client: Client) -> None:
    """Short prompts at once."""
    count = max(1, round(48 * client.size))
    await asyncio.gather(*(client.ask(client.prompt(8, 40), client.random.randint(16, 32)) for _ in range(count)))


async def stream(client: Client) -> None:
    """Prompts at random times, every fifth of them long."""
    after, asked = 0.0, []
    for i in range(max(1, round(60 * client.size))):
        after += client.random.expovariate(client.rate)
        prompt = client.prompt(10, 80) if i % 5 else client.prompt(300, 800)
        asked.append(client.ask(prompt, client.random.randint(10, 40), after=after))
    await asyncio.gather(*asked)


async def turns(client: Client) -> None:
    """Talks that begin with the same long prompt, and then go on with what was said."""
    system = client.prompt(256, 256)

    async def talk(after: float) -> None:
        said = list(system)
        for _ in range(4):
            said += client.prompt(10, 40)
            said += await client.ask(said, 24, after=after)
            after = client.random.uniform(0.0, 0.3)

    await asyncio.gather(*(talk(client.random.random()) for _ in range(max(1, round(8 * client.size)))))


_TRAFFIC: dict[str, tuple[Callable[[Client], Coroutine[Any, Any, None]], dict[str, Any]]] = {
    "burst": (burst, {}),
    "stream": (stream, {}),
    "turns": (turns, {"enable_prefix_caching": True}),
}


def main(words: Seq[str] | None = None) -> int:
    """Record, replay, show. 1 where `within` is exceeded, 2 for a model or a directory that cannot be had."""
    given = _parser().parse_args(words)
    try:
        with ExitStack() as stack:
            place = Path(given.keep or stack.enter_context(TemporaryDirectory()))
            place.mkdir(parents=True, exist_ok=True)
            return _compare(given, place)
    except (OutdraftError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lab.replay_real", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", default="zoo:target", help="its context must hold 1000 tokens")
    parser.add_argument("--drafter", default="ngram", help='who drafts; "default": what LLM(model) does')
    parser.add_argument("--traffic", choices=list(_TRAFFIC), action="append", help="only this; may be repeated")
    parser.add_argument("--rate", type=float, default=12.0, help="requests a second of the stream")
    parser.add_argument("--size", type=float, default=1.0, help="times as many requests, or talks")
    parser.add_argument("--within", type=float, help="end with 1 if a number is further off than this share")
    parser.add_argument("--keep", metavar="DIR", help="where the traces are kept")
    return parser


def _compare(given: argparse.Namespace, place: Path) -> int:
    sys.stdout.write(f"{given.model}, drafter {given.drafter}; {busy_note()}\n")
    drafts: dict[str, Any] = {} if given.drafter == "default" else {"drafter": given.drafter}
    is_near = True
    for name in given.traffic or _TRAFFIC:
        drive, settings = _TRAFFIC[name]
        with LLM(given.model, max_num_seqs=_SEATS, **drafts, **settings) as llm:
            client = Client(llm=llm, random=Random(name), size=given.size, rate=given.rate)
            asyncio.run(burst(client))  # kernels, threads and drafters are warm from here on
            with record_trace(llm, place / f"{name}.jsonl"):
                asyncio.run(drive(client))
        trace = read_trace(place / f"{name}.jsonl")
        real, told = summarise(trace.requests), replay(trace.requests, learn(trace), scheduling_of(trace))
        is_near &= _show(name, len(trace.passes), real, told, given.within)
    return 0 if is_near else 1


def _show(name: str, num_passes: int, real: Summary, told: Summary, within: float | None) -> bool:
    """Whether both numbers are near enough."""
    rows = (
        ("tokens a second", real.tokens_per_second, told.tokens_per_second, 1.0),
        ("first token, ms", real.first_median or 0.0, told.first_median or 0.0, 1e3),
    )
    ratios = [replayed / max(recorded, 1e-9) for _, recorded, replayed, _ in rows]
    sys.stdout.write(f"  {name}, {num_passes} passes\n")
    for (words, recorded, replayed, unit), ratio in zip(rows, ratios, strict=True):
        sys.stdout.write(f"    {words:16} real {recorded * unit:9.1f}  replayed {replayed * unit:9.1f}  {ratio:.2f}x\n")
    sys.stdout.flush()
    return within is None or all(abs(ratio - 1) <= within for ratio in ratios)


if __name__ == "__main__":
    sys.exit(main())
