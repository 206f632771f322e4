"""A draft in training: a learner under a teacher, with a loss; and what it is worth on texts that it never saw."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from outdraft.core.learner import AssessedLearner, Learner, Lesson, Outlook
from outdraft.learn.compare import Compared, accepted, compare
from outdraft.learn.losses import Loss
from outdraft.options.errors import ConfigError
from outdraft.training.costs import RoundCosts
from outdraft.training.lessons import Teacher
from outdraft.training.objective import Evaluation
from outdraft.training.packing import PackedRows
from outdraft.training.reinforce import Reinforcement
from outdraft.training.walk import Walk, walk


class DraftObjective:
    """The draft and its losses, as the training loop asks for them."""

    def __init__(
        self,
        learner: Learner,
        teacher: Teacher,
        loss: Loss,
        *,
        temperature: float = 1.0,
        beside: Mapping[str, float] | None = None,
        reinforce: Reinforcement | None = None,
    ) -> None:
        self.lean = 1.0  # weight of a depth against the one before, beside what the learner says of it
        self.learner, self.teacher = learner, teacher
        self._loss, self._temperature, self._beside = loss, temperature, dict(beside or {})
        self._reinforce = reinforce

    @property
    def module(self) -> nn.Module:
        return self.learner.module

    def total(self, rows: PackedRows) -> Tensor:
        """[2 + K]: the loss of all guesses, their weight, then the mean acceptance at each depth on the text."""
        found = self._compare(rows)
        if self._reinforce is not None and rows.moment is not None:
            found = replace(found, total=found.total + self._reinforce.total(self.learner, self.teacher, rows))
        return torch.stack([found.total, torch.tensor(found.weight, device=found.total.device), *found.rates])

    @property
    def memory(self) -> dict[str, Tensor]:
        """The baseline of reinforcement."""
        return {} if self._reinforce is None else {"baseline": self._reinforce.baseline.state}

    def settle(self, add_up: Callable[[Tensor], Tensor]) -> None:
        """The baseline learns what all workers' windows brought."""
        if self._reinforce is not None:
            baseline = self._reinforce.baseline
            baseline.settle(add_up(baseline.seen))

    def loss(self, rows: PackedRows) -> Tensor:
        """[1 + K]: the mean loss of the guesses, then the mean acceptance at each depth on the text."""
        found = self._compare(rows)
        return torch.stack([found.loss, *found.rates])

    def require_losses(self, rows: PackedRows) -> None:
        """Raise `ConfigError` for a loss that this kind of draft does not make."""
        with self.teacher.computing():
            self._look(self.teacher.lesson(rows))

    def _look(self, lesson: Lesson) -> Outlook:
        outlook = self.learner.look(lesson)
        told = {one.name for one in outlook.beside}
        if lacking := [name for name, weight in self._beside.items() if weight and name not in told]:
            raise ConfigError(
                f"loss {lacking[0]} compares the target's states with those that a draft guesses, and this kind "
                "guesses tokens alone: take a loss between distributions"
            )
        weighed = [replace(one, weight=one.weight * self.lean**i) for i, one in enumerate(outlook.guesses)]
        return replace(outlook, guesses=weighed)

    def _compare(self, rows: PackedRows) -> Compared:
        lesson = self.teacher.lesson(rows)
        return compare(
            self._look(lesson),
            lesson,
            self.teacher.logits,
            self._loss,
            temperature=self._temperature,
            beside=self._beside,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Exam:
    """Texts to be judged on, one a row, in batches; `depth`: tokens of a draft."""

    batches: Seq[PackedRows]
    depth: int
    temperature: float = 1.0

    @torch.no_grad()
    def walk(self, learner: Learner, teacher: Teacher) -> Walk:
        """The rounds that the draft would take through them."""
        total: Walk | None = None
        for rows in self.batches:
            lesson = replace(teacher.lesson(rows), depth=self.depth)
            one = walk_of(learner.look(lesson), teacher, lesson, self.depth, self.temperature)
            total = one if total is None else total + one
        assert total is not None
        return total


def walk_of(
    outlook: Outlook, teacher: Teacher, lesson: Lesson, depth: int, temperature: float, said: Tensor | None = None
) -> Walk:
    """The rounds of guesses of `depth` tokens through the texts of a lesson. `said`: as `accepted` takes it."""
    found = accepted(outlook, lesson, teacher.logits, temperature, said=said)
    found = found * depth if outlook.recurs else found[:depth]
    shape = (len(found), *lesson.shape)
    ratios, guessed = (
        torch.stack(part).view(shape).cpu() for part in ([one.ratio for one in found], [one.guessed for one in found])
    )
    return walk(ratios, lesson.counts.view(lesson.shape).cpu(), guessed)


class Judge:
    """An exam for the loop, whose score is tokens a target pass. `costs`: of a round here, when they were measured."""

    def __init__(self, exam: Exam, learner: Learner, teacher: Teacher) -> None:
        self.exam, self._learner, self._teacher = exam, learner, teacher
        self.costs: RoundCosts | None = None

    def __call__(self) -> Evaluation:
        """How good the draft is now."""
        if isinstance(self._learner, AssessedLearner):
            told = self._learner.assess(map(self._teacher.lesson, self.exam.batches))
            return Evaluation(score=told.score, line=told.line, numbers=told.numbers)
        seen = self.exam.walk(self._learner, self._teacher)
        by_depth, all_of = (" ".join(f"{rate:.3f}" for rate in rates) for rates in (seen.conditional, seen.joint))
        line = f"held-out: {seen.tau:.3f} tokens a pass; accepted at 1, 2, ...: {by_depth}; all up to there: {all_of}"
        numbers: dict[str, Any] = {"tau": seen.tau, "conditional": seen.conditional, "joint": seen.joint}
        if self.costs is not None:
            numbers["speedup"] = self.costs.speedup(seen.tau)
            line += f"; {self.costs.speedup(seen.tau):.2f} times plain decoding on this machine"
        return Evaluation(score=seen.tau, line=line, numbers=numbers)
