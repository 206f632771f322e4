"""`python -m lab.adapt_soak OUT`: a draft that keeps learning, through many swaps, kills and requests.

    swaps    other versions are adopted while ragged batches run; every text is compared with that of plain decoding
    audit    unseeded texts at temperature 1 meanwhile, against the target's own distributions; and with a planted fault
    kills    SIGKILL to a learner, to a process that publishes, to an engine: the next engine has the version that
             `current` names, whole, and the same texts
    soak     many short requests beside a learner that works: texts, and medians of the memory of both processes, in MiB,
             over the first quarter of the batches and over the last

On zoo:target and zoo:eagle3. A stage that OUT/record.json holds is not run again. Data out: that record, and a line for
each stage; 1 where anything was wrong.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import median
from time import monotonic, sleep
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from outdraft import LLM, SamplingParams, zoo
from outdraft.adapt.room import SHARED, AdaptRoom
from outdraft.adapt.spool import read_spool
from outdraft.core.drafter import inner
from outdraft.drafters.shared.renewing import RenewingDrafter
from outdraft.engine.between_steps import adopt
from outdraft.testing.statistics import detectable_shift
from outdraft.testing.token_distribution import BINS, judge_tokens

HEAD: dict[str, Any] = {"num_speculative_tokens": 3, "max_num_seqs": 8}
EAGER = {"first": 2000, "while_busy": True, "learn": {"epochs": 1000.0, "step_tokens": 256}, "gate": {"alpha": 0.5}}
KILLED = ("training", "publishing", "engine")
_BATCH = 24
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


def versions_in(place: Path) -> list[Path]:
    """The head that ships, its negative, and two with noise."""
    weights, made = load_file(zoo.path("eagle3") / "model.safetensors"), list[Path]()
    for name, sign, noise in (("own", 1, 0.0), ("negative", -1, 0.0), ("near", 1, 0.1), ("far", 1, 0.5)):
        generator = torch.Generator().manual_seed(len(made))
        other = {
            key: sign * one + noise * one.float().std() * torch.randn(one.shape, generator=generator)
            if one.is_floating_point() and one.numel() > 1
            else one
            for key, one in weights.items()
        }
        shutil.copytree(zoo.path("eagle3"), place / name, dirs_exist_ok=True)
        save_file(
            {key: one.to(weights[key].dtype) for key, one in other.items()}, place / name / "model.safetensors"
        )
        made.append(place / name)
    return made


@contextmanager
def swapping(llm: LLM, places: Seq[Path]) -> Iterator[dict[str, int]]:
    """Inside, versions are adopted one after the other; yields how many were, and how many in the midst of requests."""
    over, told, rng = threading.Event(), {"swaps": 0, "while requests ran": 0}, Random(0)

    def swap() -> None:
        while not over.wait(rng.random() * 0.05):
            num_running = llm._thread.ask(lambda engine: len(engine.running))
            adopt(llm, places[told["swaps"] % len(places)])
            told["swaps"] += 1
            told["while requests ran"] += bool(num_running)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield told
    finally:
        over.set()
        thread.join()


def adopting() -> LLM:
    return LLM("zoo:target", drafter={"name": "eagle3", "model": "zoo:eagle3", "adopts": True}, **HEAD)


def swaps(out: Path, count: int) -> Record:
    """Texts of ragged batches that others join as they end, through `count` swaps in their midst."""
    rng = Random(1)
    asked = requests(rng, 96, 48)
    wanted, tally = plain_texts(asked), {"texts": 0, "wrong": 0}
    most = 0
    with adopting() as llm, swapping(llm, versions_in(out / "versions")) as told:
        while told["while requests ran"] < count:
            some = rng.sample(range(len(asked)), _BATCH)
            found = llm.generate([asked[i][0] for i in some], [asked[i][1] for i in some])
            tally["texts"] += len(some)
            tally["wrong"] += sum(one.token_ids != wanted[i] for i, one in zip(some, found, strict=True))
            most = max(most, len({version for one in found for version in one.stats.rounds_by_version}))
    return {**told, **tally, "most versions in a batch": most}


def audit(out: Path, texts: int) -> Record:
    """The p-value of unseeded texts that were written through swaps, and of such with a fault: must be tiny."""
    prompts = [prompt for prompt, _ in requests(Random(2), texts, 8)]
    params, found = SamplingParams(max_tokens=32, temperature=1.0, ignore_eos=True), dict[str, Any]()
    with LLM("zoo:target", drafter="none") as plain:
        for name in ("honest", "planted"):
            with adopting() as llm, swapping(llm, versions_in(out / "versions")) as told:
                if name == "planted":
                    mislabel(llm)
                results = llm.generate(prompts, params)
                while not told["while requests ran"]:  # a swap in the midst is what this is about
                    results = llm.generate(prompts, params)
            judged = judge_tokens(plain, results, params)
            found[name] = {"p": judged.p_value, "tokens": judged.num_tokens, "forbidden": judged.forbidden, **told}
            found[name]["would find"] = round(
                detectable_shift((judged.num_tokens, 10**12), BINS - 1, alpha=5e-4, power=0.95), 4
            )
    found["wrong"] = int(found["honest"]["p"] < 1e-3) + int(found["planted"]["p"] > 1e-6)
    return found


def mislabel(llm: LLM) -> None:
    """Plant a fault: guesses travel with a distribution that is half another one than they were drawn from."""
    (renewing,) = (one for one in inner(llm.engine.parts.drafter) if isinstance(one, RenewingDrafter))
    honest = renewing.propose

    def propose(seqs: Any, budgets: Any) -> Any:
        return [
            one if one.q is None else replace(one, q=(one.q + one.q.roll(1, -1)) / 2) for one in honest(seqs, budgets)
        ]

    renewing.propose = propose  # type: ignore[method-assign]


def learning(room: Path, **options: Any) -> LLM:
    return LLM(
        "zoo:target",
        drafter={"name": "eagle3", "model": "zoo:eagle3"},
        adapt={"room": str(room), **EAGER, **options},
        **HEAD,
    )


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
        words = ["outdraft", "adapt", "learn", str(room)] if kind == "training" else ["lab.adapt_soak", str(room)]
        words += [] if kind == "training" else [f"--only-{kind}"]
        before = len(tenant.ledger())
        process = subprocess.Popen(
            [sys.executable, "-m", *words], stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        if kind == "training":
            until = monotonic() + 60
            while len(tenant.ledger()) == before and monotonic() < until:  # until it has tried something
                hurry(process.pid)
                sleep(0.05)
        else:
            assert process.stdout is not None
            process.stdout.readline()
        sleep(rng.random() * {"training": 5, "publishing": 0.3, "engine": 5}[kind])
        process.send_signal(signal.SIGKILL)
        process.wait()
        tally[kind] += 1
        tally["amid a write"] += any(tenant.path.glob("versions/begun-*")) or any(tenant.path.glob("current.part-*"))
        tally["wrong"] += ends(room) + broken(tenant, reached if kind == "publishing" else 0)
        reached = tenant.version
        some = rng.sample(range(len(asked)), _BATCH)
        with learning(room, learner=False) as llm:
            assert llm.adapting is not None
            found = written(llm, [asked[i] for i in some])
            tally["wrong"] += llm.adapting.serving.get(SHARED, ("", 0))[1] != tenant.version
        tally["texts"] += len(some)
        tally["wrong"] += sum(one != wanted[i] for i, one in zip(some, found, strict=True))
        say(f"kill {number + 1}, {kind}: version {tenant.version}, {tally['wrong']} wrong")
    passed = sum(one["what"] == "passed" for one in tenant.ledger())
    tried = [one["number"] for one in tenant.ledger() if one["what"] == "tried"]
    return {**tally, "tries": len(tried), "tries counted twice": len(tried) - len({*tried}), "passed": passed}


def broken(tenant: Any, least: int) -> int:
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
    say_out("begun")
    while True:
        tenant.publish(lambda place: shutil.copytree(zoo.path("eagle3"), place, dirs_exist_ok=True))


def serve_on(room: Path) -> None:
    """Answer requests beside a learner until killed."""
    asked = requests(Random(5), 200, 24)
    with learning(room) as llm:
        written(llm, asked[:_BATCH])
        say_out("begun")
        while True:
            written(llm, asked)


def soak(out: Path, count: int) -> Record:
    """`count` requests in batches of 50 beside a learner that works; memory is read after each."""
    rng, asked = Random(6), requests(Random(7), 400, 12)
    wanted, wrong, done, memory = plain_texts(asked), 0, 0, list[tuple[int, int]]()
    began = monotonic()
    with learning(out / "soaked") as llm:
        assert llm.adapting is not None and llm.adapting.learner is not None
        while done < count:
            some = [rng.randrange(len(asked)) for _ in range(min(50, count - done))]
            wrong += sum(
                one != wanted[i] for i, one in zip(some, written(llm, [asked[i] for i in some]), strict=True)
            )
            done += len(some)
            hurry(llm.adapting.learner.pid)
            memory.append((mebibytes(os.getpid()), mebibytes(llm.adapting.learner.pid)))
            if done % 1000 == 0:
                say(f"{done} of {count}, {monotonic() - began:.0f} s, MiB of engine and learner {memory[-1]}")
        status = llm.adapting.status()
    ledger = AdaptRoom(out / "soaked").tenant(SHARED).ledger()
    kept = sum(1 for _ in read_spool(AdaptRoom(out / "soaked").tenant(SHARED).requests))
    quarter = len(memory) // 4
    told = {
        name: [median(one[i] for one in part) for part in (memory[:quarter], memory[-quarter:])]
        for i, name in enumerate(("engine MiB", "learner MiB"))
        if quarter
    }
    counts = {what: sum(one["what"] == what for one in ledger) for what in ("tried", "passed", "rolled back", "broke")}
    return {
        "requests": done,
        "wrong": wrong,
        "seconds": round(monotonic() - began),
        **told,
        "version": status["version"],
        "kept": kept,
        **counts,
    }


def hurry(pid: int | None) -> None:
    """A learner has idle priority: on a machine with other work it would hardly run, and this tries nothing."""
    with suppress(OSError):
        if pid is not None:
            os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
            os.setpriority(os.PRIO_PROCESS, pid, 0)


def mebibytes(pid: int | None) -> int:
    """Of memory that a process has; 0 where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) >> 8
    except OSError:
        return 0


STAGES: dict[str, tuple[Callable[[Path, int], Record], int]] = {
    "swaps": (swaps, 200),
    "audit": (audit, 600),
    "kills": (kills, 21),
    "soak": (soak, 20_000),
}


def main() -> int:
    """Run what is not in the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--stages", nargs="*", choices=[*STAGES], default=[*STAGES])
    parser.add_argument("--count", type=int, help="in place of the stage's own")
    parser.add_argument("--only-publishing", action="store_true", help="what `kills` starts")
    parser.add_argument("--only-engine", action="store_true", help="the same")
    asked = parser.parse_args()
    if asked.only_publishing or asked.only_engine:
        (publish_on if asked.only_publishing else serve_on)(asked.out)
    asked.out.mkdir(parents=True, exist_ok=True)
    place = asked.out / "record.json"
    record: Record = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {}
    for name in asked.stages:
        if name not in record:
            run, count = STAGES[name]
            record[name] = run(asked.out, asked.count or count)
            place.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        say_out(f"{name}: {json.dumps(record[name])}")
    return int(any(record[name]["wrong"] for name in asked.stages))


def say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def say_out(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
