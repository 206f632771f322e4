"""A target that learns by low-rank changes, beside the original, which stays: its passes, its own loss, its files.

    original   W                    frozen; its states are the lesson's
    changed    W + (alpha/rank) BA  the same parameters, shared; only A and B learn

What is written is the changes alone, and the whole changed target: nothing is ever changed in place.
"""

from collections.abc import Collection
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from outdraft.core.learner import TARGET, Lesson
from outdraft.models.files.load import save_model
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.network import RunOutput
from outdraft.models.remake.lora import Lora, changed, merged, save_lora
from outdraft.nn.packed import PackedContext

_CHUNK = 1 << 22  # logits that are made at once
_KEPT = 8  # chunks of them that are kept for the gradient; of more each is made again


class TaughtTarget:
    """The original, its low-rank changes, and the network of both."""

    def __init__(self, original: Decoder, lora: Lora) -> None:
        self.original, self.lora = original, lora
        self.network = changed(original, lora)

    def run(self, lesson: Lesson, context: PackedContext | None = None, taps: Collection[int] = ()) -> RunOutput:
        """The changed target over the texts; final states [B * T, D] are not normed. `context`: one that keeps keys."""
        batch, length = lesson.shape
        context = context or PackedContext(batch, length, lesson.documents[:, :-1])
        read, network = lesson.ids[:, :-1].flatten(), self.network
        return network.run(network.embed(read, lesson.positions), lesson.positions, context, taps=taps)

    def losses(self, own: Tensor, original: Tensor, tokens: Tensor | None) -> Tensor:
        """The loss of states [n, D] through the shared norm and head, in nats [n].

        The divergence from what states `original` [n, D] distribute; or, with `tokens` [n], the nats of these.
        """

        def judge(own: Tensor, theirs: Tensor) -> Tensor:
            log_q = self.original.logits(own).float().log_softmax(-1)
            if tokens is not None:
                return -log_q.gather(-1, theirs[:, None])[:, 0]
            with torch.no_grad():
                log_p = self.original.logits(theirs).float().log_softmax(-1)
            return (log_p.exp() * (log_p - log_q)).sum(-1)

        size, values = self.rows_at_once, [own[:0].sum(-1).float()]
        again = len(own) > size * _KEPT and torch.is_grad_enabled()
        parts = (torch.split(x, size) for x in (own, original if tokens is None else tokens))  # type: ignore[no-untyped-call]
        for mine, theirs in zip(*parts, strict=True):
            values.append(checkpoint(judge, mine, theirs, use_reentrant=False) if again else judge(mine, theirs))
        return torch.cat(values)

    @torch.no_grad()
    def best(self, states: Tensor) -> Tensor:
        """The likeliest token behind each state: [n, D] -> [n]."""
        parts = states.split(self.rows_at_once)  # type: ignore[no-untyped-call]
        return torch.cat([self.original.logits(part).argmax(-1) for part in parts])

    @property
    def rows_at_once(self) -> int:
        """Whose logits are made together."""
        return max(1, _CHUNK // self.original.config.vocab_size)

    def save(self, directory: Path) -> None:
        """The changes alone, and the changed target in a folder of its own."""
        save_lora(self.lora, self.original, directory)
        save_model(merged(self.original, self.lora), directory / TARGET)
