"""The training loop, the same for a target, a draft and a head: they differ in their objective only.

    rows of this step -> objective.total -> gradients, averaged over the team -> clip -> optimiser
    every so often       evaluate: a score; the best weights are kept, and training ends when it no longer rises

A file named `finish` in the run's folder, or SIGUSR1, starts the decay; Ctrl-C or SIGTERM saves and stops. Killed at
any moment, a run that is resumed from its last checkpoint ends with the same bits.
"""

import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from outdraft.learn.save import Progress, State, learned, load_state, put_back, save_state
from outdraft.learn.step import Optimizer
from outdraft.options.errors import ConfigError, DecodingError
from outdraft.training.computing import computing, name_of, without_denormals
from outdraft.training.config import LoopConfig, Schedule
from outdraft.training.journal import Board, Report, RunJournal
from outdraft.training.objective import Batches, Evaluation, Objective
from outdraft.training.same_run import require_same
from outdraft.training.team import Team, forget_others, gather, load_parts, save_parts, shard

CHECKPOINT, BEST = "checkpoint.pt", "best.pt"
_MOST_SKIPPED = 20  # steps in a row without a finite gradient
_CURE = "lower the rates (lr, muon_lr), or take another loss"


class _Loss(nn.Module):
    """The loss as a module, which is what `DistributedDataParallel` wraps."""

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.module, self._compute = objective.module, objective.total

    def forward(self, rows: Any) -> Tensor:
        return self._compute(rows)


class _Signals:
    """SIGUSR1 begins the end, Ctrl-C or SIGTERM stops: heard inside `listening`."""

    finish = stop = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        before: dict[int, Any] = {}
        try:
            for one in (signal.SIGUSR1, signal.SIGINT, signal.SIGTERM):
                before[one] = signal.signal(one, self._hear)
        except ValueError:
            pass  # not the main thread: only the file is heard
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGUSR1:
            self.finish = True
        else:
            self.stop = True


