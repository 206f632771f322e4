"""Texts that the target itself writes, for the drafters to learn from: what they will be asked to continue.

    prompts (windows of the training corpus, all of one length) -> batched sampling with a key/value cache -> one stream

Data out: ids [num * length], uint16.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from outdraft.models.base import Decoder
from outdraft.training.data import Ids, Sampler


@dataclass(frozen=True, slots=True, kw_only=True)
class HarvestOptions:
    """The recipe's [task] table."""

    num_texts: int = 2048
    num_valid: int = 64
    length: int = 257  # one more than a training sequence
    prompt_len: int = 33
    batch: int = 64
    temperatures: tuple[float, ...] = (1.0, 0.7)  # one after the other, batch by batch


class LockstepContext:
    """A cache for sequences that all have the same length and grow together."""

    def __init__(self, batch: int, num_layers: int) -> None:
        self.batch = batch
        self.bulk: tuple[tuple[int, int], ...] = ()
        self.keys: list[Tensor | None] = [None] * num_layers  # [B, Hkv, T, d]
        self.values: list[Tensor | None] = [None] * num_layers

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, window: int | None, scale: float) -> Tensor:
        """q [N, H, d], k and v [N, Hkv, d]: N / batch new rows of every sequence -> [N, H * d]."""
        q, k, v = (x.reshape(self.batch, -1, x.shape[1], x.shape[2]).transpose(1, 2) for x in (q, k, v))
        past_k, past_v = self.keys[layer], self.values[layer]
        k = k if past_k is None else torch.cat((past_k, k), 2)
        v = v if past_v is None else torch.cat((past_v, v), 2)
        self.keys[layer], self.values[layer] = k, v
        out = F.scaled_dot_product_attention(q, k, v, is_causal=past_k is None, scale=scale, enable_gqa=True)
        return out.transpose(1, 2).flatten(2).flatten(0, 1)

    def spans(self) -> None:
        """Rows are asked for layer by layer."""


@torch.no_grad()
def sample_batch(decoder: Decoder, prompts: Tensor, length: int, temperature: float, seed: int) -> Tensor:
    """prompts [B, P] -> [B, length], the prompts included."""
    batch = prompts.shape[0]
    generator = torch.Generator().manual_seed(seed)
    ctx = LockstepContext(batch, decoder.config.num_layers)
    texts, new, first = prompts, prompts, 0
    while texts.shape[1] < length:
        positions = torch.arange(first, texts.shape[1]).repeat(batch)
        hidden = decoder.run(decoder.embed(new.flatten(), positions), positions, ctx).hidden
        last = hidden.view(batch, -1, hidden.shape[-1])[:, -1]  # [B, D]
        p = F.softmax(decoder.logits(last).float() / temperature, -1)
        new = torch.multinomial(p, 1, generator=generator)  # [B, 1]
        first = texts.shape[1]
        texts = torch.cat((texts, new), 1)
    return texts


def harvest(
    decoder: Decoder, sampler: Sampler, num: int, options: HarvestOptions, report: Callable[[str], None]
) -> Ids:
    """About `num` texts as one stream."""
    done = []
    batches = max(2, num // options.batch)
    for i in range(batches):
        prompts = sampler.rows(i, 0, options.batch, options.prompt_len)
        temperature = options.temperatures[i % len(options.temperatures)]
        texts = sample_batch(decoder, prompts, options.length, temperature, sampler.seed + i)
        done.append(texts.flatten().numpy().astype(np.uint16))
        if i % 10 == 9:
            report(f"harvested {i + 1} of {batches} batches")
    return np.concatenate(done)
