"""Next-token training of a decoder, from nothing or from where it stands: the zoo's target, and any like it.

Data in: rows [B, T + 1] of ids. Data out: mean cross-entropy in nats per token. Passes compute in bfloat16 under
autocast where the CPU has instructions for it (`computing.py`); weights and loss are float32.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lab.zoo.compilable import make_compilable
from lab.zoo.recipe import require_keys
from lab.zoo.tokenizer import END_ID
from outdraft.models.files.load import load_model
from outdraft.models.networks.base import Decoder, initialise
from outdraft.models.networks.config import llama_config
from outdraft.nn.packed import PackedContext

_OURS = ("bos_id", "eos_ids")  # of a model's shape: the tokenizer's


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainOptions:
    """The recipe's [task] table."""

    init: bool = False  # go on from the weights already in OUT/<name>


def trainable(directory: Path, dtype: torch.dtype = torch.float32) -> Decoder:
    """The decoder in a directory, with gradients."""
    decoder = load_model(directory, dtype).train().requires_grad_(True)
    make_compilable(decoder, decoder.config.max_len, dtype)
    return decoder


def new_decoder(shape: Mapping[str, Any], seed: int, dtype: torch.dtype = torch.float32) -> Decoder:
    """A fresh decoder of the recipe's [model] table. Raises `ConfigError` for its unknown and missing keys."""
    asked = {key: one.default is Parameter.empty for key, one in signature(llama_config).parameters.items()}
    require_keys(shape, {key: needed for key, needed in asked.items() if key not in _OURS}, "[model]")
    config = llama_config(**shape, bos_id=END_ID, eos_ids=(END_ID,))
    decoder = initialise(Decoder(config), seed).to(dtype)
    make_compilable(decoder, config.max_len, dtype)
    return decoder


def hidden_states(decoder: Decoder, ids: Tensor) -> Tensor:
    """ids [B, T] -> last hidden states [B * T, D]."""
    batch, length = ids.shape
    positions = torch.arange(length).repeat(batch)
    h = decoder.embed(ids.flatten(), positions)
    return decoder.run(h, positions, PackedContext(batch, length)).hidden


class NextToken:
    """Cross-entropy of the next token, as an objective that keeps nothing from step to step."""

    def __init__(self, decoder: Decoder) -> None:
        self.module = decoder

    def loss(self, rows: Tensor) -> Tensor:
        """[1]: the mean over tokens."""
        logits = self.module.logits(hidden_states(self.module, rows[:, :-1]))
        return F.cross_entropy(logits.float(), rows[:, 1:].flatten())[None]

    def total(self, rows: Tensor) -> Tensor:
        """[2]: the sum over tokens, and how many they are."""
        count = rows[:, 1:].numel()
        return torch.cat((self.loss(rows) * count, torch.tensor([float(count)], device=rows.device)))

    @property
    def memory(self) -> dict[str, Tensor]:
        """Nothing beside the parameters."""
        return {}

    def settle(self, add_up: Callable[[Tensor], Tensor]) -> None:
        """There is no memory that a step could change."""
