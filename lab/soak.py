"""`python -m lab.soak`: many requests of mixed shape in little memory, some of which leave or break.

    64 callers -> LLM (bounded pool, prefix caching, speculation) -> each text is compared with the one right answer

Three in ten requests are cancelled midway, some have a deadline, and faults are planted: a constraint that raises in
the middle of a text, vectors that make logits of no value, a pool that says it is full, a drafter that raises. A
request not to blame must get its text; one to blame gets one clear error. In the end nothing runs, no page is taken, of
the target's or of a drafter's, no thread is left, and memory has stopped growing. Which request gets what is a function
of the seed; when it runs is not.
"""

import argparse
import asyncio
import gc
import json
import logging
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import torch

from lab.own_caches import own_caches
from outdraft.cache.paged import PagedCache
from outdraft.core.drafter import Drafter, inner
from outdraft.engine.assembly.variant import runner_of
from outdraft.engine.llm import LLM
from outdraft.engine.loop import Engine
from outdraft.options.errors import CacheFullError, OutdraftError
from outdraft.options.params import SamplingParams

CALLERS = 64
_KINDS = 48  # different requests; each has one right text
_HONEST = 2 * CALLERS  # takes after a planted "full": a batch needs fewer to try again, together and alone


class Raises:
    """A constraint that allows everything, until it breaks."""

    def __init__(self, vocab_size: int, after: int) -> None:
        self._all = torch.ones(vocab_size, dtype=torch.bool)
        self._left = after

    def advance(self, token: int) -> None:
        self._left -= 1
        if self._left <= 0:
            raise RuntimeError("planted fault")

    def allowed(self, path: Any) -> torch.Tensor:
        return self._all


