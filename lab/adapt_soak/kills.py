"""SIGKILL at random moments, and an engine over what is left.

Killed are `outdraft adapt learn ROOM`, and `python -m lab.adapt_soak.kills ROOM publishing|engine`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from time import monotonic, sleep

from safetensors.torch import load_file

from lab.adapt_soak.ground import BATCH, Record, hurry, learning, plain_texts, requests, say, written
from outdraft import zoo
from outdraft.adapt.room import SHARED, AdaptRoom, TenantRoom

KILLED = ("training", "publishing", "engine")


def kills(out: Path, count: int) -> Record:
    """Each of `KILLED` in turn, at a random moment; then an engine over what is left."""
    room, rng, asked = out / "room", Random(3), requests(Random(4), 200, 48)
    wanted = plain_texts(asked)
    tally = dict.fromkeys((*KILLED, "amid a write", "wrong", "texts"), 0)
    with learning(room, learner=False) as llm:
        written(llm, asked)
    tenant = AdaptRoom(room).tenant(SHARED)
    reached = 0  # the latest version that was seen
    for number in range(count):
        kind = KILLED[number % len(KILLED)]
        ours = ["lab.adapt_soak.kills", str(room), kind]
        words = ["outdraft", "adapt", "learn", str(room)] if kind == "training" else ours
        tries, left = count_of(tenant, "tried"), half_published(tenant)
        process = subprocess.Popen(
            [sys.executable, "-m", *words], stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        if kind == "training":
            until = monotonic() + 60
            while count_of(tenant, "tried") == tries and monotonic() < until:  # until it has learned something
                hurry(process.pid)
                sleep(0.05)
        else:
            assert process.stdout is not None
            process.stdout.readline()
        sleep(rng.random() * {"training": 5, "publishing": 0.3, "engine": 5}[kind])
        process.send_signal(signal.SIGKILL)
        process.wait()
        tally[kind] += 1
        tally["amid a write"] += not half_published(tenant) <= left
        tally["wrong"] += ends(room) + broken(tenant, reached if kind == "publishing" else 0)
        reached = tenant.version
        some = rng.sample(range(len(asked)), BATCH)
        with learning(room, learner=False) as llm:
            assert llm.adapting is not None
            found = written(llm, [asked[i] for i in some])
            tally["wrong"] += llm.adapting.serving.get(SHARED, ("", 0))[1] != tenant.version
        tally["texts"] += len(some)
        tally["wrong"] += sum(one != wanted[i] for i, one in zip(some, found, strict=True))
        say(f"kill {number + 1}, {kind}: version {tenant.version}, {tally['wrong']} wrong")
    tried = [one["number"] for one in tenant.ledger() if one["what"] == "tried"]
    return {**tally, "tries": len(tried), "tries counted twice": len(tried) - len({*tried})}


def count_of(tenant: TenantRoom, what: str) -> int:
    return sum(one["what"] == what for one in tenant.ledger())


def half_published(tenant: TenantRoom) -> set[Path]:
    """What was being written, and what is whole while `current` does not name it yet."""
    begun = {*tenant.path.glob("versions/begun-*"), *tenant.path.glob("current.part-*")}
    return begun | {tenant.place(one) for one in tenant.versions() if one > tenant.version}


def broken(tenant: TenantRoom, least: int) -> int:
    """How many versions cannot be read, or went back."""
    bad = int(tenant.version < least) + int(tenant.version not in (0, *tenant.versions()))
    for version in tenant.versions():
        try:
            json.loads((tenant.place(version) / "config.json").read_text(encoding="utf-8"))
            load_file(tenant.place(version) / "model.safetensors")
        except Exception:
            bad += 1
    return bad


def ends(room: Path) -> int:
    """Whether a learner of this room is left 10 s after its engine was killed."""
    until = monotonic() + 10
    while monotonic() < until:
        if not any(str(room).encode() in line for line in command_lines()):
            return 0
        sleep(0.1)
    return 1


def command_lines() -> Iterator[bytes]:
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if b"\0learn\0" in (line := place.read_bytes()):
                yield line


def publish_on(room: Path) -> None:
    """Publish versions until killed."""
    tenant = AdaptRoom(room).tenant(SHARED)
    sys.stdout.write("begun\n")
    sys.stdout.flush()

    def write(place: Path) -> None:
        shutil.copytree(zoo.path("eagle3"), place, dirs_exist_ok=True)

    while True:
        tenant.publish(write)


def serve_on(room: Path) -> None:
    """Answer requests beside a learner until killed."""
    asked = requests(Random(5), 200, 24)
    with learning(room) as llm:
        written(llm, asked[:BATCH])
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        while True:
            written(llm, asked)


if __name__ == "__main__":
    {"publishing": publish_on, "engine": serve_on}[sys.argv[2]](Path(sys.argv[1]))
