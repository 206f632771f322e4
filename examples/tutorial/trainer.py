"""`DraftModelTrainer`: distil a draft from its target, on texts that the target itself writes.

Objective, loop and optimiser are those of `outdraft.training`, over rows in memory. Rows [B, T + 1] hold ids, and -1
after the end of a text that is shorter than the others: padding is in no loss, so a mean is a mean per token. For real
models use `outdraft train`.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from outdraft.drafters.draft_model.learn import DraftLearner
from outdraft.engine.callers.result import all_whole
from outdraft.engine.llm import LLM
from outdraft.learn.losses import LOSSES, Weighted
from outdraft.models.files.load import load_model, save_model
from outdraft.options.errors import ConfigError
from outdraft.options.near_miss import near_miss
from outdraft.options.params import SamplingParams
from outdraft.training.config import LoopConfig
from outdraft.training.draft import DraftObjective
from outdraft.training.lessons import Teacher
from outdraft.training.loop import Loop
from outdraft.training.packing import PackedRows
from tutorial.models import Model, directory_of

_HELD_OUT = 8  # one row of so many, unless the caller names which
_PADDING = -1  # no id


def _as_rows(ids: Tensor) -> PackedRows:
    """Rows [n, T + 1] of which some end early. What a position sees lies before it, so no text sees padding."""
    return PackedRows(ids=ids.clamp_min(0), documents=torch.zeros_like(ids), counts=ids[:, 1:] != _PADDING)


class _Rows:
    """Rows [n, T + 1] in memory as batches: step after step through all of them, then from the beginning."""

    def __init__(self, ids: Tensor, batch: int) -> None:
        self._ids, self._batch = ids, batch

    def rows(self, step: int, first: int, count: int, length: int) -> PackedRows:
        """The batch of a step; `length` is that of the rows."""
        start = step * self._batch + first
        return _as_rows(self._ids[torch.arange(start, start + count) % len(self._ids)])


class DraftModelTrainer:
    """Both models of one vocabulary, as directories. `loss`: forward_kl, reverse_kl, jensen_shannon, ..."""

    def __init__(
        self,
        target_model: Model,
        draft_model: Model,
        *,
        loss: str = "forward_kl",
        temperature: float = 1.0,
        learning_rate: float = 3e-3,
    ) -> None:
        if loss not in LOSSES:
            raise ConfigError(f"loss={loss!r} is unknown{near_miss(loss, list(LOSSES))}; known: {', '.join(LOSSES)}")
        if not temperature > 0:
            raise ConfigError(f"temperature={temperature:g}: must be above 0")
        where = directory_of(target_model)
        self.llm = LLM(where, drafter="none", dtype="float32")
        target = load_model(where, torch.float32)
        self.draft = load_model(directory_of(draft_model), torch.float32)
        if self.draft.config.vocab_size != target.config.vocab_size:
            raise ConfigError(
                f"{draft_model} has {self.draft.config.vocab_size} tokens, the target {target.config.vocab_size}: "
                "distillation needs one vocabulary"
            )
        learner, teacher = DraftLearner(self.draft, torch.float32), Teacher(target, ())
        self.objective = DraftObjective(learner, teacher, Weighted({loss: 1.0}), temperature=temperature)
        self.learning_rate = learning_rate
        self.acceptance: list[float] = []  # on held-out rows, of every training: before it, then after each epoch

    def sample_rows(self, prompts: Seq[Seq[int]], length: int, *, seed: int = 0) -> Tensor:
        """The target's own texts at temperature 1: ids [B, length + 1]; prompts are cut to one length."""
        start = min(len(prompt) for prompt in prompts)
        settings = [
            SamplingParams(max_tokens=length + 1 - start, temperature=1.0, seed=seed + i, ignore_eos=True)
            for i in range(len(prompts))
        ]
        cut = [{"prompt_token_ids": list(prompt[:start])} for prompt in prompts]
        results = all_whole(self.llm.generate(cut, settings))
        return torch.tensor([[*one.prompt_token_ids, *one.token_ids] for one in results])

    def train(self, rows: Tensor, held_out: Tensor, *, epochs: int = 3, batch: int = 8) -> list[float]:
        """Expected acceptance on `held_out` before training and after each epoch. Rows are ids [B, T + 1]."""
        rates = [self.evaluate(held_out)]
        steps, tokens = ceil(len(rows) / batch), batch * (rows.shape[1] - 1)
        config = LoopConfig(
            steps=epochs * steps,
            batch_tokens=tokens,
            micro_tokens=tokens,
            seq_len=rows.shape[1] - 1,
            warmup=0,
            lr=self.learning_rate,
            muon_lr=0,
            weight_decay=0.0,
            eval_every=epochs * steps + 1,
            save_every=epochs * steps + 1,
        )
        with TemporaryDirectory() as place:
            loop = Loop(self.objective, _Rows(rows, batch), config, Path(place), lambda line: None, listens=False)
            for epoch in range(1, epochs + 1):
                loop.run(until=epoch * steps)
                rates.append(self.evaluate(held_out))
        self.acceptance.extend(rates)
        return rates

    def distill_knowledge(
        self, batches: Iterable[Tensor | Mapping[str, Any]], num_epochs: int = 3, *, batch: int = 8
    ) -> list[float]:
        """`train` on ids as a data loader gives them: tensors [B, T], or mappings with "input_ids".

        Where there is an "attention_mask", what it leaves out is padding, on either side. Every eighth row is held out.
        Returns what `train` returns. Raises `ConfigError` for fewer than eight rows, and for a row or mask of no text.
        """
        found = [row for one in batches for row in _texts(one)]
        if len(found) < _HELD_OUT:
            raise ConfigError(f"{len(found)} rows: give at least {_HELD_OUT}, of which one is held out")
        rows = pad_sequence(found, batch_first=True, padding_value=_PADDING)
        held = torch.arange(len(rows)) % _HELD_OUT == _HELD_OUT - 1
        return self.train(rows[~held], rows[held], epochs=num_epochs, batch=batch)

    @torch.no_grad()
    def evaluate(self, rows: Tensor) -> float:
        """Expected acceptance of a drafted token: the mean of sum(min(p, q))."""
        return float(self.objective.loss(_as_rows(rows))[1])

    def save(self, directory: str | Path) -> None:
        """The draft, as a model directory (without a tokenizer: it is the target's)."""
        save_model(self.draft, Path(directory))


