"""SpecDec++'s acceptance prediction head: residual blocks over a drafter's hidden state, and one logit.

    e (a state that has read a drafted token) -- RMS 1 -- x + silu(W x + b), several times -- logit of "it is accepted"

Huang, Guo and Wang, 2024, https://arxiv.org/abs/2405.19715. The paper's last layer has two outputs and a softmax, whose
difference is this logit. States are brought to the same size first, since ours come before the drafter's last norm. The
state behind a token does not say how probable the draft held it; with `reads_probability` the head sees log q and
log(1 - q) beside the state.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outdraft.models.files.head_files import load_head, save_head
from outdraft.options.errors import ModelLoadError

_LEAST = 1e-5  # of a probability
MODEL_TYPE = "outdraft-acceptance-head"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceConfig:
    """Its sizes, and whose states it reads."""

    width: int  # of a state
    num_blocks: int
    draft: str  # which weights wrote the states (`weights/digest.py`)
    temperature: float  # of the texts that it learned from; 0: greedy
    reads_probability: bool = False


class AcceptanceNet(nn.Module):
    """States [n, W], the draft's probabilities of the tokens [n] -> logits [n].

    It computes in float32. Blocks begin as the identity, the logit as 0.
    """

    def __init__(self, config: AcceptanceConfig, device: torch.device | None = None) -> None:
        super().__init__()
        self.config = config
        width = config.width + 2 * config.reads_probability
        self.blocks = nn.ModuleList(nn.Linear(width, width, device=device) for _ in range(config.num_blocks))
        self.out = nn.Linear(width, 1, device=device)
        for layer in (*self.blocks, self.out):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, states: Tensor, told: Tensor) -> Tensor:
        wide = states.float()
        x = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        if self.config.reads_probability:
            q = told.float().clamp(_LEAST, 1 - _LEAST)[:, None]
            x = torch.cat((x, q.log(), torch.log1p(-q)), -1)
        for block in self.blocks:
            x = x + F.silu(block(x))
        logits: Tensor = self.out(x)[:, 0]
        return logits

    @torch.no_grad()
    def chances(self, states: Tensor, told: Tensor) -> Tensor:
        """States [n, W] that have read n drafted tokens, their probabilities [n] -> how likely each is accepted [n]."""
        return torch.sigmoid(self(states, told))


def save_acceptance(net: AcceptanceNet, directory: Path) -> None:
    """config.json and model.safetensors."""
    save_head(net, net.config, directory, model_type=MODEL_TYPE)


def load_acceptance(directory: Path) -> AcceptanceNet:
    """The head in `directory`. Raises `ModelLoadError` for anything else, or damaged files."""
    net = load_head(
        directory,
        AcceptanceConfig,
        lambda config, place: AcceptanceNet(config, place),
        model_type=MODEL_TYPE,
        what="acceptance head",
    )
    if any(bool(torch.isinf(parameter).any()) for parameter in net.parameters()):
        raise ModelLoadError(f"{directory}: the acceptance head has infinite weights: train it again")
    return net