@dataclass(slots=True)
class Tally:
    """What happened. `wrong`: texts that are not what they should be, and errors that were not planted."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)  # bytes of the process, ten times on the way


def kinds(rng: Random, vocab_size: int) -> list[tuple[dict[str, Any], SamplingParams]]:
    """Prompts that share beginnings, and settings: greedy or seeded, short and longer, with penalties and the like."""
    found = []
    for i in range(_KINDS):
        start = [1 + (j * 31) % (vocab_size - 1) for j in range(rng.choice((3, 20, 40)))]
        prompt = start + [rng.randrange(1, vocab_size) for _ in range(rng.randrange(1, 60))]
        words: dict[str, Any] = {"max_tokens": rng.choice((rng.randrange(2, 28), 90)), "ignore_eos": True}
        if rng.random() < 0.5:
            words |= {"temperature": rng.choice((0.7, 1.0)), "seed": i, "top_k": rng.choice((0, 20))}
        words |= rng.choice(({}, {}, {"repetition_penalty": 1.2}, {"logprobs": 2}, {"banned_token_ids": [5, 6, 7]}))
        found.append(({"prompt_token_ids": prompt}, SamplingParams(**words)))
    return found


async def soak(llm: LLM, count: int, seed: int, tell: Callable[[str], None] = lambda line: None) -> Tally:
    """Ask `count` times. What is right is written by plain decoding first."""
    asked = kinds(Random(seed), llm.engine.parts.target.vocab_size)
    plain = llm.with_drafter("none")
    wanted = [one.token_ids for one in plain.generate([prompt for prompt, _ in asked], [each for _, each in asked])]
    plain.close()
    del plain
    tally, numbers = Tally(), iter(range(count))
    began = perf_counter()

    async def call() -> None:
        for number in numbers:
            await _one(llm, Random(f"{seed}/{number}"), asked, wanted, tally)
            if number % max(1, count // 10) == 0:
                tally.memory.append(_own_memory())
                tell(f"{number} of {count} after {perf_counter() - began:.0f} s, {tally.memory[-1] >> 20} MiB")

    await asyncio.gather(*(call() for _ in range(CALLERS)))
    tally.memory.append(_own_memory())
    return tally


async def _one(llm: LLM, rng: Random, asked: Any, wanted: list[tuple[int, ...]], tally: Tally) -> None:
    """One request and what becomes of it."""
    i, fate = rng.randrange(len(asked)), rng.random()
    (prompt, params), right = asked[i], list(wanted[i])
    if fate < 0.30:
        stop, written = rng.randrange(1, 8), list[int]()
        async for chunk in llm.astream(prompt, params):
            written += chunk.token_ids
            if len(written) >= stop:
                break
        return _compare(tally, "cancelled", written, right[: len(written)], i)
    if fate < 0.33:
        one = await llm.agenerate(prompt, params, timeout=rng.choice((0.001, 0.05, 0.3)))
        return _compare(tally, one.finish_reason or "", list(one.token_ids), right[: len(one.token_ids)], i)
    if fate < 0.36:
        vocab, after = llm.engine.parts.target.vocab_size, rng.randrange(1, 5)
        return await _fails(llm, prompt, params, tally, "planted fault", constraint=lambda: Raises(vocab, after))
    if fate < 0.38:
        vectors = torch.full((len(prompt["prompt_token_ids"]), runner_of(llm.engine.parts).hidden_size), torch.inf)
        return await _fails(llm, prompt, params, tally, "largest value", prompt_embeds=vectors)
    if fate < 0.39:
        return await _fails(llm, {"prompt_token_ids": [10**9]}, params, tally, "outside the vocabulary")
    one = await llm.agenerate(prompt, params, priority=rng.randrange(3))
    return _compare(tally, "whole", list(one.token_ids), right, i)


async def _fails(llm: LLM, prompt: Any, params: SamplingParams, tally: Tally, says: str, **words: Any) -> None:
    """A request that must end with this error, unless its text was over before."""
    try:
        one = await llm.agenerate(prompt, params, **words)
    except OutdraftError as error:
        tally.counts["error"] += 1
        if says not in str(error) and says not in str(error.__cause__):
            tally.wrong.append(f"an error says {str(error)[:200]!r}, not {says!r}")
    else:
        if "constraint" not in words or len(one.token_ids) > 5:
            tally.wrong.append(f"a planted fault ({says}) had no effect")
        tally.counts["over before the fault"] += 1


def _compare(tally: Tally, what: str, written: list[int], right: list[int], kind: int) -> None:
    tally.counts[what] += 1
    if written != right:
        tally.wrong.append(f"request of kind {kind}, {what}: wrote {written[:8]}..., right is {right[:8]}...")


def full_at_times(cache: PagedCache, rng: Random, share: float) -> None:
    """Have a pool say that it is full now and then, where texts want more pages.

    For the next takes it says the truth: the scheduler has found room for each text's next token, so a text that is
    refused as often as it tries would be right to fail.
    """
    take, honest = cache.store.take, 0

    def take_or_not(count: int) -> list[int]:
        nonlocal honest
        if count > 0 and threading.current_thread().name == "outdraft-engine":
            honest -= 1
            if honest < 0 and rng.random() < share:
                honest = _HONEST
                raise CacheFullError("planted: the pool is full")
        return take(count)

    cache.store.take = take_or_not  # type: ignore[method-assign]


def breaks_at_times(drafter: Drafter, rng: Random, share: float) -> Counter[str]:
    """Have a drafter raise now and then, before a verb and behind it; returns how often, by verb."""
    told: Counter[str] = Counter()

    def broken(name: str) -> Callable[..., Any]:
        verb = getattr(drafter, name)

        def verb_or_not(*given: Any) -> Any:
            fate = rng.random()
            told[name] += fate < share
            if fate < share / 2:
                raise RuntimeError("planted: the drafter broke")
            found = verb(*given)
            if fate < share:
                raise RuntimeError("planted: the drafter broke when it had done its work")
            return found

        return verb_or_not

    for name in ("begin", "propose", "observe"):
        setattr(drafter, name, broken(name))
    return told


def left_over(engine: Engine) -> list[str]:
    """What should not be there when no request is."""
    room, found = engine.parts.room, []
    if engine.has_work:
        found.append(f"{len(engine.running)} requests run and {len(engine.waiting)} wait")
    if room.capacity is not None and room.free * 16 != room.capacity:
        found.append(f"{room.free} pages are free of {room.capacity // 16}")
    of_target = runner_of(engine.parts).cache
    of_target.check()
    for cache in own_caches(engine.parts.drafter, of_target):
        cache.check()
        if cache.num_pages is not None and cache.num_free < cache.num_pages:
            found.append(f"{cache.num_free} pages are free of a drafter's {cache.num_pages}")
    for one in inner(engine.parts.drafter):
        for name, value in vars(one).items() if hasattr(one, "__dict__") else ():
            if isinstance(value, dict) and value and all(isinstance(key, int) for key in value) and "text" in name:
                found.append(f"{type(one).__name__}.{name} still has {len(value)} entries")
    return found


def _own_memory() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(words: list[str] | None = None) -> int:
    """Run it; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m lab.soak", description="Many requests, some broken.")
    parser.add_argument("--model", default="zoo:target")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drafter", help="by default what LLM(model) drafts with")
    parser.add_argument("--kv-cache-memory", default="1MiB")
    parser.add_argument("--full", type=float, default=0.001, help="how often a pool says that it is full")
    parser.add_argument("--breaks", type=float, default=0.0005, help="how often a drafter raises")
    asked = parser.parse_args(words)
    drafts = {} if asked.drafter is None else {"drafter": asked.drafter}
    logging.getLogger("outdraft").setLevel(logging.CRITICAL)  # it reports every planted fault
    llm = LLM(asked.model, kv_cache_memory=asked.kv_cache_memory, enable_prefix_caching=True, max_num_seqs=24, **drafts)
    threads = threading.active_count()
    cache = runner_of(llm.engine.parts).cache
    assert isinstance(cache, PagedCache)
    drafter, rng = llm.engine.parts.drafter, Random(asked.seed)
    for each in (cache, *own_caches(drafter, cache)):
        full_at_times(each, rng, asked.full)
    broke = breaks_at_times(drafter, rng, asked.breaks)
    began = perf_counter()
    tally = asyncio.run(soak(llm, asked.requests, asked.seed, _tell))
    wrong = tally.wrong + llm._thread.ask(left_over)
    llm.close()
    if threading.active_count() > threads:
        wrong.append(f"{threading.active_count()} threads are there, {threads} were")
    grown = (tally.memory[-1] - tally.memory[len(tally.memory) // 2]) / 2**20
    if grown > 32:
        wrong.append(f"memory grew by {grown:.0f} MiB in the second half")
    report = {
        "requests": asked.requests,
        "preempted": llm.engine.scheduler.num_preempted,
        "drafter raised": broke.total(),
        **dict(sorted(tally.counts.items())),
        "wrong": len(wrong),
        "grown_mib_in_second_half": round(grown, 1),
        "seconds": round(perf_counter() - began, 1),
    }
    sys.stdout.write(json.dumps(report) + "\n" + "".join(f"WRONG {one}\n" for one in wrong[:20]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
