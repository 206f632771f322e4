"""Heads on the target's last state: what the networks of all methods have, and what a method says of its own.

    target's last states -- norm --> h --(stem)--> finish --> states --> projection --> logits of one more token
                                                     |           |
                                          once a row, e.g. slots   head after head, perhaps from tokens guessed before

Published heads have projections of their own, which are most of their bytes (V x D each); where a head borrows the
target's, its file is without them, and the target's packed head is what computes.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from outdraft.core.learner import Lesson
from outdraft.drafters.shared.heads.config import HeadConfig, StemConfig
from outdraft.drafters.shared.heads.layers import Stem
from outdraft.drafters.shared.learning.vocab import CutHead, first_vocab
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import TargetPort, lent_parts
from outdraft.nn.linear import Linear
from outdraft.options.errors import CapabilityError

# head, source rows [N] of a lesson -> what the head's projection reads [N, D]
Reader = Callable[[int, Tensor], Tensor]


class Projections(nn.ModuleList):
    """`count` of them; none where `config.own_projections` is false, until `borrow` says whose stands in for all."""

    def __init__(
        self, config: HeadConfig, count: int, dtype: torch.dtype, device: torch.device, *, bias: bool = False
    ) -> None:
        width, own = config.hidden_size, count if config.own_projections else 0
        size = config.draft_vocab_size or config.vocab_size
        super().__init__(Linear(width, size, bias, dtype, device) for _ in range(own))
        self._scale = config.scale
        self._borrowed: Callable[[Tensor], Tensor] | None = None

    def borrow(self, target: Decoder | TargetPort) -> None:
        """Whose head it is, unless it has its own: a bound method, so that its weights are no parameters here."""
        self._borrowed = lent_parts(target).head

    def project(self, states: Tensor, head: int) -> Tensor:
        """[N, D] -> [N, V], or [N, V'] of their own vocabulary. The target's own head takes no scaled states."""
        if len(self):
            out: Tensor = self[head](states)
            return out
        assert self._borrowed is not None
        return self._borrowed(states / self._scale)


class HeadNet(nn.Module):
    """The network of one method. What it has beside stem and projections, it makes between the two."""

    kind: ClassVar[str]  # the method, whose files have the model_type "outdraft_" + kind
    what: ClassVar[str]  # the heads, in words, for errors
    sizes: ClassVar[type[HeadConfig]]  # what its config.json says
    reads_tokens: ClassVar[bool] = False  # heads read the tokens guessed before their own
    joins: ClassVar[bool] = False  # the last layer of its stem reads the token behind each row
    heights: Mapping[str, list[int]] = MappingProxyType({})  # of the parts that a fused map beside the stem writes

    projections: Projections

    def __init__(self, config: Any, dtype: torch.dtype, device: torch.device | str | None) -> None:
        super().__init__()
        self.config, self.place = config, torch.device(device or "cpu")
        self.lm_head: Linear | None = None  # rows of the target's head, once they are lent
        self.vocab: Tensor | None
        first = first_vocab(config.draft_vocab_size, config.vocab_size, self.place)
        self.register_buffer("vocab", first, persistent=False)
        self.stem: Stem | None = None
        if isinstance(config, StemConfig) and config.num_stem_layers:
            told = (config.num_stem_layers - 1,) if self.joins else ()
            self.stem = Stem(config, dtype, self.place, told=told)

    @property
    def model_type(self) -> str:
        return f"outdraft_{self.kind}"

    def finish(self, g: Tensor) -> Tensor:
        """What is done once to the states [N, D] that the heads of a row share -> [N, W]."""
        return g

    def states(self, h: Tensor, head: int, embeds: Seq[Tensor] = ()) -> Tensor:
        """What the projection of a head reads [N, D]: from states [N, W], and, where it `reads_tokens`, from the
        embeddings [N, D] of the tokens since, head + 1 of them, the pending one first."""
        raise NotImplementedError  # each subclass says it

    def logits(self, states: Tensor, head: int) -> Tensor:
        """[N, D] -> [N, V], or [N, V'] of its own vocabulary."""
        return self.project(states, head)

    def project(self, states: Tensor, head: int) -> Tensor:
        """The same by a projection of this index, or by rows of the target's head in place of all of them."""
        if self.lm_head is None:
            return self.projections.project(states, head)
        return self.lm_head(states / self.config.scale)  # type: ignore[no-any-return]

    def borrow(self, target: Decoder | TargetPort, dtype: torch.dtype) -> None:
        """Take the target's head, or its rows of the draft's tokens, where there are no projections of its own."""
        self.projections.borrow(target)
        if self.vocab is not None and not len(self.projections):
            self.lm_head = CutHead(target, self.vocab, dtype, None)

    def reader(self, h: Tensor, lesson: Lesson, target: Decoder) -> Reader:
        """The same in training, from the states [B * T, W] of a whole lesson: what its heads share is made once."""
        if not self.reads_tokens:
            return lambda head, source: self.states(h[source], head)
        ids = lesson.ids[:, :-1].flatten()

        def read(head: int, source: Tensor) -> Tensor:
            since = [source + i for i in range(1, head + 2)]
            return self.states(h[source], head, [token_embeds(target, ids, lesson, rows) for rows in since])

        return read

    def begin(self, seed: int) -> None:
        """In place, after all parameters became zeros: noise where gradients need some; nothing is added yet."""
        if self.stem is not None:
            self.stem.begin(seed)

    def side_by_side(self, matrix: Tensor) -> int:
        """How many states a matrix reads side by side."""
        return matrix.shape[1] // int(self.config.hidden_size)


def token_embeds(target: Decoder, ids: Tensor, lesson: Lesson, rows: Tensor) -> Tensor:
    """The target's embeddings [N, D] of the tokens at these rows of a lesson."""
    return target.embed(ids[rows], lesson.positions[rows]).detach()


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
