"""Make the specimen of a draft (`adapt/specimen.py`): a pass of the target over a fixed text, a look of the draft."""

import hashlib
import json
from collections.abc import Sequence as Seq
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from outdraft.adapt.specimen import Nats, Specimen
from outdraft.adapt.template import common_end
from outdraft.core.learner import AssessedLearner, Guess, Learner, TargetLearner
from outdraft.learn.losses import logs
from outdraft.options.read_file import load_json
from outdraft.training.corpus import TrainingCorpus
from outdraft.training.lessons import Teacher
from outdraft.training.packing import PackedRows
from outdraft.weights.safetensors import read_tensors

_LENGTH = 129  # ids of a specimen
_DEPTH = 2  # guesses that it holds, so that what a draft makes of its own states is seen too
_CHATS = 1000  # prompts whose ends are compared


def known_signs(learner: Learner, teacher: Teacher, directory: Path, corpus: TrainingCorpus) -> dict[str, Any]:
    """What a training record holds so that a fault is found later: of the draft in `directory`, and of its texts."""
    is_draft = not isinstance(learner, AssessedLearner | TargetLearner)  # else: no guess, or none for this target
    specimen = take_specimen(learner, teacher, directory, specimen_ids(corpus)).data() if is_draft else None
    return {"marks": list(marks_of(corpus)), "specimen": specimen}


def specimen_ids(corpus: TrainingCorpus) -> list[int]:
    """The beginning of the first example that is long enough, or of the longest."""
    starts = corpus.starts.tolist()
    spans = [(a, min(b, a + _LENGTH)) for a, b in pairwise(starts)]
    start, stop = max(spans, key=lambda one: one[1] - one[0])
    return [int(one) for one in corpus.ids[start:stop]]


def marks_of(corpus: TrainingCorpus) -> tuple[int, ...]:
    """The ids with which the prompts of its first examples end; () for texts without prompts."""
    spans = islice(pairwise(corpus.starts.tolist()), _CHATS)
    return common_end([corpus.ids[a : a + int(np.argmax(corpus.counts[a:b]))].tolist() for a, b in spans])


@torch.no_grad()
def take_specimen(learner: Learner, teacher: Teacher, directory: Path, ids: Seq[int]) -> Specimen:
    """What they say of the text `ids` now. `directory`: where the draft's files are."""
    row = torch.tensor([list(ids)])
    rows = PackedRows(
        ids=row, documents=torch.zeros_like(row), counts=torch.ones_like(row[:, 1:], dtype=torch.bool), own=True
    )
    with teacher.computing():
        lesson = replace(teacher.lesson(rows), depth=_DEPTH)
        tokens = lesson.ids[0, 1:]
        log_p = logs(teacher.logits(lesson.states))
        guesses = learner.look(lesson).guesses[:_DEPTH]
        draft = tuple(_of_guess(one, tokens, log_p.shape[-1]) for one in guesses)
    return Specimen(
        ids=tuple(ids),
        target=_numbers(log_p.gather(-1, tokens[:, None])[:, 0]),
        draft=draft,
        taps=tuple(learner.taps),
        tensors=_digests(directory),
        config=_digest(json.dumps(load_json(directory / "config.json"), sort_keys=True).encode()),
    )


def _of_guess(guess: Guess, tokens: Tensor, vocab_size: int) -> Nats:
    """log q of each of the text's tokens [T]; none outside the draft's vocabulary."""
    log_q = logs(guess.head(guess.states))
    vocab = torch.arange(vocab_size, device=log_q.device) if guess.vocab is None else guess.vocab
    places = torch.full((vocab_size,), -1, device=log_q.device)
    places[vocab] = torch.arange(len(vocab), device=log_q.device)
    column = places[tokens[guess.rows]]
    found = log_q.gather(-1, column.clamp_min(0)[:, None])[:, 0].masked_fill(column < 0, -torch.inf)
    return _numbers(found.new_full((len(tokens),), -torch.inf).index_copy_(0, guess.rows, found))


def _numbers(logs_of: Tensor) -> Nats:
    """Four digits are far more than rounding leaves; what is no number is said as if nothing were."""
    return tuple(round(one, 4) if np.isfinite(one) else None for one in logs_of.float().tolist())


def _digests(directory: Path) -> dict[str, str]:
    found = dict[str, str]()
    for path in sorted(directory.glob("*.safetensors")):
        for name, one in read_tensors(path).items():
            found[name] = _digest(one.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:8]
