"""Drafts of every kind for SmolLM2 on equal data, one after the other on a CPU; what each accepts on held-out answers.

    python -m lab.smollm2.equal_data MODEL DATA OUT [--tokens 500000] [--kinds eagle3,dflash,...] [--dtype bfloat16]

    DATA      train.jsonl, valid.jsonl and greedy.jsonl, as `train_all.split` writes them
    OUT       KIND/         the draft, its record, its run: an interrupted one goes on
              KIND.json     parameters, seconds, tokens a pass and acceptance by position, greedy and at temperature 1
              states/       the target's states, which kinds with the same taps share

All have the loop's settings in common; a kind's own options stand in `kinds.py`.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from lab.smollm2.kinds import LOOPS, OPTIONS
from outdraft.training.corpus import open_corpus
from outdraft.training.course import Course, prepare
from outdraft.training.draft import Exam
from outdraft.training.loop import CHECKPOINT
from outdraft.training.packing import example_rows
from outdraft.training.plan import make_plan
from outdraft.training.record import write_record
from outdraft.training.train import make_record, save_draft

DEPTH = 7
TEXTS = 192  # of an exam
LOOP = {"seq_len": 1024, "warmup": 30, "decay_share": 4.0, "lr": 2e-3, "muon_lr": 6e-3}


def main() -> int:
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
    asked = parser.parse_args()
    for kind in asked.kinds.split(","):
        place = asked.out / f"{kind}.json"
        if not place.exists():
            if (found := taught(kind, asked)) is None:
                return 1
            place.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        say(f"{kind}: {place.read_text(encoding='utf-8')}")
    return 0


def taught(kind: str, asked: argparse.Namespace) -> dict[str, Any] | None:
    """Train one, save it, read it again and judge it; None where it was interrupted."""
    out = asked.out / kind
    plan = make_plan(
        {
            "kind": kind,
            "target": asked.model,
            "out": str(out),
            "data": [str(asked.data / "train.jsonl")],
            "valid": [str(asked.data / "valid.jsonl")],
            "tokens": asked.tokens,
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
    course = prepare(plan, say)
    loop = course.loop
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
    figures = {"parameters": count, "options": OPTIONS[kind], **{key: record[key] for key in ("tokens", "seconds")}}
    return {"kind": kind, **figures, **exams(course, out, asked.data)}


def exams(course: Course, out: Path, data: Path) -> dict[str, Any]:
    """Of what was saved, on held-out answers: greedy ones, and all at temperature 1."""
    learner = course.method.load(course.method.options(), course.teacher.target, out)
    found = {}
    for name, temperature, file in (("greedy", 0.0, "greedy.jsonl"), ("sampled", 1.0, "valid.jsonl")):
        vocab_size, config = course.teacher.target.config.vocab_size, course.loop.config
        texts, _, _ = open_corpus([data / file], None, vocab_size, out / "run" / "exam", held_out=0.0)
        batches = example_rows(texts, TEXTS, config.seq_len, config.micro_tokens)
        with torch.no_grad(), course.teacher.computing():
            walk = Exam(batches=batches, depth=DEPTH, temperature=temperature).walk(learner, course.teacher)
        found[name] = {
            "texts": len(walk.tokens),
            "tau": round(walk.tau, 3),
            "standard_error": round(walk.standard_error, 3),
            "accepted_at": [round(rate, 3) for rate in walk.conditional],
        }
    return found


def say(line: str) -> None:
    sys.stdout.write(line.rstrip("\n") + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
