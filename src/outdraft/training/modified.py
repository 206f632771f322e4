"""A target that learned with its draft: what its own loss was before and after."""

import torch

from outdraft.core.learner import Learner
from outdraft.training.draft import Exam
from outdraft.training.lessons import Teacher


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
