"""`DraftModelTrainer`: distil a draft from its target, on texts that the target itself writes.

Losses and acceptance are those of `outdraft.training`; rows have one length, so nothing is padded and a mean is a mean
per token. At a temperature T other than 1 the loss is multiplied by T^2, which keeps its gradients' size. For real
models use the recipes of `python -m outdraft.training`: this one is for models that fit a tutorial.
"""

from collections.abc import Sequence as Seq
from pathlib import Path

import torch
from torch import Tensor

from outdraft.core.errors import ConfigError
from outdraft.core.params import SamplingParams
from outdraft.core.registry import near_miss
from outdraft.engine.llm import LLM
from outdraft.models.load import load_model, save_model
from outdraft.training.losses import LOSSES, acceptance
from outdraft.training.pretrain import hidden_states


class DraftModelTrainer:
    """Both models of one vocabulary, as directories. `loss`: forward_kl, reverse_kl, jensen_shannon, ..."""

    def __init__(
        self,
        target_model: str | Path,
        draft_model: str | Path,
        *,
        loss: str = "forward_kl",
        temperature: float = 1.0,
        learning_rate: float = 3e-3,
    ) -> None:
        if loss not in LOSSES:
            raise ConfigError(f"loss={loss!r} is unknown{near_miss(loss, list(LOSSES))}; known: {', '.join(LOSSES)}")
        if temperature <= 0:
            raise ConfigError(f"temperature={temperature:g}: must be above 0")
        self.llm = LLM(target_model, dtype="float32")
        self.target = load_model(Path(target_model), torch.float32).requires_grad_(False)
        self.draft = load_model(Path(draft_model), torch.float32).train().requires_grad_(True)
        if self.draft.config.vocab_size != self.target.config.vocab_size:
            raise ConfigError(
                f"{draft_model} has {self.draft.config.vocab_size} tokens, the target "
                f"{self.target.config.vocab_size}: distillation needs one vocabulary"
            )
        self.distance, self.temperature = LOSSES[loss], temperature
        self.optimizer = torch.optim.AdamW(self.draft.parameters(), lr=learning_rate, weight_decay=0.0)
        self.acceptance: list[float] = []  # on held-out rows: before training, then after each epoch

    def sample_rows(self, prompts: Seq[Seq[int]], length: int, *, seed: int = 0) -> Tensor:
        """The target's own texts at temperature 1: ids [B, length + 1]; prompts are cut to one length."""
        start = min(len(prompt) for prompt in prompts)
        settings = [
            SamplingParams(max_tokens=length + 1 - start, temperature=1.0, seed=seed + i, ignore_eos=True)
            for i in range(len(prompts))
        ]
        cut = [{"prompt_token_ids": list(prompt[:start])} for prompt in prompts]
        results = self.llm.generate(cut, settings)
        return torch.tensor([[*one.prompt_token_ids, *one.token_ids] for one in results])

    def train(self, rows: Tensor, held_out: Tensor, *, epochs: int = 3, batch: int = 8) -> list[float]:
        """Expected acceptance on `held_out` before training and after each epoch. Rows are ids [B, T + 1]."""
        self.acceptance.append(self.evaluate(held_out))
        for _ in range(epochs):
            for part in rows.split(batch):  # type: ignore[no-untyped-call]
                self.step(part)
            self.acceptance.append(self.evaluate(held_out))
        return self.acceptance

    def step(self, rows: Tensor) -> float:
        """One update on ids [B, T + 1]; the loss before it, in nats a token."""
        p, q = self._logits(rows)
        t = self.temperature
        loss = self.distance(p / t, q / t) * t * t
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return float(loss.detach())

    @torch.no_grad()
    def evaluate(self, rows: Tensor) -> float:
        """Expected acceptance of a drafted token: the mean of sum(min(p, q))."""
        return float(acceptance(*self._logits(rows)))

    def save(self, directory: str | Path) -> None:
        """The draft, as a model directory (without a tokenizer: it is the target's)."""
        save_model(self.draft, Path(directory))

    def _logits(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        ids = rows[:, :-1]
        with torch.no_grad():
            p = self.target.logits(hidden_states(self.target, ids))
        return p, self.draft.logits(hidden_states(self.draft, ids))
