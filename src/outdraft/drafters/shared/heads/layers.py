"""Layers that heads are made of: residuals, a stem below the heads, and slots that see each other.

    residual   x + silu(W x + b), Cai et al., "Medusa", 2024, https://arxiv.org/abs/2401.10774
    stem       h_0 .. h_i -- (join with the embedding of token i + 1) -- block --> ... --> g_i     heads read g_i
    slots      g --+-- x + silu(W x + b) --(+ slot 0)--+                         +-- slot 0
                   +-- ...               --(+ slot 1)--+-- one attention block --+-- slot 1
                   +-- ...               --(+ slot 2)--+    over the K slots     +-- slot 2

A stem of one layer without embeddings is Hydra++'s prefix layer (Ankner et al. 2024, https://arxiv.org/abs/2402.05109);
of two, the second of which reads the pending token, the staged adaptation layers of Amphista (Li et al. 2024,
https://arxiv.org/abs/2406.13170), whose auto-embedding block the slots are. Untrained none changes anything: what a
block adds begins as zeros, and every slot is the state itself. Data: [N, D] -> [N, D], slots [N, K, D].
"""

from collections.abc import Collection
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outdraft.drafters.shared.heads.config import StemConfig
from outdraft.models.networks.block import Block
from outdraft.models.networks.config import ModelConfig, llama_config
from outdraft.nn.activation import rowwise
from outdraft.nn.context import AttentionContext
from outdraft.nn.linear import Linear, RowRange
from outdraft.nn.norm import RMSNorm
from outdraft.nn.rope import Rope
from outdraft.options.errors import ModelLoadError


class ResidualLayer(nn.Module):
    """x + silu(W x + b): [N, D] -> [N, D]."""

    def __init__(self, width: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.linear = Linear(width, width, True, dtype, device)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + rowwise(F.silu, self.linear(x))
        return out


def residuals(count: int, width: int, dtype: torch.dtype, device: torch.device) -> nn.Sequential:
    """So many, one after the other; each is a module of its own."""
    return nn.Sequential(*(ResidualLayer(width, dtype, device) for _ in range(count)))


def stem_sizes(target: ModelConfig, num_layers: int) -> dict[str, Any]:
    """The fields of `StemConfig` for layers of the target's own shape."""
    if not num_layers:
        return {}
    return {
        "num_stem_layers": num_layers,
        "stem_heads": target.num_heads,
        "stem_kv_heads": target.num_kv_heads,
        "stem_head_dim": target.head_dim,
        "stem_inner": target.intermediate_size,
        "stem_norm_eps": target.norm_eps,
        "stem_rope_theta": target.rope.theta if target.rope is not None else 10000.0,
    }


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
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_layers=max(1, config.num_stem_layers),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=config.stem_head_dim,
        intermediate_size=config.stem_inner,
        rope_theta=config.stem_rope_theta,
        norm_eps=config.stem_norm_eps,
    )


class TokenJoin(nn.Module):
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
            {str(i): TokenJoin(config.hidden_size, config.stem_norm_eps, dtype, device) for i in sorted(told)}
        )
        self.norm = RMSNorm(config.hidden_size, config.stem_norm_eps, dtype, device) if config.stem_norm else None
        self.rope = Rope(shape.rope)

    @property
    def reads_tokens(self) -> bool:
        """Whether it wants embeddings."""
        return len(self.joins) > 0

    def forward(self, h: Tensor, embeds: Tensor | None, positions: Tensor, ctx: AttentionContext) -> Tensor:
        """States [N, D] at `positions` [N], and embeddings [N, D] of the token behind each -> [N, D]."""
        h = h.to(next(self.parameters()).dtype)
        rotation = self.rope.at(positions, h.dtype)
        for i, block in enumerate(self.blocks):
            if str(i) in self.joins:
                assert embeds is not None
                h = self.joins[str(i)](h, embeds)
            h = block(h, rotation, ctx, self.exact)[0]
        out: Tensor = h if self.norm is None else self.norm(h)
        return out

    @torch.no_grad()
    def begin(self, seed: int) -> None:
        """In place: norms of ones; what is added to a state begins as zeros, everything before it as noise."""
        generator = torch.Generator().manual_seed(seed)
        for block in self.blocks:
            begin_block(block, generator)
        for parameter in self.joins.parameters():
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


class SlotContext:
    """Attention among the `count` slots of each state: rows N * K, state-major. `alone`: a slot sees itself only."""

    def __init__(self, count: int, *, alone: bool, exact: bool) -> None:
        self.bulk: tuple[RowRange, ...] = ()
        self._count, self._alone, self._exact = count, alone, exact

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, window: int | None, scale: float, cap: float | None = None
    ) -> Tensor:
        """q [N * K, H, d], k and v [N * K, Hkv, d] -> [N * K, H * d]; `cap` and `window` are not for slots."""
        heads, width = q.shape[1:]
        group = heads // k.shape[1]
        if self._alone:
            return v.repeat_interleave(group, 1).flatten(1)
        q, k, v = (x.reshape(-1, self._count, x.shape[1], width).transpose(1, 2) for x in (q, k.to(q), v.to(q)))
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)  # [N, H, K, d]
        one = 1 if self._exact else max(1, len(q))  # each state by itself: no bits depend on the states beside it
        parts = [
            F.scaled_dot_product_attention(q[i : i + one], k[i : i + one], v[i : i + one], scale=scale)
            for i in range(0, max(1, len(q)), one)
        ]
        return torch.cat(parts).transpose(1, 2).reshape(-1, heads * width)

    def spans(self) -> None:
        """There is no cache to run over."""


class GuessSlots(nn.Module):
    """`count` slots of a state. `bidirectional`: they see each other; else each sees itself alone, with as many
    parameters."""

    def __init__(
        self, config: StemConfig, count: int, dtype: torch.dtype, device: torch.device, *, bidirectional: bool
    ) -> None:
        super().__init__()
        width = config.hidden_size
        self.exact = False  # True: no state's bits depend on the states beside it (inference)
        self._alone = not bidirectional
        self.layers = nn.ModuleList(residuals(1, width, dtype, device) for _ in range(count))
        self.places = nn.Parameter(torch.full((count, width), float("nan"), dtype=dtype, device=device))
        self.block = Block(shape_of(config), 0, dtype, device)

    def forward(self, g: Tensor) -> Tensor:
        """[N, D] -> [N, K, D]."""
        g = g.to(self.places.dtype)
        count = len(self.layers)
        slots = torch.stack([layer(g) for layer in self.layers], 1) + self.places  # [N, K, D]
        context = SlotContext(count, alone=self._alone, exact=self.exact)
        out: Tensor = self.block(slots.flatten(0, 1), None, context, self.exact)[0]
        return out.view(len(g), count, -1)

    @torch.no_grad()
    def begin(self, seed: int) -> None:
        """In place: every slot is the state itself."""
        for parameter in self.parameters():
            parameter.zero_()
        begin_block(self.block, torch.Generator().manual_seed(seed))
