"""Carry out a plan: a target, a learner, texts; then the loop, what is saved, and what is promised of it.

OUT/config.json, model.safetensors   what the drafter loads
OUT/training.json                    the plan, the target, the texts, the time, and the promise
OUT/run/                             checkpoint, best weights, log.jsonl, the encoded texts
"""

import platform
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from outdraft.core.errors import ConfigError
from outdraft.core.learner import TARGET, AssessedLearner, Learner, LearnMethod, Moment, TargetLearner
from outdraft.core.paths import user_path
from outdraft.core.registry import find_learner, read_options
from outdraft.drafters.shared.look_up.datastore.documents import find_files
from outdraft.models.base import Decoder
from outdraft.models.load import load_model
from outdraft.models.load_codec import load_codec
from outdraft.training.alone import alone
from outdraft.training.board import open_board
from outdraft.training.check import promise
from outdraft.training.computing import name_of, open_target
from outdraft.training.corpus import Accounts, Corpus, open_corpus, require_own_texts
from outdraft.training.costs import Costs, measure_costs
from outdraft.training.draft import DraftObjective, Exam, Judge
from outdraft.training.init import require_shape
from outdraft.training.lessons import Teacher
from outdraft.training.loop import CHECKPOINT, Loop
from outdraft.training.losses import OWN, mixed
from outdraft.training.modified import copy_beside, own_nats
from outdraft.training.on_policy import OnPolicy, RowSource
from outdraft.training.packing import Packing, Rows, example_rows
from outdraft.training.plan import TrainPlan
from outdraft.training.record import RECORD, Promise, Terms, fingerprint, template_digest, write_record
from outdraft.training.reinforce import Reinforcement
from outdraft.training.states import StateCache, identity
from outdraft.training.team import Team
from outdraft.training.writing import require_writer
from outdraft.weights.hub import resolve

Tell = Callable[[str], None]
_PRIME = 1_000_003  # between the seeds of runs and of steps
_WATCHING = ("compile", "eval_every", "eval_tokens", "patience", "save_every", "seed")  # changes no step of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """All parts of a run, ready to begin."""

    plan: TrainPlan
    method: LearnMethod[Any, Any]
    source: Path  # of the target
    learner: Learner
    teacher: Teacher
    corpus: Corpus
    held_out: Corpus
    accounts: Accounts
    serves: torch.dtype  # what engines compute in, where training takes another format
    loop: Loop
    judge: Judge


