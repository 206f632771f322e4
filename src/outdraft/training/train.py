"""Carry out a course: train, save the draft, and promise something of it.

OUT/config.json, model.safetensors   what the drafter loads
OUT/training.json                    the plan, the target, the texts, the time, and the promise
OUT/run/                             checkpoint, best weights, log.jsonl, the encoded texts
"""

import platform
import time
from contextlib import nullcontext
from dataclasses import asdict, replace
from itertools import islice, pairwise
from math import ceil
from pathlib import Path
from typing import Any

import torch

from outdraft.core.learner import TARGET, AssessedLearner, TargetLearner
from outdraft.models.files.load import load_model
from outdraft.models.files.load_codec import load_codec
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path
from outdraft.training.alone import alone
from outdraft.training.beginnings import beginnings
from outdraft.training.check import LEAST_ROUNDS, promise
from outdraft.training.computing import name_of
from outdraft.training.costs import Costs, measure_costs
from outdraft.training.course import Course
from outdraft.training.journal import Report
from outdraft.training.loop import CHECKPOINT
from outdraft.training.modified import own_nats
from outdraft.training.record import RECORD, Promise, Terms, fingerprint, template_digest, write_record
from outdraft.weights.text_files import copy_text_files

_PROMPT = 256  # tokens that the target reads before it writes what is promised about
_MAX_TOKENS = 64  # that it writes
_TEXTS, _MOST_TEXTS = 256, 4096
_MARGIN = 1.1  # rounds of a check, over those that it needs


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
            tell(f"modifies_target: the draft is for the target in {out / TARGET}, not for {course.plan.target}")
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


def _verifier(course: Course) -> Path:
    """The target that the draft is for."""
    taught = isinstance(course.learner, TargetLearner)
    return user_path(course.plan.out) / TARGET if taught else course.source


def _costs(course: Course) -> Costs:
    """What a round costs here, behind the beginnings of some held-out examples."""
    starts, target = course.held_out.starts, course.teacher.target
    tokens = max(1, min(24, target.config.max_len - 16))
    beginnings = [course.held_out.ids[a : min(int(b), int(a) + 8)].tolist() for a, b in pairwise(starts[:4])]
    return measure_costs(
        course.plan.kind, course.method, course.learner, target, course.source, depth=course.plan.depth,
        prompts=beginnings, tokens=tokens, dtype=course.serves,
    )  # fmt: skip


def promises(course: Course, *, texts: int | None = None) -> list[Promise]:
    """What the trainer's own passes say, greedy and sampled, after the beginnings of held-out examples.

    `texts`: about how many; None: as many as a check has enough rounds in. At most as many as there are.
    """
    most = course.teacher.target.config.max_len
    longest = min(_PROMPT, most // 2)
    known = list(islice(beginnings(course.held_out, longest), texts or _MOST_TEXTS))
    made = []
    for temperature in (0.0, 1.0):
        terms = Terms(
            prompts=tuple(known[: texts or _TEXTS]), max_tokens=min(_MAX_TOKENS, most - longest - 1),
            depth=course.plan.depth, temperature=temperature,
        )  # fmt: skip
        seen = promise(course.learner, course.teacher, _verifier(course), terms)
        begun = len(terms.prompts)
        enough = ceil(begun * _MARGIN * LEAST_ROUNDS / max(1.0, sum(seen.rounds)))
        if texts is None and (more := tuple(known[begun:enough])):  # the better a draft, the fewer rounds has a text
            rest = replace(terms, prompts=more)
            seen += promise(course.learner, course.teacher, _verifier(course), rest, seed=begun)
            terms = replace(terms, prompts=terms.prompts + more)
        terms = replace(terms, depth=len(seen.kept))  # a draft may know fewer
        made.append(
            Promise(
                terms=terms, tau=seen.tau, standard_error=seen.standard_error, conditional=tuple(seen.conditional),
                exhausted=len(terms.prompts) == len(known) < (texts or _MOST_TEXTS),
            )
        )  # fmt: skip
    return made


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
        "tokens": progress.step * course.loop.config.batch_tokens,
        "seconds": round(progress.seconds),
        "machine": f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads",
        "best": progress.best,
        "costs": asdict(costs) if costs is not None else None,
        "speedup": costs.speedup(progress.best) if costs is not None and progress.best is not None else None,
        "promises": [asdict(one) for one in promised],
    }


def _target_told(course: Course) -> dict[str, Any]:
    """Which target the draft is for; and of one that was taught along, what it was and what it lost or won."""
    target, learner = course.teacher.target, course.learner
    if not isinstance(learner, TargetLearner):
        return {"target": fingerprint(target)}
    before, after = own_nats(learner, course.teacher, course.judge.exam)
    return {
        "target": fingerprint(load_model(_verifier(course), target.dtype)),
        "modifies_target": True,
        "original_target": fingerprint(target),
        "target_nats": {"before": before, "after": after},
    }


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
    return {
        "taps": list(course.learner.taps),
        "tensors": weights,
        "bytes": sum(file.stat().st_size for file in out.glob("*.safetensors")),
        "steps": config.steps,
        "seconds_a_step": seconds,
        "hours": config.steps * seconds / 3600,
    }
