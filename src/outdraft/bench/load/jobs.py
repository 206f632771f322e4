"""The requests of a load: a seeded mix of the suites' prompts, each with a length of its own, no two of them alike.

Lengths differ (from half of `max_tokens` to all of it), as they do in use: otherwise all clients would end at the same
step and the batch would be full or empty, never in between. When the prompts are used up they come again without some
tokens after the first, so that no request can be answered from the memory of an equal one.
"""

import random
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

from outdraft.bench.suites.prompt import Prompt, ask
from outdraft.codecs.text import TextCodec
from outdraft.options.errors import ConfigError
from outdraft.options.params import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob:
    """One request. `number` tells it from the others of its load; every answer has `params.max_tokens` tokens."""

    number: int
    name: str  # of the prompt: "prose 3"
    ids: tuple[int, ...]
    params: SamplingParams


def make_jobs(
    codec: TextCodec, prompts: Seq[Prompt], count: int, params: SamplingParams, *, seed: int, max_len: int
) -> list[LoadJob]:
    """The first `count` requests of the mix with this seed; fewer requests are a prefix of more.

    Only the first turn of a conversation is asked. With `params.seed`, every request has a seed of its own.

    Raises:
        ConfigError: no prompt fits into `max_len` tokens with its answer, or there are too few for `count`.
    """
    longest = params.max_tokens or 1
    asked = [
        (f"{one.suite} {one.name}", ask(codec, one, [{"role": "user", "content": one.turns[0]}]).ids) for one in prompts
    ]
    fitting = [(name, ids) for name, ids in asked if len(ids) + longest <= max_len]
    if not fitting:
        raise ConfigError(
            f"no prompt fits: the shortest has {min(len(ids) for _, ids in asked)} tokens, and with --max-tokens "
            f"{longest} it exceeds the context of {max_len}; lower --max-tokens, or take another --suite"
        )
    rng = random.Random(seed)
    jobs: list[LoadJob] = []
    seen: set[tuple[int, ...]] = set()
    left_out = 0
    while len(jobs) < count:
        turn = [(name, ids[:1] + ids[1 + left_out :]) for name, ids in fitting if len(ids) > left_out]
        if not turn:
            raise ConfigError(
                f"{len(fitting)} prompts make {len(jobs)} different requests, and {count} are asked for: take more "
                "suites or prompts (--suite, --prompts), or fewer requests (--requests, --load)"
            )
        for name, ids in rng.sample(turn, len(turn)):
            if ids in seen:
                continue
            seen.add(ids)
            number = len(jobs)
            length = rng.randint(-(-longest // 2), longest)
            seed_of_its_own = None if params.seed is None else params.seed + number
            mine = replace(params, max_tokens=length, seed=seed_of_its_own, ignore_eos=True)
            jobs.append(LoadJob(number=number, name=name, ids=ids, params=mine))
        left_out += 1
    return jobs[:count]
