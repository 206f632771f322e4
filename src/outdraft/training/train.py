"""Carry out a course: train, save the draft, and promise something of it.

OUT/config.json, model.safetensors   what the drafter loads
OUT/training.json                    the plan, the target, the texts, the time, and the promise
OUT/run/                             checkpoint, best weights, log.jsonl, the encoded texts
"""

import platform
import time
from contextlib import nullcontext
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from outdraft.core.learner import TARGET, AssessedLearner, Learner, TargetLearner
from outdraft.models.files.load import load_model
from outdraft.models.files.load_codec import load_codec
from outdraft.models.files.peft_lora import name_base
from outdraft.models.remake.lora import FOLDER
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path
from outdraft.training.alone import alone
from outdraft.training.computing import name_of
from outdraft.training.costs import RoundCosts, measure_costs
from outdraft.training.course import Course
from outdraft.training.draft import Exam
from outdraft.training.journal import Report
from outdraft.training.lessons import Teacher
from outdraft.training.loop import CHECKPOINT
from outdraft.training.promise import promises
from outdraft.training.record import RECORD, Promise, fingerprint, template_digest, write_record
from outdraft.training.specimens import known_signs
from outdraft.weights.text_files import copy_text_files


def train(course: Course, *, resume: bool, tell: Report) -> dict[str, Any]:
    """Run, save, promise; returns the record. Interrupted, the run stands in its checkpoint and nothing is saved."""
    with alone(course.loop.run_dir) if course.loop.team.leads else nullcontext():
        return _train(course, resume=resume, tell=tell)


def _train(course: Course, *, resume: bool, tell: Report) -> dict[str, Any]:
    loop, out = course.loop, user_path(course.plan.out)
    if resume:
        loop.resume()
    elif (loop.run_dir / CHECKPOINT).exists():
        raise ConfigError(f"{loop.run_dir} holds a training run: continue it with --resume, or name another --out")
    drafts = not isinstance(course.learner, AssessedLearner)  # what is no draft has no rounds to measure
    if loop.team.leads and drafts:
        course.judge.costs = _costs(course)
    if not resume:
        loop.evaluate()
    loop.run()
    if loop.interrupted:
        tell(f"stopped at step {loop.step}; --resume goes on")
        return {}
    loop.evaluate()
    loop.take_best()
    if loop.team.leads:
        save_draft(course, out)
        if isinstance(course.learner, TargetLearner):
            drafter = course.method.drafter or course.plan.kind
            given = {**course.method.drafter_options(out), **course.method.drafts}
            options = "".join(f" --drafter-options {key}={value}" for key, value in given.items())
            tell(
                f"modifies_target: the draft is for the target in {out / TARGET}, not for {course.plan.target}; to run "
                f"it: outdraft generate TEXT --model {out / TARGET} --drafter {drafter}{options}"
            )
        tell(f"saved to {out}" + ("; asking the target for texts, to promise something about them" if drafts else ""))
        record = make_record(course, promises(course) if drafts else [])
        write_record(out, record)
        if (told := record.get("target_nats")) is not None:
            tell(
                f"the target's own loss on held-out text: {told['before']:.4f} nats a token before, "
                f"{told['after']:.4f} after"
            )
        return record
    return {}


def save_draft(course: Course, out: Path) -> None:
    """The draft; and a target that was taught along, with the tokenizer of the one that it was."""
    course.learner.save(out)
    if isinstance(course.learner, TargetLearner):
        copy_text_files(course.source, out / TARGET)
        name_base(out / FOLDER, course.plan.target)


def _costs(course: Course) -> RoundCosts:
    """What a round costs here, behind the beginnings of some held-out examples."""
    starts, target = course.held_out.starts, course.teacher.target
    tokens = max(1, min(24, target.config.max_len - 16))
    beginnings = [course.held_out.ids[a : min(int(b), int(a) + 8)].tolist() for a, b in pairwise(starts[:4])]
    return measure_costs(
        course.plan.kind,
        course.method,
        course.learner,
        target,
        course.source,
        depth=course.plan.depth,
        prompts=beginnings,
        tokens=tokens,
        dtype=course.serves,
    )


