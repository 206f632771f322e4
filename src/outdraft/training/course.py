"""Make a course of a plan: a target, a learner, texts, and the loop over them, all loaded and checked.

    plan -- target, texts -- learner, teacher (the target's states) -- rows of a step, objective, judge -- loop

Whatever is wrong with a plan is said here, before any training.
"""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from outdraft.core.learner import TARGET, Learner, LearnMethod, TargetLearner
from outdraft.core.learner_registry import find_learner, learner_names
from outdraft.core.registry import read_options
from outdraft.learn.losses import OWN, mixed
from outdraft.models.files.load_codec import load_codec
from outdraft.models.networks.base import Decoder
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path
from outdraft.training.computing import open_target
from outdraft.training.config import NO_END, LoopConfig, Schedule
from outdraft.training.corpus import Accounts, TrainingCorpus, open_corpus, require_own_texts
from outdraft.training.draft import DraftObjective, Exam, Judge
from outdraft.training.examples import find_files
from outdraft.training.journal import Report, open_board
from outdraft.training.lessons import Teacher
from outdraft.training.loop import Loop
from outdraft.training.objective import Batches
from outdraft.training.on_policy import OnPolicy
from outdraft.training.packing import PackedBatches, Packing, example_rows
from outdraft.training.plan import TrainPlan
from outdraft.training.possible import (
    require_possible,
    require_room,
    require_room_for_target,
    require_shape,
    require_splittable,
    require_trainable,
)
from outdraft.training.record import fingerprint
from outdraft.training.reinforce import Reinforcement
from outdraft.training.same_run import settings_of
from outdraft.training.states import PassCache, identity
from outdraft.training.team import Team
from outdraft.training.writing import require_writer
from outdraft.weights.hub import resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """All parts of a run, ready to begin."""

    plan: TrainPlan
    method: LearnMethod[Any, Any]
    source: Path  # of the target
    learner: Learner
    teacher: Teacher
    corpus: TrainingCorpus
    held_out: TrainingCorpus
    accounts: Accounts
    serves: torch.dtype  # what engines compute in, where training takes another format
    loop: Loop
    judge: Judge

    @property
    def verifier(self) -> Path:
        """The target that the draft is for: the plan's, or the one that learns along."""
        return user_path(self.plan.out) / TARGET if isinstance(self.learner, TargetLearner) else self.source


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
    require_room(out, needed)
    require_possible(plan)
    files, judged = (find_files(paths, but=out / "run") for paths in (plan.data, plan.valid))
    target, found = open_target(source, plan.dtype, plan.device)
    require_trainable(target, plan.target)
    tell(found.line)
    vocab_size = target.config.vocab_size
    train, held_out, accounts = _corpora(plan, files, judged, source, target, team)
    if judged and (shared := held_out.count_shared(train)):
        tell(f"{shared} of {held_out.num_examples} held-out examples are learned from too: they are judged by memory")
    learner = trained = _learner(plan, method, options, target, train)
    if isinstance(learner, TargetLearner):
        require_room_for_target(out, needed)
    is_split = plan.parallel == "fully_shard" and team.size > 1
    if is_split:  # the loop splits one network among the workers, and gathers it in the other to judge and save it
        require_splittable(plan, learner)
        trained = _learner(plan, method, options, target, train)
    teacher = Teacher(target, learner.taps, _cache(plan, out, target, learner, (train, held_out), team))
    config = _loop_config(plan, target, accounts, team)
    if plan.loop.batch_tokens > config.batch_tokens:
        tell(
            f"batch_tokens={plan.loop.batch_tokens}: a step takes {config.batch_tokens}, whole rows of {config.seq_len}"
        )
    if 0 < plan.tokens < config.batch_tokens:
        tell(f"tokens={plan.tokens}: less than a step, which takes {config.batch_tokens}")
    schedule = Schedule(config)
    exam = Exam(
        batches=example_rows(held_out, plan.held_out_texts, config.seq_len, config.micro_tokens),
        depth=plan.depth,
        temperature=plan.temperature,
    )
    rows = _rows(plan, config, schedule, train, learner, vocab_size)
    objective = DraftObjective(
        trained,
        teacher,
        loss.rows,
        beside=loss.beside,
        reinforce=_reinforcement(plan, config, loss.reinforce, trained, vocab_size) if loss.reinforce else None,
    )
    if loss.beside.keys() - method.loss.keys():
        objective.require_losses(exam.batches[0])
    judge = Judge(exam, learner, teacher)
    board = open_board(user_path(plan.tensorboard)) if plan.tensorboard and team.leads else None
    loop = Loop(
        objective,
        rows,
        config,
        out / "run",
        tell,
        dtype=target.dtype,
        schedule=schedule,
        evaluate=judge,
        team=team,
        board=board,
        twin=learner.module if is_split else None,
        vocab_size=vocab_size,
        about=settings_of(plan, config, target, train, held_out),
        shares=learner.rates if isinstance(learner, TargetLearner) else None,
    )
    return Course(
        plan=plan,
        method=method,
        source=source,
        learner=learner,
        teacher=teacher,
        corpus=train,
        held_out=held_out,
        accounts=accounts,
        serves=found.stored,
        loop=loop,
        judge=judge,
    )


