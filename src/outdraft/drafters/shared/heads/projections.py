"""The last layer of heads: a projection to the vocabulary for each of them, or the target's own for all.

Published heads have projections of their own, which are most of their bytes (V x D each); with the target's, heads are
small, and its packed head is what computes.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from outdraft.drafters.shared.heads.config import HeadConfig
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import TargetPort
from outdraft.nn.linear import Linear
from outdraft.options.errors import CapabilityError


class Projections(nn.ModuleList):
    """`count` of them; none where `config.own_projections` is false, until `borrow` says whose stands in for all."""

    def __init__(
        self, config: HeadConfig, count: int, dtype: torch.dtype, device: torch.device, *, bias: bool = False
    ) -> None:
        width, own = config.hidden_size, count if config.own_projections else 0
        super().__init__(Linear(width, config.vocab_size, bias, dtype, device) for _ in range(own))
        self._scale = config.scale
        self._borrowed: Callable[[Tensor], Tensor] | None = None

    def borrow(self, target: Decoder | TargetPort) -> None:
        """Whose head it is, unless it has its own: a bound method, so that its weights are no parameters here."""
        self._borrowed = target.head if isinstance(target, Decoder) else target.layers.head

    def project(self, states: Tensor, head: int) -> Tensor:
        """[N, D] -> [N, V]. The scale of an inflated target's states is taken back before its own head."""
        if len(self):
            out: Tensor = self[head](states)
            return out
        assert self._borrowed is not None
        return self._borrowed(states / self._scale)


def borrowed_matrix(target: Decoder, dtype: torch.dtype) -> Tensor:
    """The target's head as heads of a published layout need it, which have projections of their own: [V, D].

    Raises `CapabilityError` for a target that caps its logits, since no projection does.
    """
    if (cap := target.config.logit_cap) is not None:
        raise CapabilityError(
            f"these heads use their target's own head, which caps its logits (logit_cap={cap:g}), and the published "
            "layout has projections without a cap: train them with own_projections=true, or keep them in our own layout"
        )
    return target.head_matrix().to(dtype)
