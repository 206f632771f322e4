"""Decoder layers between the target's last states and the heads: each row sees the rows of its text before it.

    h_0 .. h_i -- (join with the embedding of token i + 1) -- block --> ... --> g_i    the heads read g_i for h_i

One layer without embeddings is Hydra++'s prefix layer (Ankner et al. 2024, https://arxiv.org/abs/2402.05109); two, the
second of which is given the pending token, are the staged adaptation layers of Amphista (Li et al. 2024,
https://arxiv.org/abs/2406.13170). Untrained a stem changes nothing: what a block adds begins as zeros.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from outdraft.drafters.shared.heads.config import HeadConfig
from outdraft.models.networks.block import Block
from outdraft.models.networks.config import ModelConfig, llama_config
from outdraft.nn.context import AttentionContext
from outdraft.nn.linear import Linear
from outdraft.nn.norm import RMSNorm
from outdraft.nn.rope import Rope
from outdraft.options.errors import ModelLoadError


@dataclass(frozen=True, slots=True, kw_only=True)
class StemConfig(HeadConfig):
    """Heads that may have layers below them; `num_stem_layers` 0: they have none, and the sizes say nothing."""

    num_stem_layers: int = 0
    stem_heads: int = 0
    stem_kv_heads: int = 0
    stem_head_dim: int = 0
    stem_inner: int = 0  # width of the feed-forward part
    stem_rope_theta: float = 10000.0
    stem_norm_eps: float = 1e-5
    stem_norm: bool = False  # behind the last layer, as published prefix layers have it


def stem_sizes(target: ModelConfig, num_layers: int) -> dict[str, Any]:
    """The fields of `StemConfig` for layers of the target's own shape."""
    return {
        "num_stem_layers": num_layers, "stem_heads": target.num_heads, "stem_kv_heads": target.num_kv_heads,
        "stem_head_dim": target.head_dim, "stem_inner": target.intermediate_size, "stem_norm_eps": target.norm_eps,
        "stem_rope_theta": target.rope.theta if target.rope is not None else 10000.0,
    } if num_layers else {}  # fmt: skip


def shape_of(config: StemConfig) -> ModelConfig:
    """Of a block of these sizes. Raises `ModelLoadError` for sizes that cannot be."""
    heads, kv_heads = config.stem_heads, config.stem_kv_heads
    if min(heads, kv_heads, config.stem_head_dim, config.stem_inner) < 1 or heads % kv_heads:
        raise ModelLoadError(
            f"layers below heads with stem_heads={heads}, stem_kv_heads={kv_heads}, "
            f"stem_head_dim={config.stem_head_dim}, stem_inner={config.stem_inner} are impossible: every size is at "
            "least 1, and stem_heads a multiple of stem_kv_heads"
        )
    return llama_config(
        vocab_size=config.vocab_size, hidden_size=config.hidden_size, num_layers=max(1, config.num_stem_layers),
        num_heads=heads, num_kv_heads=kv_heads, head_dim=config.stem_head_dim,
        intermediate_size=config.stem_inner, rope_theta=config.stem_rope_theta, norm_eps=config.stem_norm_eps,
    )  # fmt: skip


class Join(nn.Module):
    """x + W cat(norm(x), norm(e)): states and embeddings [N, D] -> [N, D]."""

    def __init__(self, width: int, eps: float, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.state_norm = RMSNorm(width, eps, dtype, device)
        self.token_norm = RMSNorm(width, eps, dtype, device)
        self.linear = Linear(2 * width, width, False, dtype, device)

    def forward(self, x: Tensor, embeds: Tensor) -> Tensor:
        out: Tensor = x + self.linear(torch.cat((self.state_norm(x), self.token_norm(embeds.to(x.dtype))), -1))
        return out


class Stem(nn.Module):
    """The layers. `told`: those that read the embedding of the token behind each row."""

    def __init__(
        self, config: StemConfig, dtype: torch.dtype, device: torch.device, *, told: Collection[int] = ()
    ) -> None:
        super().__init__()
        shape = shape_of(config)
        assert shape.rope is not None
        self.exact = False  # True: no row's bits depend on the rows beside it (inference)
        self.blocks = nn.ModuleList(Block(shape, i, dtype, device) for i in range(config.num_stem_layers))
        self.joins = nn.ModuleDict(
            {str(i): Join(config.hidden_size, config.stem_norm_eps, dtype, device) for i in sorted(told)}
        )
        self.norm = RMSNorm(config.hidden_size, config.stem_norm_eps, dtype, device) if config.stem_norm else None
        self.rope = Rope(shape.rope)

    @property
    def reads_tokens(self) -> bool:
        """Whether it wants embeddings."""
        return len(self.joins) > 0

    @property
    def dtype(self) -> torch.dtype:
        """The number format of its weights, in which it computes."""
        return next(self.parameters()).dtype

    def forward(self, h: Tensor, embeds: Tensor | None, positions: Tensor, ctx: AttentionContext) -> Tensor:
        """States [N, D] at `positions` [N], and embeddings [N, D] of the token behind each -> [N, D]."""
        h = h.to(self.dtype)
        rotation = self.rope.at(positions, h.dtype)
        for i, block in enumerate(self.blocks):
            if str(i) in self.joins:
                assert embeds is not None
                h = self.joins[str(i)](h, embeds)
            h = block(h, rotation, ctx, self.exact)[0]
        out: Tensor = h if self.norm is None else self.norm(h)
        return out


@torch.no_grad()
def begin_stem(stem: Stem, seed: int) -> None:
    """In place: norms of ones; what is added to a state begins as zeros, everything before it as noise."""
    generator = torch.Generator().manual_seed(seed)
    for block in stem.blocks:
        begin_block(block, generator)
    for parameter in stem.joins.parameters():
        parameter.fill_(1 if parameter.dim() == 1 else 0)


@torch.no_grad()
def begin_block(block: nn.Module, generator: torch.Generator) -> None:
    """In place: the same for one block."""
    for name, parameter in block.named_parameters():
        if parameter.dim() == 1:
            parameter.fill_(1)
        elif name.split(".")[0] in ("qkv", "up"):
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * parameter.shape[1] ** -0.5)
        else:
            parameter.zero_()