def _corpora(
    plan: TrainPlan, files: list[Path], judged: list[Path], source: Path, target: Decoder, team: Team
) -> tuple[TrainingCorpus, TrainingCorpus, Accounts]:
    """What is learned, what is held out (a share of the files, or the files to be judged by), and how much that is."""
    codec, vocab_size, cache = load_codec(source), target.config.vocab_size, user_path(plan.out) / "run" / "data"
    if not team.leads:
        team.wait()  # one worker encodes, the others find it
    train, held_out, accounts = open_corpus(files, codec, vocab_size, cache, held_out=0.0 if judged else plan.held_out)
    if judged:
        held_out, _, told = open_corpus(judged, codec, vocab_size, cache, held_out=0.0)
        read, skipped = accounts.read + told.read, accounts.skipped + told.skipped
        accounts = replace(accounts, read=read, held_out=told.kept, skipped=skipped)
    if plan.loss.get("sequence_kd"):
        require_own_texts(accounts, fingerprint(target)["weights"])
    if team.leads:
        team.wait()
    return train, held_out, accounts


def batch_for(tokens: int, length: int, workers: int) -> int:
    """Tokens of a step, in whole rows of `length` for each worker: a thousandth of all, from 1,024 to 4,096.

    With few texts the number of steps is what a draft lacks (docs/training.md has a measurement).
    """
    length = max(1, length)
    rows = max(1024, min(4096, tokens // 1000)) // length
    return max(1, rows // workers) * workers * length


def _loop_config(plan: TrainPlan, target: Decoder, accounts: Accounts, team: Team) -> LoopConfig:
    """The plan's settings of the loop: as many steps as there are tokens for, rows no longer than the target reads."""
    most, tokens, given = target.config.max_len - 1, plan.tokens or accounts.tokens, plan.loop.batch_tokens
    length, last = min(plan.loop.seq_len, most), min(plan.loop.final_seq_len, most)
    batch = given - given % max(1, length) if given else batch_for(tokens, max(length, last), team.size)
    if min(length, last or length) < 4 or batch < length * team.size:
        raise ConfigError(
            f"seq_len={length}, final_seq_len={last}, batch_tokens={given or batch}: a row needs at least 4 tokens, "
            f"and a batch at least a row for each of {team.size} workers"
        )
    return replace(
        plan.loop,
        steps=plan.loop.steps or (NO_END if plan.loop.seconds else max(1, tokens // batch)),
        batch_tokens=batch,
        seq_len=length,
        seed=plan.seed,
        final_seq_len=last,
    )


def _rows(
    plan: TrainPlan, config: LoopConfig, schedule: Schedule, texts: TrainingCorpus, learner: Learner, vocab_size: int
) -> Batches:
    """The rows of every step: the texts', or in part what the draft itself wrote behind their beginnings."""
    rows = PackedBatches(Packing(texts, plan.seed), config.batch_tokens, schedule, plan.same_order)
    if not plan.on_policy:
        return rows
    writer = require_writer(learner, vocab_size, f"on_policy={plan.on_policy:g}")
    return OnPolicy(rows, writer, plan.on_policy, plan.seed)


def _reinforcement(
    plan: TrainPlan, config: LoopConfig, weight: float, trained: Learner, vocab_size: int
) -> Reinforcement:
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
    plan: TrainPlan, method: LearnMethod[Any, Any], options: Any, target: Decoder, texts: TrainingCorpus
) -> Learner:
    if plan.init is not None:
        learner = method.load(options, target, resolve(plan.init))
        require_shape(learner, method, plan.options, target, plan.init)
        return learner
    learner = method.new(options, target, plan.seed)
    if method.choose_vocab is not None:
        method.choose_vocab(learner, torch.from_numpy(texts.frequencies(target.config.vocab_size)))
    return learner


def _cache(
    plan: TrainPlan,
    out: Path,
    target: Decoder,
    learner: Learner,
    texts: tuple[TrainingCorpus, TrainingCorpus],
    team: Team,
) -> PassCache | None:
    if not plan.cache_bytes:
        return None
    place = user_path(plan.cache_dir) if plan.cache_dir else out / "run" / "states"
    about = identity(fingerprint(target), tuple(learner.taps), target.dtype, *texts)
    return PassCache(place, about, plan.cache_bytes, workers=team.size)
