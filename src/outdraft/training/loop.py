"""The training loop, the same for a target, a draft and a head: they differ in their objective only.

    rows of this step -> objective.loss -> gradients, added up over the team -> clip -> optimiser

A file named `finish` in the run's folder, or SIGUSR1, starts the decay; Ctrl-C or SIGTERM saves and stops.
"""

import json
import math
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from outdraft.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from outdraft.training.config import LoopConfig
from outdraft.training.optim import Optimizer
from outdraft.training.schedule import Schedule
from outdraft.training.team import Team

Report = Callable[[str], None]


class Objective(Protocol):
    """What is learned: a module and its loss."""

    @property
    def module(self) -> nn.Module:
        """Its parameters that require a gradient are trained."""
        ...

    def loss(self, rows: Tensor) -> Tensor:
        """rows [B, T + 1] ids -> [1 + k]: the loss to minimise (mean per token), then k numbers to watch."""
        ...


class Batches(Protocol):
    """Training or validation data: a pure function of the step."""

    def rows(self, step: int, first: int, count: int, length: int) -> Tensor:
        """Rows first..first+count of the batch of this step: [count, length], int64."""
        ...


class Loop:
    """One run in one folder. `listens`: to signals, while it runs and from then on; not in somebody else's program."""

    def __init__(
        self,
        objective: Objective,
        train: Batches,
        valid: Batches,
        config: LoopConfig,
        run_dir: Path,
        team: Team,
        report: Report,
        *,
        listens: bool = True,
    ) -> None:
        self.objective, self.train_data, self.valid_data = objective, train, valid
        self.config, self.run_dir, self.team, self.report = config, run_dir, team, report
        named = [(n, p) for n, p in objective.module.named_parameters() if p.requires_grad]
        self.optimizer = Optimizer(named, config, team)
        self.schedule = Schedule(config)
        self.step, self.seconds = 0, 0.0
        self._listens = listens
        self.loss: Callable[[Tensor], Tensor] = (
            torch.compile(objective.loss, dynamic=False) if config.compile else objective.loss
        )
        self.grads = [torch.zeros_like(m) for m in self.optimizer.masters]
        self._finish = self._stop = False
        run_dir.mkdir(parents=True, exist_ok=True)

    def resume(self) -> None:
        """Continue from the folder's checkpoint."""
        state, progress = load_checkpoint(self.run_dir / "checkpoint.pt")
        self.optimizer.load_state(state)
        self.step, self.seconds = progress.step, progress.seconds
        if progress.step >= progress.decay_at:  # a decay that has begun goes on as planned then
            self.schedule.decay_at, self.schedule.end = progress.decay_at, progress.end

    def run(self, until: int | None = None) -> None:
        """Train to the schedule's end (or to step `until`), evaluating and saving on the way."""
        if self._listens:
            self._listen()
        report_at, tokens_since, loss_sum, since = time.monotonic(), 0, 0.0, 0
        while self.step < (self.schedule.end if until is None else min(until, self.schedule.end)):
            began = time.monotonic()
            if self._agree():
                break
            loss_sum += self._one_step()
            since += 1
            tokens_since += self.config.batch_tokens
            self.step += 1
            self.seconds += time.monotonic() - began
            if time.monotonic() - report_at > 30 or self.step % 50 == 0:
                rate = tokens_since / (time.monotonic() - report_at)
                left = (self.schedule.end - self.step) * self.config.batch_tokens / rate / 60
                at = f"step {self.step}/{self.schedule.end} loss {loss_sum / since:.4f}"
                self._say(f"{at} {rate:.0f} tok/s eta {left:.1f} min")
                report_at, tokens_since, loss_sum, since = time.monotonic(), 0, 0.0, 0
            if self.step % self.config.eval_every == 0:
                self.evaluate()
                report_at, tokens_since = time.monotonic(), 0
            if self.step % self.config.save_every == 0:
                self.save()
        self.save()

    def _one_step(self) -> float:
        config, team = self.config, self.team
        length = config.final_seq_len if config.final_seq_len and self.schedule.decaying(self.step) else config.seq_len
        mine = max(1, config.batch_tokens // length // team.size)
        micro = min(mine, max(1, config.micro_tokens // length))
        passes = math.ceil(mine / micro)
        total = 0.0
        for grad in self.grads:
            grad.zero_()
        for i in range(passes):
            rows = self.train_data.rows(self.step, team.rank * mine + i * micro, micro, length + 1)
            losses = self.loss(rows)
            losses[0].backward()  # type: ignore[no-untyped-call]
            total += float(losses[0].detach()) / passes
            for grad, parameter in zip(self.grads, self.optimizer.parameters, strict=True):
                if parameter.grad is not None:
                    grad.add_(parameter.grad, alpha=1 / (passes * team.size))
                    parameter.grad = None
        flat = team.add_up(torch.cat([*(g.view(-1) for g in self.grads), torch.tensor([total / team.size])]))
        norm = float(flat[:-1].norm())
        scale = min(1.0, self.config.clip / (norm + 1e-6)) if math.isfinite(norm) else 0.0
        sizes = [g.numel() for g in self.grads]
        for grad, part in zip(self.grads, torch.split(flat[:-1], sizes), strict=True):
            grad.copy_(part.view_as(grad)).mul_(scale)
        if scale:  # a step whose gradient is not finite is left out
            self.optimizer.step(self.grads, self.schedule.factor(self.step))
        return float(flat[-1])

    @torch.no_grad()
    def evaluate(self) -> list[float]:
        """The mean of the objective's numbers over fixed validation rows."""
        length = self.config.seq_len
        micro = max(1, self.config.micro_tokens // length)
        passes = max(1, self.config.eval_tokens // (length * micro * self.team.size))
        parts = [
            self.objective.loss(
                self.valid_data.rows(0, (self.team.rank * passes + i) * micro, micro, length + 1)
            ).float()
            for i in range(passes)
        ]
        sums = self.team.add_up(torch.stack(parts).sum(0)) / (passes * self.team.size)
        numbers = [float(x) for x in sums]
        tokens = self.step * self.config.batch_tokens
        self._say(f"step {self.step} validation " + " ".join(f"{x:.4f}" for x in numbers))
        self._write({"step": self.step, "tokens": tokens, "seconds": round(self.seconds), "validation": numbers})
        return numbers

    def save(self) -> None:
        """Write the checkpoint (first worker only)."""
        if self.team.rank == 0:
            progress = Progress(
                step=self.step, decay_at=self.schedule.decay_at, end=self.schedule.end, seconds=self.seconds
            )
            save_checkpoint(self.run_dir / "checkpoint.pt", self.optimizer.state(), progress)

    def _agree(self) -> bool:
        """Share signals among the team; starts the decay, or says whether to stop."""
        finish = self._finish or (self.team.rank == 0 and (self.run_dir / "finish").exists())
        flags = self.team.add_up(torch.tensor([float(finish), float(self._stop)]))
        if flags[0] > 0 and not self.schedule.decaying(self.step):
            self.schedule.begin_decay(self.step)
            self._say(f"decay from step {self.step} to {self.schedule.end}")
        return bool(flags[1] > 0)

    def _listen(self) -> None:
        def finish(*_: Any) -> None:
            self._finish = True

        def stop(*_: Any) -> None:
            self._stop = True

        try:
            signal.signal(signal.SIGUSR1, finish)
            signal.signal(signal.SIGINT, stop)
            signal.signal(signal.SIGTERM, stop)
        except ValueError:
            pass  # not the main thread: only the file is heard

    def _say(self, line: str) -> None:
        if self.team.rank == 0:
            self.report(line)

    def _write(self, record: dict[str, Any]) -> None:
        if self.team.rank == 0:
            with (self.run_dir / "log.jsonl").open("a", encoding="utf-8") as out:
                out.write(json.dumps(record) + "\n")
