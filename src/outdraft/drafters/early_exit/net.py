"""The exit head: what turns the hidden state after layer E into one that the target's final norm and head understand.

    h_E --+-- norm -- up -- silu -- down --(+)--> decoder.logits
          +--------------------------------+

A residual of two small matrices, near zero at first: the untrained head is the plain early exit of LayerSkip (Elhoushi
et al. 2024, https://arxiv.org/abs/2404.16710). It keeps no memory of its own. Data: [N, D] -> [N, D].
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outdraft.kernels.decoder.entrance import ResidualBlock
from outdraft.models.files.head_files import load_head, save_head
from outdraft.models.networks.guess import NativeGuesser, guess_with
from outdraft.models.networks.native import NativeDecoder, norm_of
from outdraft.models.networks.packable import weight_of
from outdraft.nn.activation import rowwise
from outdraft.nn.linear import Linear
from outdraft.nn.norm import RMSNorm

MODEL_TYPE = "outdraft_early_exit"


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyExitConfig:
    """Where it exits and how wide it is."""

    exit_layer: int  # E: it reads the hidden state after layers 0..E-1
    hidden_size: int
    inner_size: int
    norm_eps: float = 1e-5


class EarlyExitHead(nn.Module):
    """h + down(silu(up(norm(h))))."""

    def __init__(
        self, config: EarlyExitConfig, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__()
        device = torch.device(device)
        self.config = config
        self.norm = RMSNorm(config.hidden_size, config.norm_eps, dtype, device)
        self.up = Linear(config.hidden_size, config.inner_size, False, dtype, device)
        self.down = Linear(config.inner_size, config.hidden_size, False, dtype, device)

    def forward(self, h: Tensor) -> Tensor:
        """Hidden states after layer E, [N, D] -> features for the target's `logits`, [N, D]."""
        own = h.to(self.up.weight.dtype)  # native kernels hand over float32
        out: Tensor = h + self.down(rowwise(F.silu, self.up(self.norm(own))))
        return out


def pack_guesser(target: NativeDecoder, head: EarlyExitHead | None, exit_layer: int) -> NativeGuesser:
    """The target's first layers, this head (None: as it is), the target's norm and head: on the native kernels."""
    if head is None:
        return guess_with(target, num_layers=exit_layer)
    residual = ResidualBlock(up=weight_of(head.up), down=weight_of(head.down), norm=norm_of(head.norm))
    return guess_with(target, num_layers=exit_layer, exit=residual, eps=head.config.norm_eps)


def save_exit_head(head: EarlyExitHead, directory: Path, dtype: torch.dtype | None = None) -> None:
    """config.json and model.safetensors."""
    save_head(head, head.config, directory, model_type=MODEL_TYPE, dtype=dtype)


def load_exit_head(
    directory: Path, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> EarlyExitHead:
    """The head in `directory`; raises `ModelLoadError` if it is another kind of model."""
    return load_head(
        directory,
        EarlyExitConfig,
        lambda config, at: EarlyExitHead(config, dtype, at or device),
        model_type=MODEL_TYPE,
        what="exit head",
    )
