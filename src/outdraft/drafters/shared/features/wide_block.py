"""The first layer of EAGLE-3: attention over embedding and feature side by side, the residual over the feature alone.

    e -- input norm --+
                      cat [N, 2 D] -- q, k, v -- attention --(+)--+-- norm -- mlp --(+)-- g
    f -- hidden norm -+                                       |   +-----------------+
      +-------------------------------------------------------+     (`normed`: what the hidden norm made of it)

Li et al., "EAGLE-3", 2025, https://arxiv.org/abs/2503.01840.
"""

import torch
from torch import Tensor

from outdraft.models.networks.block import Block, make_linear, make_norm
from outdraft.models.networks.config import ModelConfig
from outdraft.nn.context import AttentionContext
from outdraft.nn.rope import Rotation


class WideBlock(Block):
    """Layer 0. `normed`: whether the residual is the normed feature (`norm_before_residual`)."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device, *, normed: bool) -> None:
        super().__init__(config, 0, dtype, device)
        width, heads = config.hidden_size, config.num_heads + 2 * config.num_kv_heads
        self.hidden_norm = make_norm(config, width, dtype, device)
        self.qkv = make_linear(
            config, "layers.0.qkv", 2 * width, heads * config.head_dim, config.qkv_bias, dtype, device
        )
        self.normed = normed

    def join(self, e: Tensor, f: Tensor, rotation: Rotation | None, ctx: AttentionContext, exact: bool) -> Tensor:
        """Embeddings and features [N, D] -> [N, D]."""
        told = self.hidden_norm(f)
        mixed = self._attention(torch.cat((self.attn_norm(e), told), -1), rotation, ctx)
        middle = (told if self.normed else f) + mixed
        out: Tensor = middle + self._mlp(self.mlp_norm(middle), ctx, exact)
        return out