def make_record(course: Course, promised: list[Promise]) -> dict[str, Any]:
    """All that a user needs who finds the directory."""
    progress, costs = course.loop.progress, course.judge.costs
    return {
        "kind": course.plan.kind,
        "dtype": name_of(course.teacher.target.dtype),
        "plan": asdict(course.plan),
        **_target_told(course),
        "chat_template": template_digest(load_codec(course.source)),
        "taps": list(course.learner.taps),
        "examples": asdict(course.accounts),
        "steps": progress.step,
        "tokens": course.loop.tokens,
        "seconds": round(progress.seconds),
        "machine": f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads",
        "best": progress.best,
        "costs": asdict(costs) if costs is not None else None,
        "speedup": costs.speedup(progress.best) if costs is not None and progress.best is not None else None,
        "promises": [asdict(one) for one in promised],
        **known_signs(course.learner, course.teacher, user_path(course.plan.out), course.held_out),
    }


def _target_told(course: Course) -> dict[str, Any]:
    """Which target the draft is for; and of one that was taught along, what it was and what it lost or won."""
    target, learner = course.teacher.target, course.learner
    if not isinstance(learner, TargetLearner):
        return {"target": fingerprint(target)}
    before, after = own_nats(learner, course.teacher, course.judge.exam)
    return {
        "target": fingerprint(load_model(course.verifier, target.dtype)),
        "modifies_target": True,
        "original_target": fingerprint(target),
        "target_nats": {"before": before, "after": after},
    }


@torch.no_grad()
def own_nats(learner: Learner, teacher: Teacher, exam: Exam) -> tuple[float, float]:
    """Nats a token of held-out text under the original target, and under the one that was taught along."""
    sums, count = torch.zeros(2, dtype=torch.float64), 0
    with teacher.computing():
        for rows in exam.batches:
            lesson = teacher.lesson(rows)
            states, kept = learner.look(lesson).states, lesson.counts
            tokens = lesson.ids[:, 1:].flatten()[kept]
            for place, one in enumerate((lesson.states, lesson.states if states is None else states)):
                for some, x in zip(one[kept].split(1024), tokens.split(1024), strict=True):  # type: ignore[no-untyped-call]
                    log_p = teacher.logits(some).float().log_softmax(-1)
                    sums[place] -= float(log_p.gather(-1, x[:, None]).sum())
            count += len(tokens)
    before, after = (sums / max(1, count)).tolist()
    return before, after


def dry_run(course: Course) -> dict[str, Any]:
    """Write the untrained draft, and say what training would cost, by a few steps that are not kept."""
    out, config = user_path(course.plan.out), course.loop.config
    if (out / RECORD).exists() or (course.loop.run_dir / CHECKPOINT).exists():
        raise ConfigError(
            f"{out} holds a draft that was trained: a dry run would write an untrained one over it; name another --out"
        )
    if course.loop.team.leads:
        save_draft(course, out)
    weights = {name: list(p.shape) for name, p in course.learner.module.named_parameters() if p.requires_grad}
    stop = course.loop.schedule.decay_at  # the last steps before the decay: behind any warm-up of a kind's own
    tried = range(max(0, stop - 3), stop)
    began = time.perf_counter()
    for step in tried:
        course.loop.try_step(step)
    seconds = (time.perf_counter() - began) / len(tried)
    steps = min(config.steps, max(1, round(config.seconds / seconds))) if config.seconds else config.steps
    return {
        "taps": list(course.learner.taps),
        "tensors": weights,
        "bytes": sum(file.stat().st_size for file in out.glob("*.safetensors")),
        "steps": steps,
        "seconds_a_step": seconds,
        "hours": steps * seconds / 3600,
    }
