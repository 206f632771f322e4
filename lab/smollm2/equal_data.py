"""Drafts of every kind for SmolLM2 on equal data, one after the other on a CPU; what each accepts on held-out answers.

    python -m lab.smollm2.equal_data MODEL DATA OUT [--tokens 500000] [--kinds eagle3,dflash,...] [--dtype bfloat16]
    python -m lab.smollm2.equal_data MODEL DATA OUT ... --time     seconds of a step alone, into KIND.json
    python -m lab.smollm2.equal_data MODEL DATA OUT ... --seed 1   other first weights and anchors: KIND.seed1...
    python -m lab.smollm2.equal_data MODEL DATA OUT ... --fill     in a second process, while the first kind learns: the
                                                                   target's states, those of the last step first

    DATA      train.jsonl, valid.jsonl and greedy.jsonl, as `train_all.split` writes them
    OUT       KIND/         the draft, its record, its run: an interrupted one goes on
              KIND.json     parameters, seconds, tokens a pass and acceptance by position, greedy and at temperature 1
              states/       the target's states, which kinds of the same taps or fewer share

All have the loop's settings in common; a kind's own options stand in `kinds.py`. The rows of texts and their order are
the same for every seed, so that the states are.
"""

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from lab.smollm2.kinds import LOOPS, OPTIONS
from lab.smollm2.train_one import exams
from outdraft.training.computing import without_denormals
from outdraft.training.course import Course, prepare
from outdraft.training.loop import CHECKPOINT
from outdraft.training.packing import PackedBatches, PackedRows, Packing
from outdraft.training.plan import TrainPlan, make_plan
from outdraft.training.record import write_record
from outdraft.training.train import make_record, save_draft

DEPTH = 7
_APART = 7_368_787  # between the random numbers of seeds: odd, since a generator takes the low 32 bits
WARM, STEPS = 4, 20  # of a measurement of seconds
LOOP = {"seq_len": 1024, "warmup": 30, "decay_share": 4.0, "lr": 2e-3, "muon_lr": 6e-3}


def main(words: list[str] | None = None) -> int:
    """Each kind that has no figures yet."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokens", type=int, default=500_000)
    parser.add_argument("--batch", type=int, default=2048, help="tokens of a step")
    parser.add_argument("--kinds", default=",".join(OPTIONS))
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--cache-bytes", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time", action="store_true", help="of kinds that are trained, on a quiet machine")
    parser.add_argument("--fill", action="store_true", help="keep the states of the first kind, from the last step on")
    asked = parser.parse_args(words)
    if asked.fill:
        return filled(asked.kinds.partition(",")[0], asked)
    for kind in asked.kinds.split(","):
        place = asked.out / f"{name_of(kind, asked.seed)}.json"
        if asked.time:
            found = json.loads(place.read_text(encoding="utf-8"))
            if "step_seconds" not in found:
                place.write_text(json.dumps(found | timed(kind, asked), indent=1) + "\n", encoding="utf-8")
        elif not place.exists():
            if (found := taught(kind, asked)) is None:
                return 1
            place.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        say(f"{kind}: {place.read_text(encoding='utf-8')}")
    return 0


def taught(kind: str, asked: argparse.Namespace) -> dict[str, Any] | None:
    """Train one, save it, read it again and judge it; None where it was interrupted."""
    out = asked.out / name_of(kind, asked.seed)
    course = prepare(plan_of(kind, asked, out), say)
    loop = course.loop
    if asked.seed:
        loop.data = OtherDice(rows_of(course), asked.seed)
    if (loop.run_dir / CHECKPOINT).exists():
        loop.resume()
    loop.run()
    if loop.interrupted:
        return None
    loop.evaluate()
    save_draft(course, out)
    record = make_record(course, [])
    write_record(out, record)
    count = sum(one.numel() for one in course.learner.module.parameters() if one.requires_grad)
    figures = {"parameters": count, "options": OPTIONS[kind], "dtype": asked.dtype}
    figures |= {key: record[key] for key in ("tokens", "seconds")}
    return {"kind": kind, **figures, **exams(course, out)}


def rows_of(course: Course) -> PackedBatches:
    """The rows of each step, which are the same for every seed."""
    return PackedBatches(Packing(course.corpus, 0), course.loop.config.batch_tokens, course.loop.schedule)


@dataclass(frozen=True, slots=True)
class OtherDice:
    """Rows with other random numbers: anchors, noise."""

    inner: PackedBatches
    seed: int

    def rows(self, step: int, first: int, count: int, length: int) -> PackedRows:
        made = self.inner.rows(step, first, count, length)
        assert made.moment is not None
        return replace(made, moment=replace(made.moment, seed=made.moment.seed + self.seed * _APART))


def filled(kind: str, asked: argparse.Namespace) -> int:
    """Keep the target's states of each step, of the last one first; those that a training has kept are only read.

    Returns 1 where there is no room for all.
    """
    if not asked.cache_bytes:
        raise SystemExit("--fill keeps states: say for how many bytes there is room (--cache-bytes)")
    with TemporaryDirectory() as place:
        course = prepare(plan_of(kind, asked, Path(place)), say)
        loop, batches, cache = course.loop, rows_of(course), course.teacher.cache
        assert cache is not None
        length, end = loop.config.seq_len, loop.schedule.end
        with torch.no_grad(), loop.computing(), without_denormals():
            for step in reversed(range(end)):
                rows = batches.rows(step, 0, loop.config.batch_tokens // length, length + 1)
                course.teacher.lesson(rows)
                if cache.find(rows) is None:
                    say(f"no room for the states of step {step} of {end}: give more with --cache-bytes")
                    return 1
                if step % 50 == 0:
                    say(f"the states of steps {step} to {end} are kept")
    return 0


def timed(kind: str, asked: argparse.Namespace) -> dict[str, float]:
    """Seconds of a step whose target's states lie on the disk."""
    with TemporaryDirectory() as place:
        loop = prepare(plan_of(kind, asked, Path(place)), say).loop
        loop.run(until=WARM)
        before = loop.progress.seconds
        loop.run(until=WARM + STEPS)
        return {"step_seconds": round((loop.progress.seconds - before) / STEPS, 3)}


def plan_of(kind: str, asked: argparse.Namespace, out: Path) -> TrainPlan:
    """What all kinds have in common, and what is this one's own."""
    return make_plan(
        {
            "kind": kind,
            "target": asked.model,
            "out": str(out),
            "data": [str(asked.data / "train.jsonl")],
            "valid": [str(asked.data / "valid.jsonl")],
            "tokens": asked.tokens,
            "seed": asked.seed,
            "depth": DEPTH,
            "dtype": asked.dtype,
            "held_out_texts": 16,
            "cache_bytes": asked.cache_bytes,
            "cache_dir": str(asked.out / "states") if asked.cache_bytes else "",
            "options": OPTIONS[kind],
            "loop": {
                **LOOP,
                **LOOPS.get(kind, {}),
                "batch_tokens": asked.batch,
                "micro_tokens": asked.batch,
                "save_every": 20,
                "eval_every": 1000,
            },
        }
    )


def name_of(kind: str, seed: int) -> str:
    """Of what belongs to a run."""
    return f"{kind}.seed{seed}" if seed else kind


def say(line: str) -> None:
    sys.stdout.write(line.rstrip("\n") + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
