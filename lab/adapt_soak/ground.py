"""What the stages share: requests, their right texts, an engine that learns on zoo:target and zoo:eagle3."""

import os
import sys
from collections.abc import Sequence as Seq
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from outdraft import LLM, SamplingParams, zoo

HEAD: dict[str, Any] = {"num_speculative_tokens": 3, "max_num_seqs": 8}
EAGER = {
    "first": 500,
    "while_busy": True,
    "learn": {"epochs": 1000.0, "step_tokens": 256, "weigh": "even"},
    "gate": {"alpha": 0.5, "margin": 2.0, "cut": 3.0},
}
BATCH = 24  # requests that are asked together
Record = dict[str, Any]
Asked = tuple[dict[str, Any], SamplingParams]


def requests(rng: Random, count: int, longest: int) -> list[Asked]:
    """Different prompts and settings: greedy and seeded, short and longer."""
    heldout, found = [*zoo.heldout_prompts().values()], list[Asked]()
    for i in range(count):
        words = rng.choice(heldout).split()
        start = rng.randrange(max(1, len(words) - 3))
        settings: dict[str, Any] = {"max_tokens": rng.randrange(4, longest), "ignore_eos": True}
        if i % 2:
            settings |= {"temperature": rng.choice((0.7, 1.0)), "seed": i, "top_k": rng.choice((0, 20))}
        found.append(({"prompt": " ".join(words[start : start + rng.randrange(2, 12)])}, SamplingParams(**settings)))
    return found


def written(llm: LLM, asked: Seq[Asked]) -> list[tuple[int, ...]]:
    return [one.token_ids for one in llm.generate([prompt for prompt, _ in asked], [one for _, one in asked])]


def plain_texts(asked: Seq[Asked]) -> list[tuple[int, ...]]:
    with LLM("zoo:target", drafter="none") as plain:
        return written(plain, asked)


def learning(room: Path, **options: Any) -> LLM:
    return LLM(
        "zoo:target",
        drafter={"name": "eagle3", "model": "zoo:eagle3"},
        adapt={"room": str(room), **EAGER, **options},
        **HEAD,
    )


def hurry(pid: int | None) -> None:
    """A learner has idle priority: on a machine with other work it would hardly run, and this tries nothing."""
    with suppress(OSError):
        if pid is not None:
            os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
            os.setpriority(os.PRIO_PROCESS, pid, 0)


def say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
