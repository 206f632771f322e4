"""The CTC draft network: one decoder layer over the target's states, slots, and a head over the vocabulary and a blank.

    h_0 .. h_i --(join e(x_{i+1}))-- layer --> g_i -- slots, which see each other -- projection --> V tokens and a blank

Wen et al., "Speculative decoding with CTC-based draft model", 2024, https://arxiv.org/abs/2412.00061. The blank is
column V. Untrained every slot says what the target said before, which collapses to one token.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from outdraft.drafters.shared.heads.slots import Slots
from outdraft.drafters.shared.heads.stem import Stem, StemConfig
from outdraft.models.files.head_files import load_head, save_head
from outdraft.nn.linear import Linear

MODEL_TYPE = "outdraft_ctc"


@dataclass(frozen=True, slots=True, kw_only=True)
class CtcConfig(StemConfig):
    """The sizes of the layer and of the block over the slots; `num_heads` is the number of slots."""


class CtcNet(nn.Module):
    """The layer, the slots and the projection that they share."""

    def __init__(
        self, config: CtcConfig, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        place = torch.device(device or "cpu")
        self.config = config
        self.stem = Stem(config, dtype, place, told=(config.num_stem_layers - 1,))
        self.slots = Slots(config, config.num_heads, dtype, place, bidirectional=True)
        self.projections = nn.ModuleList([Linear(config.hidden_size, config.vocab_size + 1, False, dtype, place)])

    @property
    def blank(self) -> int:
        """The column of the blank."""
        return self.config.vocab_size

    def logits(self, slots: Tensor) -> Tensor:
        """[N, D] -> [N, V + 1]."""
        return cast(Tensor, self.projections[0](slots))


def save_ctc(net: CtcNet, directory: Path, dtype: torch.dtype | None = None) -> None:
    """config.json and model.safetensors."""
    save_head(net, net.config, directory, model_type=MODEL_TYPE, dtype=dtype)


def load_ctc(directory: Path, dtype: torch.dtype, device: torch.device | None = None) -> CtcNet:
    """The network in `directory`."""
    return load_head(
        directory, CtcConfig, lambda config, place: CtcNet(config, dtype, place or device), model_type=MODEL_TYPE,
        what="CTC network",
    )  # fmt: skip
