"""Make a course of a plan: a target, a learner, texts, and the loop over them, all loaded and checked.

    plan -- target, texts -- learner, teacher (the target's states) -- rows of a step, objective, judge -- loop

Whatever is wrong with a plan is said here, before any training.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from outdraft.core.learner import TARGET, Learner, LearnMethod, Moment, TargetLearner
from outdraft.core.registry import find_learner, learner_names, read_options
from outdraft.models.files.load_codec import load_codec
from outdraft.models.networks.base import Decoder
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path
from outdraft.training.board import open_board
from outdraft.training.computing import open_target
from outdraft.training.config import LoopConfig
from outdraft.training.corpus import Accounts, Corpus, open_corpus, require_own_texts
from outdraft.training.draft import DraftObjective, Exam, Judge
from outdraft.training.init import require_shape
from outdraft.training.journal import Report
from outdraft.training.lessons import Teacher
from outdraft.training.loop import CHECKPOINT, Loop
from outdraft.training.losses import OF_TEXT, OWN, mixed
from outdraft.training.on_policy import OnPolicy, RowSource
from outdraft.training.packing import Packing, Rows, example_rows
from outdraft.training.plan import TrainPlan
from outdraft.training.record import RECORD, fingerprint
from outdraft.training.records import find_files
from outdraft.training.reinforce import Reinforcement
from outdraft.training.same_run import settings_of
from outdraft.training.states import StateCache, identity
from outdraft.training.team import Team
from outdraft.training.writing import require_writer
from outdraft.weights.hub import resolve

_PRIME = 1_000_003  # between the seeds of runs and of steps


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


def prepare(plan: TrainPlan, tell: Report, team: Team | None = None) -> Course:
    """Load and check everything. Raises `ConfigError`, `ModelLoadError` before any work is done."""
    method = find_learner(plan.kind)
    options = _options(method, plan)
    if plan.loss and not method.loss:
        raise ConfigError(f"kind {plan.kind!r} learns by a loss of its own: leave out loss ({', '.join(plan.loss)})")
    plan = replace(plan, loss=plan.loss or method.loss)
    loss = mixed(plan.loss) if plan.loss else OWN
    out, source, team = user_path(plan.out), resolve(plan.target), team or Team()
    needed = [place.resolve() for place in (source, *([resolve(plan.init)] if plan.init is not None else []))]
    _require_room(out, needed)
    _require_possible(plan)
    files, judged = find_files(plan.data), find_files(plan.valid)
    target, found = open_target(source, plan.dtype, plan.device)
    _require_trainable(target, plan.target)
    tell(found.line)
    vocab_size = target.config.vocab_size
    train, held_out, accounts = _corpora(plan, files, judged, source, target, team)
    learner = trained = _learner(plan, method, options, target, train)
    if isinstance(learner, TargetLearner):
        _require_room_for_target(out, needed)
    is_split = plan.parallel == "fully_shard" and team.size > 1
    if is_split:  # the loop splits one network among the workers, and gathers it in the other to judge and save it
        _require_splittable(plan, learner)
        trained = _learner(plan, method, options, target, train)
    teacher = Teacher(target, learner.taps, _cache(plan, out, target, learner, (train, held_out), team))
    config = _loop_config(plan, target, accounts, team)
    exam = Exam(
        batches=example_rows(held_out, plan.held_out_texts, config.seq_len, config.micro_tokens), depth=plan.depth,
        temperature=plan.temperature,
    )  # fmt: skip
    rows = _rows(plan, config, train, learner, vocab_size)
    objective = DraftObjective(
        trained, teacher, loss.rows, temperature=plan.loss_temperature, beside=loss.beside,
        reinforce=_reinforcement(plan, config, loss.reinforce, trained, vocab_size) if loss.reinforce else None,
    )  # fmt: skip
    if loss.beside.keys() - method.loss.keys():
        objective.require_losses(exam.batches[0])
    judge = Judge(exam, learner, teacher)
    board = open_board(user_path(plan.tensorboard)) if plan.tensorboard and team.leads else None
    loop = Loop(
        objective, rows, config, out / "run", tell, evaluate=judge, team=team, board=board,
        twin=learner.module if is_split else None, vocab_size=vocab_size,
        about=settings_of(plan, config, target, train, held_out),
        rates=learner.rates if isinstance(learner, TargetLearner) else None,
    )  # fmt: skip
    return Course(
        plan=plan, method=method, source=source, learner=learner, teacher=teacher, corpus=train, held_out=held_out,
        accounts=accounts, serves=found.stored, loop=loop, judge=judge,
    )  # fmt: skip


def _require_possible(plan: TrainPlan) -> None:
    if not plan.data:
        raise ConfigError("there is nothing to learn from: name files with --data FILE (texts, chats, or answers)")
    if plan.on_policy and (said := [name for name in OF_TEXT if plan.loss.get(name)]):
        raise ConfigError(
            f"loss {said[0]} learns the text's own tokens, which on_policy={plan.on_policy:g} replaces by the draft's: "
            "take a loss between distributions, such as forward_kl, or leave on_policy out"
        )
    if plan.loop.bfloat16 is not None:
        raise ConfigError(
            f"bfloat16={plan.loop.bfloat16} of the loop is for recipes of the zoo: a draft's passes compute in its "
            "target's number format, so ask for that (--dtype bfloat16, --dtype float32)"
        )


def _require_trainable(target: Decoder, name: str) -> None:
    if target.config.quant is not None:
        raise ConfigError(f"{name} has rounded weights: train for the model that they were rounded from")
    if target.dtype == torch.float16:
        raise ConfigError(f"{name} is float16, whose gradients overflow: train with dtype bfloat16 or float32")


def _corpora(
    plan: TrainPlan, files: list[Path], judged: list[Path], source: Path, target: Decoder, team: Team
) -> tuple[Corpus, Corpus, Accounts]:
    """What is learned, what is held out (a share of the files, or the files to be judged by), and how much that is."""
    codec, vocab_size, cache = load_codec(source), target.config.vocab_size, user_path(plan.out) / "run" / "data"
    if not team.leads:
        team.wait()  # one worker encodes, the others find it
    train, held_out, accounts = open_corpus(
        files, codec, vocab_size, cache, held_out=0.0 if judged else plan.held_out
    )  # fmt: skip
    if judged:
        held_out, _, told = open_corpus(judged, codec, vocab_size, cache, held_out=0.0)
        accounts = replace(accounts, held_out=told.kept)
    if plan.loss.get("sequence_kd"):
        require_own_texts(accounts, fingerprint(target)["weights"])
    if team.leads:
        team.wait()
    return train, held_out, accounts


def _require_splittable(plan: TrainPlan, learner: Learner) -> None:
    if isinstance(learner, TargetLearner):
        raise ConfigError("parallel=fully_shard cannot split a target that is trained too: take parallel=ddp")
    if plan.on_policy:
        raise ConfigError(
            f"on_policy={plan.on_policy:g} needs the whole draft, and parallel=fully_shard splits it: take parallel=ddp"
        )


def batch_for(tokens: int, length: int, workers: int) -> int:
    """Tokens of a step, in whole rows of `length` for each worker: a thousandth of all, from 1,024 to 4,096.

    With few texts the number of steps is what a draft lacks (docs/training.md has a measurement).
    """
    length = max(1, length)
    rows = max(1024, min(4096, tokens // 1000)) // length
    return max(1, rows // workers) * workers * length


def _loop_config(plan: TrainPlan, target: Decoder, accounts: Accounts, team: Team) -> LoopConfig:
    """The plan's settings of the loop: as many steps as there are tokens for, rows no longer than the target reads."""
    most, tokens = target.config.max_len - 1, plan.tokens or accounts.tokens
    length = min(plan.loop.seq_len, most)
    batch = plan.loop.batch_tokens or batch_for(tokens, max(length, min(plan.loop.final_seq_len, most)), team.size)
    if length < 4 or batch < length * team.size:
        raise ConfigError(
            f"seq_len={length}, batch_tokens={batch}: a row needs at least 4 tokens, and a batch at "
            f"least a row for each of {team.size} workers"
        )
    return replace(
        plan.loop, steps=plan.loop.steps or max(1, tokens // batch), batch_tokens=batch, seq_len=length, seed=plan.seed,
        final_seq_len=min(plan.loop.final_seq_len, most), bfloat16=target.dtype == torch.bfloat16,
    )  # fmt: skip


def _rows(plan: TrainPlan, config: LoopConfig, texts: Corpus, learner: Learner, vocab_size: int) -> RowSource:
    """The rows of every step: the texts', or in part what the draft itself wrote behind their beginnings."""
    rows = _Batches(Packing(texts, plan.seed), config.batch_tokens, config.steps, plan.same_order)
    if not plan.on_policy:
        return rows
    writer = require_writer(learner, vocab_size, f"on_policy={plan.on_policy:g}")
    return OnPolicy(rows, writer, plan.on_policy, plan.seed)


def _reinforcement(
    plan: TrainPlan, config: LoopConfig, weight: float, trained: Learner, vocab_size: int
) -> Reinforcement:  # fmt: skip
    window, row = plan.reinforce.window, min(config.seq_len, config.final_seq_len or config.seq_len)
    if window > row:
        raise ConfigError(
            f"window={window} of the loss reinforce is longer than a row of {row} tokens: take a shorter window, or "
            "longer rows (seq_len, final_seq_len)"
        )
    if plan.on_policy and plan.reinforce.reward != "accepted":
        raise ConfigError(
            f"reward={plan.reinforce.reward!r} compares with the target's text, which on_policy={plan.on_policy:g} "
            "replaces by the draft's: take reward=accepted, or leave on_policy out"
        )
    return Reinforcement(require_writer(trained, vocab_size, "loss reinforce"), plan.reinforce, weight)


def _require_room(out: Path, needed: Seq[Path]) -> None:
    """Raise `ConfigError` where something stands that is no draft of ours, or that is needed."""
    if out.resolve() in needed:
        raise ConfigError(f"--out {out} is a directory that the training reads from: name another directory")
    run, is_trained = out / "run", (out / RECORD).exists()
    if (out / "config.json").exists() and not (run / CHECKPOINT).exists() and (is_trained or not run.is_dir()):
        raise ConfigError(f"--out {out} holds a model, which training would write over: name another directory")


def _require_room_for_target(out: Path, needed: Seq[Path]) -> None:
    """The same where the changed target of a kind that teaches its target will be written."""
    place = out / TARGET
    if place.resolve() in needed:
        raise ConfigError(
            f"--out {out} would write the changed target to {place}, which the training reads from: name another "
            "directory"
        )
    is_ours = (out / "config.json").exists() or (out / "run" / CHECKPOINT).exists()  # the draft was written with it
    if (place / "config.json").exists() and not is_ours:
        raise ConfigError(
            f"--out {out} would write the changed target to {place}, which holds a model: name another directory"
        )


def _options(method: LearnMethod[Any, Any], plan: TrainPlan) -> Any:
    """The kind's options. Raises `ConfigError` for others, which says whose they are."""
    try:
        return read_options(method.options, plan.options, f"kind {plan.kind!r}")
    except ConfigError as error:
        for key in plan.options.keys() - {one.name for one in fields(method.options)}:
            others = [
                kind for kind in learner_names() if key in {one.name for one in fields(find_learner(kind).options)}
            ]
            if others:
                raise ConfigError(f"{error}; {key!r} is an option of the kind {' or '.join(others)}") from error
        raise


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