class _Batches:
    """The packed rows of a corpus, step by step."""

    def __init__(self, packing: Packing, batch_tokens: int, steps: int, same_order: bool = False) -> None:
        self._packing, self._batch_tokens, self._steps = packing, batch_tokens, steps
        self._same_order = same_order

    def rows(self, step: int, first: int, count: int, length: int) -> Rows:
        """`length`: of a row, the token behind its last one included."""
        a_step = max(1, self._batch_tokens // (length - 1))
        place = step
        if self._same_order:
            place %= max(1, self._packing.an_epoch(length - 1) // a_step)
        made = self._packing.rows(place * a_step + first, count, length - 1)
        seed = (self._packing.seed * _PRIME + step) % (1 << 63)
        return replace(made, moment=Moment(step=step, steps=self._steps, seed=seed, first=first))


def prepare(plan: TrainPlan, tell: Tell, team: Team | None = None) -> Course:
    """Load and check everything. Raises `ConfigError`, `ModelLoadError` before any work is done."""
    method = find_learner(plan.kind)
    options = read_options(method.options, plan.options, f"kind {plan.kind!r}")
    if plan.loss and not method.loss:
        raise ConfigError(f"kind {plan.kind!r} learns by a loss of its own: leave out loss ({', '.join(plan.loss)})")
    plan = replace(plan, loss=plan.loss or method.loss)
    loss = mixed(plan.loss) if plan.loss else OWN
    out, source = user_path(plan.out), resolve(plan.target)
    _require_room(out, source, plan.init)
    if not plan.data:
        raise ConfigError("there is nothing to learn from: name files with --data FILE (texts, chats, or answers)")
    if plan.loop.bfloat16 is not None:
        raise ConfigError(
            f"bfloat16={plan.loop.bfloat16} of the loop is for recipes of the zoo: a draft's passes compute in its "
            "target's number format, so ask for that (--dtype bfloat16, --dtype float32)"
        )
    files, judged = find_files(plan.data), find_files(plan.valid)
    target, found = open_target(source, plan.dtype, plan.device)
    if target.config.quant is not None:
        raise ConfigError(f"{plan.target} has rounded weights: train for the model that they were rounded from")
    if target.dtype == torch.float16:
        raise ConfigError(f"{plan.target} is float16, whose gradients overflow: train with dtype bfloat16 or float32")
    tell(found.line)
    codec = load_codec(source)
    vocab_size, cache = target.config.vocab_size, out / "run" / "data"
    share, team = 0.0 if judged else plan.held_out, team or Team()
    if not team.leads:
        team.wait()  # one worker encodes, the others find it
    train, held_out, accounts = open_corpus(files, codec, vocab_size, cache, held_out=share)
    if judged:
        held_out, _, told = open_corpus(judged, codec, vocab_size, cache, held_out=0.0)
        accounts = replace(accounts, held_out=told.kept)
    if plan.loss.get("sequence_kd"):
        require_own_texts(accounts, fingerprint(target)["weights"])
    if team.leads:
        team.wait()
    learner = _learner(plan, method, options, target, train)
    trained, twin = learner, None
    if plan.parallel == "fully_shard" and team.size > 1:
        if isinstance(learner, TargetLearner):
            raise ConfigError("parallel=fully_shard cannot split a target that is trained too: take parallel=ddp")
        if plan.on_policy:
            raise ConfigError(
                f"on_policy={plan.on_policy:g} needs the whole draft, and parallel=fully_shard splits it: take "
                "parallel=ddp"
            )
        trained, twin = _learner(plan, method, options, target, train), learner.module
    teacher = Teacher(target, learner.taps, _cache(plan, out, target, learner, (train, held_out), team))
    steps = max(1, (plan.tokens or accounts.tokens) // plan.loop.batch_tokens)
    length, most = min(plan.loop.seq_len, target.config.max_len - 1), target.config.max_len - 1
    if length < 4 or plan.loop.batch_tokens < length * team.size:
        raise ConfigError(
            f"seq_len={length}, batch_tokens={plan.loop.batch_tokens}: a row needs at least 4 tokens, and a batch at "
            f"least a row for each of {team.size} workers"
        )
    config = replace(
        plan.loop, steps=plan.loop.steps or steps, seq_len=length, seed=plan.seed,
        final_seq_len=min(plan.loop.final_seq_len, most),
        bfloat16=target.dtype == torch.bfloat16,
    )  # fmt: skip
    exam = Exam(
        batches=example_rows(held_out, plan.held_out_texts, length, config.micro_tokens), depth=plan.depth,
        temperature=plan.temperature,
    )  # fmt: skip
    batches: RowSource = _Batches(Packing(train, plan.seed), config.batch_tokens, config.steps, plan.same_order)
    if plan.on_policy:
        writer = require_writer(learner, vocab_size, f"on_policy={plan.on_policy:g}")
        batches = OnPolicy(batches, writer, plan.on_policy, plan.seed)
    reinforcement = None
    if loss.reinforce:
        if plan.on_policy and plan.reinforce.reward != "accepted":
            raise ConfigError(
                f"reward={plan.reinforce.reward!r} compares with the target's text, which on_policy={plan.on_policy:g} "
                "replaces by the draft's: take reward=accepted, or leave on_policy out"
            )
        draft = require_writer(trained, vocab_size, "loss reinforce")
        reinforcement = Reinforcement(draft, plan.reinforce, loss.reinforce)
    objective = DraftObjective(
        trained, teacher, loss.rows, temperature=plan.loss_temperature, beside=loss.beside,
        reinforce=reinforcement,
    )  # fmt: skip
    judge = Judge(exam, learner, teacher)
    board = open_board(user_path(plan.tensorboard)) if plan.tensorboard and team.leads else None
    loop = Loop(
        objective, batches, config, out / "run", tell, evaluate=judge, team=team, board=board, twin=twin,
        vocab_size=vocab_size, about=_about(plan, target, train),
        rates=learner.rates if isinstance(learner, TargetLearner) else None,
    )  # fmt: skip
    return Course(
        plan=plan, method=method, source=source, learner=learner, teacher=teacher, corpus=train, held_out=held_out,
        accounts=accounts, serves=found.stored, loop=loop, judge=judge,
    )  # fmt: skip


def _require_room(out: Path, source: Path, init: str | None) -> None:
    """Raise `ConfigError` where something stands that is no draft of ours, or that is needed."""
    needed = [source, *([resolve(init)] if init is not None else [])]
    if out.resolve() in [path.resolve() for path in needed]:
        raise ConfigError(f"--out {out} is a directory that the training reads from: name another directory")
    run, is_trained = out / "run", (out / RECORD).exists()
    if (out / "config.json").exists() and not (run / CHECKPOINT).exists() and (is_trained or not run.is_dir()):
        raise ConfigError(f"--out {out} holds a model, which training would write over: name another directory")


def _learner(
    plan: TrainPlan, method: LearnMethod[Any, Any], options: Any, target: Decoder, texts: Corpus
) -> Learner:  # fmt: skip
    if plan.init is not None:
        learner = method.load(options, target, resolve(plan.init))
        require_shape(learner, method, plan.options, target, plan.init)
        return learner
    learner = method.new(options, target, plan.seed)
    if method.choose_vocab is not None:
        method.choose_vocab(learner, torch.from_numpy(texts.frequencies(target.config.vocab_size)))
    return learner


def _cache(
    plan: TrainPlan, out: Path, target: Decoder, learner: Learner, texts: tuple[Corpus, Corpus], team: Team
) -> StateCache | None:  # fmt: skip
    if not plan.cache_bytes:
        return None
    place = user_path(plan.cache_dir) if plan.cache_dir else out / "run" / "states"
    about = identity(fingerprint(target), tuple(learner.taps), target.dtype, *texts)
    return StateCache(place, about, plan.cache_bytes, workers=team.size)


def _about(plan: TrainPlan, target: Decoder, corpus: Corpus) -> dict[str, Any]:
    """What must be the same when a run goes on, so that it ends with the same bits."""
    return {
        "kind": plan.kind, "options": repr(sorted(plan.options.items())), "loss": repr(sorted(plan.loss.items())),
        "seed": plan.seed, "loss_temperature": plan.loss_temperature, "tokens": plan.tokens, "parallel": plan.parallel,
        "same_order": plan.same_order, "on_policy": plan.on_policy, "reinforce": repr(plan.reinforce),
        "target": fingerprint(target)["weights"], "dtype": name_of(target.dtype),
        "corpus tokens": len(corpus.ids),
        **{name: value for name, value in asdict(plan.loop).items() if name not in _WATCHING},
    }  # fmt: skip


def train(course: Course, *, resume: bool, tell: Tell) -> dict[str, Any]:
    """Run, save, promise; returns the record. Interrupted, the run stands in its checkpoint and nothing is saved."""
    with alone(course.loop.run_dir) if course.loop.team.leads else nullcontext():
        return _train(course, resume=resume, tell=tell)


def _train(course: Course, *, resume: bool, tell: Tell) -> dict[str, Any]:
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
        copy_beside(course.source, out / TARGET)


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


def promises(course: Course, *, texts: int = 256, prompt: int = 32, max_tokens: int = 64) -> list[Promise]:
    """What the trainer's own passes say, greedy and sampled, after the beginnings of held-out examples."""
    starts = course.held_out.starts
    places = [
        (begin, min(begin + prompt, stop - 1))
        for offset in range(
            0, course.teacher.target.config.max_len, 4 * prompt
        )  # few long examples begin several times
        for begin, stop in ((int(a) + offset, int(b)) for a, b in pairwise(starts))
        if begin < stop - 1
    ]
    chosen = [tuple(int(i) for i in course.held_out.ids[begin:stop]) for begin, stop in places[:texts]]
    room = course.teacher.target.config.max_len - prompt - 1
    made = []
    for temperature in (0.0, 1.0):
        terms = Terms(
            prompts=tuple(chosen), max_tokens=min(max_tokens, room), depth=course.plan.depth,
            temperature=temperature,
        )  # fmt: skip
        seen = promise(course.learner, course.teacher, _verifier(course), terms)
        terms = replace(terms, depth=len(seen.kept))  # a draft may know fewer
        made.append(
            Promise(terms=terms, tau=seen.tau, standard_error=seen.standard_error, conditional=tuple(seen.conditional))
        )
    return made


def make_record(course: Course, promised: list[Promise]) -> dict[str, Any]:
    """All that somebody needs who finds the directory."""
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
    """Write the untrained draft, and say what training would cost, by three steps that are not kept."""
    out, config = user_path(course.plan.out), course.loop.config
    if (out / RECORD).exists() or (course.loop.run_dir / CHECKPOINT).exists():
        raise ConfigError(
            f"{out} holds a draft that was trained: a dry run would write an untrained one over it; name another --out"
        )
    if course.loop.team.leads:
        save_draft(course, out)
    weights = {name: list(p.shape) for name, p in course.learner.module.named_parameters() if p.requires_grad}
    began = time.perf_counter()
    for _ in range(3):
        course.loop.try_step()
    seconds = (time.perf_counter() - began) / 3
    return {
        "taps": list(course.learner.taps),
        "tensors": weights,
        "bytes": sum(file.stat().st_size for file in out.glob("*.safetensors")),
        "steps": config.steps,
        "seconds_a_step": seconds,
        "hours": config.steps * seconds / 3600,
    }
