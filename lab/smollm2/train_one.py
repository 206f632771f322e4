"""One draft of `train_all.py`: its plan is the argument, in JSON. What was learned is saved in any case.

    loss -- loop of so many seconds --> best weights --> OUT/config.json, model.safetensors, training.json --> tar.xz
                                                             | read again
                                                             +--> exams at temperature 1 and greedy, on held-out answers

A run that fails, or that is asked to stop (SIGTERM), ends with its best weights so far. Nothing is promised, which
would need an engine: `promise.py` does it later, where there is time.
"""

import json
import lzma
import signal
import sys
import tarfile
import time
import traceback
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from outdraft.training.corpus import open_corpus
from outdraft.training.course import Course, prepare
from outdraft.training.draft import Exam
from outdraft.training.loop import CHECKPOINT
from outdraft.training.packing import example_rows
from outdraft.training.plan import make_plan
from outdraft.training.record import write_record
from outdraft.training.train import make_record, save_draft

EVALUATIONS = 6  # in the course of a run
FIRST = 25  # steps before the speed is known
TEXTS = 256  # of an exam at the end
XZ = [{"id": lzma.FILTER_LZMA2, "preset": 0, "lc": 0, "lp": 1, "pb": 1}]  # for numbers of two bytes
BEGAN = time.monotonic()


def main() -> int:
    """Train, save, read again, judge, pack."""
    plan = make_plan(json.loads(sys.argv[1]))
    out = Path(plan.out)
    signal.signal(signal.SIGTERM, stop)
    torch.backends.cuda.enable_cudnn_sdp(False)  # it prepares itself anew for every shape
    course = prepare(plan, tell)
    if (course.loop.run_dir / CHECKPOINT).exists():
        raise SystemExit(f"{out} holds a run: name another directory")
    tell(f"{course.accounts}; taps {course.learner.taps}; {sum_of(course)} parameters are trained")
    failed = None
    try:
        learn(course)
    except Exception as error:  # the best weights are worth keeping, whatever happened
        failed = "".join(traceback.format_exception(error))
        tell(failed)
    course.loop.take_best()
    save_draft(course, out)
    record = {**make_record(course, []), "failed": failed, "exams": {}}
    write_record(out, record)
    pack(out)
    if failed is None and not course.loop.interrupted:
        record["exams"] = exams(course, out)
        write_record(out, record)
        pack(out)
    tell("done")
    return 0


def learn(course: Course) -> None:
    """The loop, which is judged now and then: how often is known when steps have been timed."""
    loop = course.loop
    loop.evaluate()
    loop.run(until=FIRST)
    if not loop.interrupted:
        apart = loop.config.seconds / EVALUATIONS * loop.step / max(loop.progress.seconds, 1e-9)
        loop.config = replace(loop.config, eval_every=max(FIRST, round(apart)))
        loop.run()
    loop.evaluate()
    if course.teacher.target.device.type == "cuda":
        tell(f"{torch.cuda.max_memory_allocated() / 1e9:.1f} GB of the device's memory at most")


def exams(course: Course, out: Path) -> dict[str, Any]:
    """Acceptance by position of what was saved, on held-out answers."""
    plan, teacher, config = course.plan, course.teacher, course.loop.config
    learner = course.method.load(course.method.options(), teacher.target, out)
    learner.module.to(teacher.target.device)
    greedy = Path(plan.valid[0]).with_name("greedy.jsonl")
    found = {}
    for name, temperature, file in (("sampled", 1.0, Path(plan.valid[0])), ("greedy", 0.0, greedy)):
        if not file.stat().st_size:
            continue
        codec, vocab_size = None, teacher.target.config.vocab_size
        texts, _, _ = open_corpus([file], codec, vocab_size, out / "run" / "data", held_out=0.0)
        batches = example_rows(texts, TEXTS, config.seq_len, 2 * config.micro_tokens)
        with torch.no_grad(), teacher.computing():
            walk = Exam(batches=batches, depth=plan.depth, temperature=temperature).walk(learner, teacher)
        found[name] = {
            "texts": len(walk.tokens),
            "tau": round(walk.tau, 4),
            "standard_error": round(walk.standard_error, 4),
            "conditional": [round(rate, 4) for rate in walk.conditional],
        }
        tell(f"{name}: {found[name]}")
    return found


def pack(out: Path) -> None:
    """OUT.tar.xz: the draft, its record and the log of its evaluations."""
    with (
        lzma.open(out.with_name(f"{out.name}.tar.xz"), "wb", format=lzma.FORMAT_XZ, filters=XZ) as file,
        tarfile.open(fileobj=file, mode="w") as archive,
    ):
        for name in ("config.json", "model.safetensors", "training.json", "run/log.jsonl"):
            if (out / name).exists():
                archive.add(out / name, f"{out.name}/{name}")


def stop(number: int, frame: FrameType | None) -> None:
    """Outside the loop, which hears signals itself."""
    raise RuntimeError("asked to stop")


def sum_of(course: Course) -> int:
    return sum(p.numel() for p in course.learner.module.parameters() if p.requires_grad)


def tell(line: str) -> None:
    sys.stdout.write(f"{time.monotonic() - BEGAN:7.1f} {line}\n")


if __name__ == "__main__":
    sys.exit(main())
