"""Many short requests beside a learner that works: their texts, and the memory of both processes."""

import os
from pathlib import Path
from random import Random
from statistics import median
from time import monotonic

from lab.adapt_soak.ground import Record, hurry, learning, plain_texts, requests, say, written
from lab.adapt_soak.kills import count_of
from outdraft.adapt.room import SHARED, AdaptRoom
from outdraft.adapt.spool import read_spool


def soak(out: Path, count: int) -> Record:
    """`count` requests in batches of 50 beside a learner that works; memory is read after each."""
    rng, asked = Random(6), requests(Random(7), 400, 12)
    wanted, wrong, done, memory = plain_texts(asked), 0, 0, list[tuple[int, int]]()
    began = monotonic()
    with learning(out / "soaked") as llm:
        assert llm.adapting is not None and llm.adapting.learner is not None
        while done < count:
            some = [rng.randrange(len(asked)) for _ in range(min(50, count - done))]
            wrong += sum(one != wanted[i] for i, one in zip(some, written(llm, [asked[i] for i in some]), strict=True))
            done += len(some)
            hurry(llm.adapting.learner.pid)
            memory.append((mebibytes(os.getpid()), mebibytes(llm.adapting.learner.pid)))
            if done % 1000 == 0:
                say(f"{done} of {count}, {monotonic() - began:.0f} s, MiB of engine and learner {memory[-1]}")
        status = llm.adapting.status()
    tenant = AdaptRoom(out / "soaked").tenant(SHARED)
    quarter = len(memory) // 4
    told = {
        name: [median(one[i] for one in part) for part in (memory[:quarter], memory[-quarter:])]
        for i, name in enumerate(("engine MiB", "learner MiB"))
        if quarter
    }
    counts = {what: count_of(tenant, what) for what in ("tried", "passed", "rolled back", "broke")}
    return {
        "requests": done,
        "wrong": wrong,
        "seconds": round(monotonic() - began),
        **told,
        "version": status["version"],
        "kept": sum(1 for _ in read_spool(tenant.requests)),
        **counts,
    }


def mebibytes(pid: int | None) -> int:
    """Of memory that a process has; 0 where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) >> 8
    except OSError:
        return 0