class Loop:
    """One run in one folder. `dtype`: of its passes, under autocast; `shares`: of the rate, for parameters that learn
    at less; `listens`: to signals, while it runs; not in a caller's program.
    """

    def __init__(
        self,
        objective: Objective,
        data: Batches,
        config: LoopConfig,
        run_dir: Path,
        report: Report,
        *,
        dtype: torch.dtype = torch.float32,
        schedule: Schedule | None = None,
        evaluate: Callable[[], Evaluation] | None = None,
        team: Team | None = None,
        listens: bool = True,
        vocab_size: int = 0,
        about: Mapping[str, Any] | None = None,
        board: Board | None = None,
        twin: nn.Module | None = None,
        shares: Mapping[nn.Parameter, float] | None = None,
    ) -> None:
        self.objective, self.data, self.config = objective, data, config
        self.run_dir, self.team = run_dir, team or Team()
        _require_even(config, self.team.size)
        self.journal = RunJournal(run_dir, report, leads=self.team.leads, board=board)
        self.device = next(p.device for p in objective.module.parameters() if p.requires_grad)
        loss: nn.Module = _Loss(objective)
        self._twin = twin
        if twin is not None:
            shard(loss, self.team, self.device)
        named = [(n, p) for n, p in objective.module.named_parameters() if p.requires_grad]
        self.optimizer = Optimizer(
            named,
            lr=config.lr,
            muon_lr=config.muon_lr,
            weight_decay=config.weight_decay,
            vocab_size=vocab_size,
            shares=shares,
        )
        self._dtype = dtype
        self._about = {"dtype": name_of(dtype), **(about or {})}
        self.interrupted = False  # whether the team was asked to stop before the end
        self._skipped, self._judged_at = 0, -1
        self.schedule = schedule or Schedule(config)
        self.progress = Progress(step=0, decay_at=self.schedule.decay_at, end=self.schedule.end, seconds=0.0)
        self._evaluate, self._signals, self._listens = evaluate, _Signals(), listens
        self._loss = loss
        if self.team.size > 1 and twin is None:  # no step changes a buffer
            self._loss = DistributedDataParallel(loss, find_unused_parameters=True, broadcast_buffers=False)
        run_dir.mkdir(parents=True, exist_ok=True)

    @property
    def step(self) -> int:
        """How many steps have been done."""
        return self.progress.step

    @property
    def tokens(self) -> int:
        """How many tokens these steps took, over all workers."""
        early = min(self.step, self.schedule.decay_at)
        return early * self._tokens_of(0) + (self.step - early) * self._tokens_of(self.schedule.decay_at)

    def try_step(self, step: int = 0) -> None:
        """This step, as it would be at its place in the run, without an update."""
        self._gradients(step)
        self.optimizer.clear()

    def resume(self, *, goes_on: bool = True) -> None:
        """Continue from the folder's checkpoint. Raises `ConfigError` where that is of a run of other settings.

        `goes_on`: False where no further step is taken, so that its weights may be of any settings.
        """
        state = load_state(self.run_dir / CHECKPOINT)
        if goes_on:
            require_same(self.run_dir, begun=state.about, now=self._about, say=self.journal.say)
        if self._twin is not None:
            load_parts(self.run_dir, state.shards, self.objective.module, self.optimizer)
        else:
            try:
                put_back(self.objective.module, state.weights)
            except ConfigError as error:
                raise ConfigError(f"{self.run_dir} holds a run of another network: name another directory") from error
            self.optimizer.load_state(state.optimizer)
        for name, kept in self.objective.memory.items():
            kept.copy_(state.memory[name])
        self.progress = state.progress
        # A decay that has begun goes on as planned then; by seconds the end is as reckoned then, until steps are timed
        if self.config.seconds or state.progress.step >= state.progress.decay_at:
            self.schedule.decay_at, self.schedule.end = state.progress.decay_at, state.progress.end
        self.schedule.is_asked = state.progress.is_asked

    def run(self, until: int | None = None) -> None:
        """Train to the schedule's end (or to step `until`), evaluating and saving on the way."""
        told = time.monotonic()
        with self._signals.listening() if self._listens else nullcontext(), without_denormals():
            # Signals are asked for before the end is: one may have come in the last step, or move the end
            while not self._agree() and self.step < (
                self.schedule.end if until is None else min(until, self.schedule.end)
            ):
                began = time.monotonic()
                if self.config.patience and self.progress.since_best >= self.config.patience:
                    best, patience = self.progress.best, self.config.patience
                    self.journal.say(f"no better than {best:.4f} for {patience} evaluations: done")
                    break
                loss, took = self._one_step(), time.monotonic() - began
                self.journal.add(loss, took, self._tokens_of(self.step))
                self.progress = replace(self.progress, step=self.step + 1, seconds=self.progress.seconds + took)
                if time.monotonic() - told > 30 or self.step % 50 == 0:
                    self.journal.say_step(self.step, self.schedule.end)
                    told = time.monotonic()
                if self.step % self.config.eval_every == 0:
                    self.evaluate()
                if self.step % self.config.save_every == 0:
                    self.save()
        if until is None and not self.interrupted and 0 < self.step == self.progress.skipped:
            raise DecodingError(f"the gradient was not a finite number in any of {self.step} steps: {_CURE}")
        self.save()

    def _one_step(self) -> float:
        loss = self._gradients(self.step)
        is_done = self.optimizer.update(self.schedule.factor(self.step), self.config.clip)
        self._skipped = 0 if is_done else self._skipped + 1
        self.progress = replace(self.progress, skipped=self.progress.skipped + (not is_done))
        if self._skipped >= _MOST_SKIPPED:
            raise DecodingError(
                f"the gradient was not a finite number {self._skipped} steps in a row, at step {self.step}: {_CURE}; "
                "the last checkpoint is kept"
            )
        return loss

    def _gradients(self, step: int) -> float:
        """Of this step's batch; returns its loss, over all workers."""
        config, team, (mine, length) = self.config, self.team, self._rows_of(step)
        micro = min(mine, max(1, config.micro_tokens // length))
        passes = math.ceil(mine / micro)
        sums = torch.zeros(2, dtype=torch.float64)  # of losses, of weights
        self.optimizer.clear()
        for i in range(passes):
            count = min(micro, mine - i * micro)
            rows = self.data.rows(step, team.rank * mine + i * micro, count, length + 1)
            is_last = i == passes - 1
            waits: AbstractContextManager[object] = nullcontext()
            if isinstance(self._loss, DistributedDataParallel) and not is_last:
                waits = self._loss.no_sync()
            if isinstance(self._loss, FSDPModule):
                self._loss.set_requires_gradient_sync(is_last)
            with waits:
                with self.computing():
                    found = self._loss(rows)
                found[0].backward()
            sums += found[:2].detach().cpu()
        loss, weight = self.team.add_up(sums).tolist()
        self.objective.settle(self.team.add_up)
        weight = weight or 1.0  # where nothing counts, nothing is learned
        for parameter in self.optimizer.parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(team.size / weight)  # workers' gradients have been averaged
        return float(loss / weight)

    def _rows_of(self, step: int) -> tuple[int, int]:
        """How many rows each worker takes at this step, and of how many tokens."""
        config = self.config
        length = config.final_seq_len if config.final_seq_len and self.schedule.decaying(step) else config.seq_len
        return max(1, config.batch_tokens // length // self.team.size), length

    def _tokens_of(self, step: int) -> int:
        return math.prod(self._rows_of(step)) * self.team.size

    def computing(self) -> torch.autocast:
        """The type that passes compute in."""
        return computing(self.device, self._dtype)

    def evaluate(self) -> Evaluation | None:
        """Judge what is learned so far; keeps the weights if they are the best."""
        if self._evaluate is None or self._judged_at == self.step:
            return None
        self._judged_at = self.step
        if self._twin is not None:
            gather(self.objective.module, self._twin)
        with torch.no_grad(), self.computing():
            found = self._evaluate()
        best = self.progress.best
        if found.score > (-math.inf if best is None else best):  # never one that is no number
            self.progress = replace(self.progress, best=found.score, since_best=0)
            if self.team.leads:
                state = State(weights=learned(self._whole), optimizer=[], progress=self.progress)
                save_state(self.run_dir / BEST, state, self.run_dir / CHECKPOINT)
        else:
            self.progress = replace(self.progress, since_best=self.progress.since_best + 1)
        skipped, seconds = self.progress.skipped, round(self.progress.seconds)
        numbers = {"step": self.step, "tokens": self.tokens, "seconds": seconds, "skipped": skipped}
        line = found.line + (f"; {skipped} steps left out, whose gradient was not finite" if skipped else "")
        self.journal.evaluated(self.step, self.schedule.end, line, {**numbers, "score": found.score, **found.numbers})
        return found

    def take_best(self) -> None:
        """Go back to the weights of the best evaluation, if there was one."""
        if (self.run_dir / BEST).exists():
            put_back(self._whole, load_state(self.run_dir / BEST).weights)

    def save(self) -> None:
        """Write the checkpoint: the first worker all of it, or each its part."""
        shards = ""
        if self._twin is not None:
            shards = save_parts(self.run_dir, self.step, self.objective.module, self.optimizer)
        if self.team.leads:
            plan = self.schedule
            self.progress = replace(self.progress, decay_at=plan.decay_at, end=plan.end, is_asked=plan.is_asked)
            state = State(
                weights={} if shards else learned(self._whole),
                progress=self.progress,
                about=self._about,
                optimizer=[] if shards else self.optimizer.state(),
                memory=self.objective.memory,
                shards=shards,
            )
            save_state(self.run_dir / CHECKPOINT, state)
        if shards:
            self.team.wait()
            if self.team.leads:
                forget_others(self.run_dir, shards)

    @property
    def _whole(self) -> nn.Module:
        """The module; sharded: as its parts were last gathered."""
        return self.objective.module if self._twin is None else self._twin

    def _agree(self) -> bool:
        """Share signals among the team; starts the decay, or says whether to stop."""
        leads = self.team.leads
        finish = self._signals.finish or (leads and (self.run_dir / "finish").exists())
        flags = self.team.add_up(
            torch.tensor([finish, self._signals.stop, self.progress.seconds if leads else 0.0], dtype=torch.float64)
        )
        self.schedule.keep_time(self.step, float(flags[2]))
        if flags[0] > 0 and not self.schedule.decaying(self.step):
            self.schedule.begin_decay(self.step)
            self.journal.say(f"decay from step {self.step} to {self.schedule.end}")
        self.interrupted = bool(flags[1] > 0)
        return self.interrupted


def _require_even(config: LoopConfig, workers: int) -> None:
    """Raise `ConfigError` for a batch whose rows cannot be shared evenly: some would be left out of every step."""
    for name in ("seq_len", "final_seq_len"):
        length = getattr(config, name)
        if length and (rows := max(1, config.batch_tokens // length)) % workers:
            enough = math.ceil(rows / workers) * workers * length
            raise ConfigError(
                f"batch_tokens={config.batch_tokens} is {rows} rows of {name}={length}, which {workers} workers cannot "
                f"share evenly: take batch_tokens={enough}"
            )
