"""ReDrafter's head: a recurrent state that begins as the target's last, and takes up one token a step.

    s_0 = h      s_{i+1} = silu(U s_i + W e(x_i) + b)      h + silu(M cat(h, s_{i+1}) + c) -- projection --> x_{i+1}
                 x_0: the pending token                     (more residual layers may follow)

Cheng et al., "Recurrent drafter", 2024, https://arxiv.org/abs/2403.09919. All steps share all weights. M begins
as zeros and the projection as the target's own head, so that untrained every step says what the target said before.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from outdraft.core.learner import Lesson
from outdraft.drafters.shared.heads.config import HeadConfig
from outdraft.drafters.shared.heads.layers import residuals
from outdraft.drafters.shared.heads.net import HeadNet, Projections, Reader, token_embeds
from outdraft.models.networks.base import Decoder
from outdraft.nn.activation import rowwise
from outdraft.nn.linear import Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class ReDrafterConfig(HeadConfig):
    """Its sizes; `num_heads` is the number of steps that it was trained for, and drafts."""

    num_layers: int = 1  # behind the recurrence: one that mixes, and residual ones


class ReDrafterNet(HeadNet):
    """The recurrence, the layers behind it, and one projection for all steps."""

    kind, what, sizes, reads_tokens = "redrafter", "a ReDrafter head", ReDrafterConfig, True

    def __init__(
        self, config: ReDrafterConfig, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
    ) -> None:
        super().__init__(config, dtype, device)
        place, width = self.place, config.hidden_size
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

    def states(self, h: Tensor, head: int, embeds: Seq[Tensor] = ()) -> Tensor:
        """The same after all tokens since: the pending one and each guess, [N, D] each."""
        s = h
        for one in embeds:
            s = self.step(s, one)
        return self.mixed(h, s)

    def logits(self, states: Tensor, head: int) -> Tensor:
        """[N, D] -> [N, V], whatever the step."""
        return self.project(states, 0)

    def reader(self, h: Tensor, lesson: Lesson, target: Decoder) -> Reader:
        """Unrolled over the text's own tokens: each state is made from the one before, once."""
        ids, row = lesson.ids[:, :-1].flatten(), torch.arange(len(h), device=h.device)
        unrolled, s = list[Tensor](), h
        for step in range(self.config.num_heads):
            token = (row + step + 1).clamp_max(len(h) - 1)  # rows that no text follows so far are not asked about
            s = self.step(s, token_embeds(target, ids, lesson, token))
            unrolled.append(s)
        return lambda head, source: self.mixed(h[source], unrolled[head][source])

    def begin(self, seed: int) -> None:
        """The recurrence is noise."""
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in (self.state.weight, self.token.weight):
                weight.copy_(torch.randn(weight.shape, generator=generator) * weight.shape[1] ** -0.5)
