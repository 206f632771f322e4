"""Drafts that were taught: a tiny target's own texts, a hundred steps of the trainer's losses, weights as anybody's.

What stands on weights made by hand stands for one shape of them; these have whatever training gives. Data in: a kind,
its options, a tiny target; data out: a saved draft. Equal questions are answered once a process.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from shutil import copytree
from tempfile import mkdtemp
from typing import Any

import torch
from contracts.sides import Side

from outdraft.core.learner import TARGET, Learner
from outdraft.core.learner_registry import find_learner
from outdraft.learn.losses import OWN, mixed
from outdraft.models.files.load import load_model
from outdraft.models.networks.base import Decoder
from outdraft.testing.contract.distribution import PROMPT
from outdraft.testing.contract.ground import PROMPTS
from outdraft.training.draft import DraftObjective
from outdraft.training.lessons import Teacher
from outdraft.training.packing import PackedRows
from outdraft.training.record import fingerprint

Target = Callable[[int, torch.dtype], Decoder]  # vocabulary, precision -> target
TEXTS, LENGTH, STEPS, A_STEP = 96, 40, 120, 12
_made: dict[str, Path] = {}


def taught(kind: str, **options: Any) -> Side:
    """A draft of this kind that has learnt from the target's texts. `options`: of the kind's learner."""

    def side(target: Decoder, directory: Path) -> Mapping[str, Any]:
        key = repr((kind, options, fingerprint(target), target.dtype))
        if key not in _made:
            _made[key] = Path(mkdtemp(prefix=f"taught-{kind}-"))
            teach(kind, options, target, _made[key])
        copytree(_made[key], directory, dirs_exist_ok=True)
        return {"model": str(directory)}

    return side


def taught_along(kind: str, base: Target, **options: Any) -> tuple[Target, Side]:
    """A target that learns with such a draft, and the draft beside it. `base`: what the target is before."""

    def place(vocab_size: int, dtype: torch.dtype) -> Path:
        key = repr((kind, options, base, vocab_size, dtype))
        if key not in _made:
            _made[key] = Path(mkdtemp(prefix=f"taught-{kind}-"))
            teach(kind, options, base(vocab_size, dtype), _made[key])
        return _made[key]

    def target(vocab_size: int, dtype: torch.dtype) -> Decoder:
        made = load_model(place(vocab_size, dtype) / TARGET, dtype)
        made.set_exact(True)
        return made

    def side(target: Decoder, directory: Path) -> Mapping[str, Any]:
        copytree(place(target.config.vocab_size, target.dtype), directory, dirs_exist_ok=True)
        return {"model": str(directory)}

    return target, side


def teach(kind: str, options: Mapping[str, Any], target: Decoder, directory: Path) -> tuple[Learner, Teacher]:
    """Train a draft and save it; returns it as it is in memory, and whom it learnt from."""
    method, own = find_learner(kind), Decoder(target.config)
    with torch.no_grad():
        for ours, theirs in zip(own.parameters(), target.parameters(), strict=True):
            ours.copy_(theirs)
    learner = method.new(method.options(**options), own, 0)
    teacher = Teacher(own, learner.taps)
    loss = mixed(method.loss) if method.loss else OWN
    objective = DraftObjective(learner, teacher, loss.rows, beside=loss.beside)
    trained = [p for p in learner.module.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, STEPS)
    ids = texts_of(own)
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        some = ids[torch.randperm(len(ids), generator=generator)[:A_STEP]]
        counts = torch.ones_like(some[:, 1:], dtype=torch.bool)
        objective.loss(PackedRows(ids=some, documents=torch.zeros_like(some), counts=counts))[0].backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    learner.module.eval()
    learner.save(directory)
    return learner, teacher


@torch.no_grad()
def texts_of(target: Decoder) -> torch.Tensor:
    """What the target writes, half of it greedily: [TEXTS, LENGTH], after the checks' prompts and random ones."""
    vocab = target.config.vocab_size
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(vocab, (TEXTS, LENGTH), generator=generator)
    begins = torch.full((TEXTS,), 3)
    for row, prompt in enumerate((*PROMPTS, PROMPT)):
        some = torch.tensor(prompt)[: LENGTH // 2] % vocab
        ids[row, : len(some)] = some
        begins[row] = len(some)
    teacher = Teacher(target, ())
    for place in range(3, LENGTH):
        rows = PackedRows(
            ids=ids, documents=torch.zeros_like(ids), counts=torch.ones_like(ids[:, 1:], dtype=torch.bool)
        )
        states = teacher.lesson(rows).states.view(TEXTS, LENGTH - 1, -1)[:, place - 1]
        p = teacher.logits(states).float().softmax(-1)
        drawn = torch.multinomial(p, 1, generator=generator)[:, 0]
        said = torch.where(torch.arange(TEXTS) % 2 == 0, p.argmax(-1), drawn)
        ids[:, place] = torch.where(begins <= place, said, ids[:, place])
    return ids
