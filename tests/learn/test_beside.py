"""A drafter's own learner, beside an engine: one step on a lesson and its head saved, with `outdraft.learn` alone."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from outdraft.core.learner import Guess, Lesson, Outlook
from outdraft.learn.compare import compare
from outdraft.learn.losses import mixed
from outdraft.learn.save import Progress, State, learned, load_state, put_back, save_state
from outdraft.learn.step import Optimizer
from outdraft.options.errors import ConfigError

VOCAB, WIDTH, STEPS = 11, 8, 40


class Head(nn.Module):
    """The target's state in, the next token but one out."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH, bias=False)

    def look(self, lesson: Lesson, logits: nn.Linear) -> Outlook:
        rows = torch.arange(1, len(lesson.states))  # state i guesses what the target's row i + 1 distributes
        return Outlook(guesses=[Guess(states=self.up(lesson.states[:-1]), head=logits, rows=rows)])


def a_lesson() -> Lesson:
    torch.manual_seed(2)
    ids, states = torch.randint(VOCAB, (1, 7)), torch.randn(6, WIDTH)
    return Lesson(
        ids=ids,
        documents=torch.zeros_like(ids),
        positions=torch.arange(6),
        counts=torch.ones(6, dtype=torch.bool),
        states=states,
    )


def test_a_head_learns_is_saved_and_goes_on_with_the_same_bits(tmp_path: Path):
    torch.manual_seed(1)
    logits = nn.Linear(WIDTH, VOCAB, bias=False).requires_grad_(False)
    lesson, loss = a_lesson(), mixed({"forward_kl": 1})

    def learner() -> tuple[Head, Optimizer]:
        torch.manual_seed(3)
        head = Head()
        named = head.named_parameters()
        return head, Optimizer(named, lr=1e-2, muon_lr=1e-2, weight_decay=0.0, vocab_size=VOCAB)

    def step(head: Head, optimizer: Optimizer) -> float:
        found = compare(head.look(lesson, logits), lesson, logits, loss.rows).loss
        optimizer.clear()
        found.backward()
        assert optimizer.update(1.0, clip=1.0)
        return float(found.detach())

    head, optimizer = learner()
    losses = [step(head, optimizer) for _ in range(STEPS)]
    assert losses[-1] < losses[0]
    place = Progress(step=STEPS, decay_at=STEPS, end=STEPS, seconds=0.0)
    save_state(tmp_path / "head.pt", State(weights=learned(head), optimizer=optimizer.state(), progress=place))
    other, its = learner()
    saved = load_state(tmp_path / "head.pt")
    put_back(other, saved.weights)
    its.load_state(saved.optimizer)
    assert [step(head, optimizer) for _ in range(3)] == [step(other, its) for _ in range(3)]
    assert torch.equal(head.up.weight, other.up.weight) and saved.progress.step == STEPS
    with pytest.raises(ConfigError, match="another network"):
        put_back(nn.Linear(2, 2), saved.weights)


def test_it_needs_nothing_above_a_drafter():
    """A process that learns so has loaded no model, drafter, engine or trainer."""
    code = "import sys, outdraft.learn.compare, outdraft.learn.losses, outdraft.learn.save, outdraft.learn.step\n"
    code += "print(*sorted({name.split('.')[1] for name in sys.modules if name.startswith('outdraft.')}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"core", "kernels", "learn", "options"}
