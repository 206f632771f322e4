"""Train EAGLE's network on a frozen target, on its own outputs too (training-time test).

Li et al., "EAGLE-3", 2025, https://arxiv.org/abs/2503.01840.

    step 0   pair i reads the true feature f_i                      token i + 1     predicts token i + 2
    step s   pair i reads g of pair i - 1 of step s - 1             the same        the same

so step s sees what the network sees when it drafts the (s+1)-th token: true features up to i - s, its own after. Loss:
soft cross-entropy to the target's distribution, weight decay^s. Data in: rows [B, T + 1]; the last id is not used.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from outdraft.drafters.eagle.net import EagleConfig, EagleNet
from outdraft.models.base import Decoder
from outdraft.training.attention import TrainingContext
from outdraft.training.losses import acceptance, forward_kl


@dataclass(frozen=True, slots=True, kw_only=True)
class EagleTraining:
    """The recipe's [task] table."""

    taps: tuple[int, ...]
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    num_steps: int = 4  # unrolled steps
    decay: float = 0.8  # weight of a step against the one before
    samples_share: float = 0.5
    init: bool = False


class UnrolledContext:
    """Attention of step s: keys of step 0 up to pair i - s, then one key of each later step, up to pair i itself."""

    def __init__(self, batch: int, length: int) -> None:
        self.batch, self.length = batch, length
        self.bulk = ((0, batch * length),)
        self.keys: list[Tensor] = []  # of each step [B, H, T, d]
        self.values: list[Tensor] = []

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, window: int | None, scale: float) -> Tensor:
        """q [N, H, d], k and v [N, Hkv, d] of the next step -> [N, H * d]."""
        group, width = q.shape[1] // k.shape[1], q.shape[-1]
        q, k, v = (x.reshape(self.batch, self.length, -1, width).transpose(1, 2) for x in (q, k, v))
        self.keys.append(k.repeat_interleave(group, 1))
        self.values.append(v.repeat_interleave(group, 1))
        step = len(self.keys) - 1
        row = torch.arange(self.length)
        seen = row[None, :] <= row[:, None] - step  # [T, T]
        scores = torch.matmul(q, self.keys[0].transpose(-1, -2)).float() * scale
        columns = [scores.masked_fill(~seen, float("-inf"))]
        for r in range(1, step + 1):
            score = (q.float() * _later(self.keys[r], step - r).float()).sum(-1, keepdim=True) * scale
            columns.append(score.masked_fill((row < step - r)[:, None], float("-inf")))
        weights = torch.cat(columns, -1).softmax(-1).to(q.dtype)  # [B, H, T, T + s]
        out = torch.matmul(weights[..., : self.length], self.values[0])
        for r in range(1, step + 1):
            out = out + weights[..., self.length + r - 1, None] * _later(self.values[r], step - r)
        return out.transpose(1, 2).flatten(2).flatten(0, 1)

    def spans(self) -> None:
        """Rows are asked for layer by layer."""


def _later(x: Tensor, by: int) -> Tensor:
    """Row i of the result is row i - by: x [B, H, T, d]; the first rows are zero."""
    return x if by == 0 else F.pad(x, (0, 0, by, 0))[:, :, : x.shape[2]]


def new_eagle(options: EagleTraining, target: Decoder, seed: int) -> EagleNet:
    """A fresh network in the target's type; its last norm starts as the target's."""
    config = EagleConfig(
        taps=tuple(options.taps),
        hidden_size=target.config.hidden_size,
        vocab_size=target.config.vocab_size,
        num_heads=options.num_heads,
        num_kv_heads=options.num_kv_heads,
        head_dim=options.head_dim,
        intermediate_size=options.intermediate_size,
        max_len=target.config.max_len,
        norm_eps=target.config.norm_eps,
    )
    net = EagleNet(config, target, target.embedding.dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.dim() == 1:
                parameter.fill_(1)
            else:
                noise = torch.randn(parameter.shape, generator=generator) * parameter.shape[1] ** -0.5
                parameter.copy_(noise)
        own, theirs = net.norm.weight, target.final_norm.weight
        own.copy_(theirs)  # type: ignore[arg-type]
    return net


class Eagle:
    """An EAGLE network under a frozen target."""

    def __init__(self, net: EagleNet, target: Decoder, options: EagleTraining) -> None:
        self.module = net
        self.target = target.requires_grad_(False)
        self.num_steps, self.decay = options.num_steps, options.decay

    def loss(self, rows: Tensor) -> Tensor:
        """[B, T + 1] -> [1 + steps]: the loss, then the acceptance at each step."""
        ids = rows[:, :-1]
        batch, length = ids.shape
        net, target, taps = self.module, self.target, self.module.config.taps
        with torch.no_grad():
            places = torch.arange(length).repeat(batch)
            embedded = target.embed(ids.flatten(), places)
            out = target.run(embedded, places, TrainingContext(batch, length), taps=taps)
            p = target.logits(out.hidden).view(batch, length, -1)[:, 1:]  # distribution of token i + 2 at pair i
        pairs = length - 1

        def of_pairs(x: Tensor, first: int) -> Tensor:  # rows first..first+pairs of each sequence: [B * pairs, D]
            return x.view(batch, length, -1)[:, first : first + pairs].reshape(batch * pairs, -1)

        positions = torch.arange(pairs).repeat(batch)
        tokens = of_pairs(embedded, 1)
        f = net.fuse([of_pairs(out.taps[t], 0) for t in taps])
        true = f.view(batch, pairs, -1)
        ctx = UnrolledContext(batch, pairs)
        total, weight, rates = torch.zeros(()), 0.0, []
        for step in range(self.num_steps):
            g = net.run(tokens, f, positions, ctx)
            q = net.logits(g).view(batch, pairs, -1)
            own, distribution = q[:, step:].flatten(0, 1), p[:, step:].flatten(0, 1)
            total = total + self.decay**step * forward_kl(distribution, own)
            weight += self.decay**step
            with torch.no_grad():
                rates.append(acceptance(distribution, own))
            shifted = torch.cat((true[:, :1], g.view(batch, pairs, -1)[:, :-1]), 1)
            f = shifted.flatten(0, 1)
        return torch.stack([total / weight, *rates])