def _texts(batch: Tensor | Mapping[str, Any]) -> list[Tensor]:
    """The rows of a batch, each without its padding."""
    ids, mask = (batch, None) if isinstance(batch, Tensor) else (batch["input_ids"], batch.get("attention_mask"))
    if ids.dim() != 2:
        raise ConfigError(f"ids of shape {tuple(ids.shape)}: a batch is [B, T], a row for each text")
    if mask is None:
        mask = torch.ones_like(ids)
    elif mask.shape != ids.shape:
        raise ConfigError(
            f"attention_mask of shape {tuple(mask.shape)}: ids of shape {tuple(ids.shape)} need their own"
        )
    real = mask == 1
    begins = real.long().diff(dim=1, prepend=torch.zeros_like(ids[:, :1])) == 1
    if bool((~real & (mask != 0)).any()) or bool((begins.sum(1) > 1).any()):
        raise ConfigError("attention_mask has other numbers than 0 and 1, or a gap inside a text: mask padding only")
    rows = [row[kept] for row, kept in zip(ids, real, strict=True)]
    for i, row in enumerate(rows):
        if len(row) < 2 or int(row.min()) < 0:
            raise ConfigError(
                f"row {i} of a batch has {len(row)} ids, {int((row < 0).sum())} below 0: a text has at least 2, all "
                "at least 0; mask padding, and leave shorter texts out"
            )
    return rows
