"""ReDrafter's head: a recurrent state that begins as the target's last, and takes up one token a step.

    s_0 = h      s_{i+1} = silu(U s_i + W e(x_i) + b)      h + silu(M cat(h, s_{i+1}) + c) -- projection --> x_{i+1}
                 x_0: the pending token                     (more residual layers may follow)

Cheng et al., "Recurrent drafter", 2024, https://arxiv.org/abs/2403.09919. All steps share all weights. M begins
as zeros and the projection as the target's own head, so that untrained every step says what the target said before.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outdraft.drafters.shared.heads.config import HeadConfig
from outdraft.drafters.shared.heads.projections import Projections
from outdraft.drafters.shared.heads.residual import residuals
from outdraft.models.files.head_files import load_head, save_head
from outdraft.nn.activation import rowwise
from outdraft.nn.linear import Linear

MODEL_TYPE = "outdraft_redrafter"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReDrafterConfig(HeadConfig):
    """Its sizes; `num_heads` is the number of steps that it was trained for, and drafts."""

    num_layers: int = 1  # behind the recurrence: one that mixes, and residual ones


class ReDrafterNet(nn.Module):
    """The recurrence, the layers behind it, and one projection for all steps."""

    def __init__(
        self, config: ReDrafterConfig, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        place, width = torch.device(device or "cpu"), config.hidden_size
        self.config = config
        self.state = Linear(width, width, True, dtype, place)
        self.token = Linear(width, width, False, dtype, place)
        self.mixer = Linear(2 * width, width, True, dtype, place)
        self.layers = residuals(max(0, config.num_layers - 1), width, dtype, place)
        self.projections = Projections(config, 1, dtype, place)

    def step(self, s: Tensor, embeds: Tensor) -> Tensor:
        """The state [N, D] after one more token, whose embeddings are [N, D]."""
        own = self.state.dtype
        return rowwise(F.silu, self.state(s.to(own)) + self.token(embeds.to(own)))

    def mixed(self, h: Tensor, s: Tensor) -> Tensor:
        """What the projection reads: the target's last state, normed, and the recurrent one, [N, D] each -> [N, D]."""
        h = h.to(self.mixer.dtype)
        out: Tensor = self.layers(h + rowwise(F.silu, self.mixer(torch.cat((h, s), -1))))
        return out

    def states(self, h: Tensor, embeds: Seq[Tensor]) -> Tensor:
        """The same after all tokens since: the pending one and each guess, [N, D] each."""
        s = h
        for one in embeds:
            s = self.step(s, one)
        return self.mixed(h, s)

    def logits(self, states: Tensor, head: int = 0) -> Tensor:
        """[N, D] -> [N, V], whatever the step."""
        return self.projections.project(states, 0)


def save_redrafter(net: ReDrafterNet, directory: Path, dtype: torch.dtype | None = None) -> None:
    """config.json and model.safetensors."""
    save_head(net, net.config, directory, model_type=MODEL_TYPE, dtype=dtype)


def load_redrafter(directory: Path, dtype: torch.dtype, device: torch.device | None = None) -> ReDrafterNet:
    """The head in `directory`."""
    return load_head(
        directory, ReDrafterConfig, lambda config, place: ReDrafterNet(config, dtype, place or device),
        model_type=MODEL_TYPE, what="ReDrafter head",
    )  # fmt: skip
