"""The port: what a drafter may know and use of the target, in six small records.

    facts    sizes, device, type, whether rows are exact         plain values
    layers   embeddings, some or all layers, norm and head       over any attention context, a drafter's own included
    rows     where guesses stand in the target's cache           tentative: nothing that is committed is touched
    costs    what a pass takes, measured now
    origin   the files and the tokenizer that it came from
    cache    where rows of a drafter's own lie: in the pool that the target's are in

What a drafter wants to hear of the target's own passes it declares in `core.target.Needs`.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from outdraft.cache.config import CacheConfig
from outdraft.codecs.codec import Codec
from outdraft.core.cache import KVMemory
from outdraft.core.sequence import Sequence
from outdraft.core.skip import NO_SKIP, Skip
from outdraft.core.target import Recorder
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.native import NativeDecoder
from outdraft.nn.branches import BranchContext
from outdraft.nn.cached import CachedContext
from outdraft.nn.context import AttentionContext


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFacts:
    """What the target is, as plain values."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_kv_heads: int
    head_dim: int
    max_len: int
    device: torch.device
    dtype: torch.dtype
    exact: bool  # a row's result is to be independent of the pass that it is computed in
    layers_apart: bool = True  # a pass may leave layers out, end early, begin in the middle or be tapped in a layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the target came from; None where that is not known."""

    source: Path | None = None  # for a drafter that loads the weights again in another form
    codec: Codec[Any] | None = None  # for drafters of another vocabulary


def facts_of(target: "Decoder | TargetPort") -> TargetFacts:
    """Of a target in an engine, or of a network that no engine runs."""
    if not isinstance(target, Decoder):
        return target.facts
    decoder, config = target, target.config
    return TargetFacts(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_layers=config.num_layers,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        max_len=config.max_len,
        device=decoder.device,
        dtype=decoder.dtype,
        exact=decoder.exact,
    )


class TargetLayers(Protocol):
    """The parts of the target's network, as functions that a drafter may call."""

    @property
    def native(self) -> NativeDecoder | None:
        """The packed layers, for a drafter that runs them itself; None: PyTorch computes."""
        ...

    @property
    def record(self) -> Recorder | None:
        """How a drafter's own network should record its passes; None: not at all."""
        ...

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Token embeddings: [n] -> [n, D]."""
        ...

    def run(
        self,
        ids: Tensor,
        positions: Tensor,
        context: AttentionContext,
        *,
        stop: int | None = None,
        skip: Skip = NO_SKIP,
    ) -> Tensor:
        """Layers [0, stop), all by default, over any context, a drafter's own cache included: [N], [N] -> [N, D]."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """The final norm and the head: [n, D] -> [n, V]."""
        ...

    def norm(self, hidden: Tensor) -> Tensor:
        """The final norm alone: [n, D] -> [n, D]."""
        ...

    def head(self, hidden: Tensor) -> Tensor:
        """The head alone, without the norm: [n, D] -> [n, V]."""
        ...

    def score(self, ids: Tensor) -> Tensor:
        """Logits after each of n short texts of T tokens, each by itself: [n, T] -> [n, V]. Remembers nothing."""
        ...


class TargetRows(Protocol):
    """The target's cache, for guesses that its own layers make."""

    def tentative(self, seqs: Seq[Sequence], offset: int, rooms: Seq[int]) -> CachedContext:
        """The attention context of one token of each sequence, `offset` rows after the pending one.

        It sees the tentative rows of earlier calls; there is room for `rooms[i]` rows from its own on.
        """
        ...

    def again(self, seqs: Seq[Sequence], counts: Seq[int]) -> BranchContext:
        """The context of a pass over the last `counts[i]` cached tokens once more.

        Each sees the text's rows before them and the new rows of its own kind up to itself, which stand tentatively
        behind the text.
        """
        ...

    def read(self, seq: Sequence, layer: int, start: int = 0) -> tuple[Tensor, Tensor]:
        """K and V of the text's cached rows from `start` on, each [Hkv, n - start, d], turned. Not to be changed."""
        ...

    def memory(self, seq: Sequence) -> KVMemory:
        """Where the rows stand as the cache stores them, floats or bytes. Not to be changed."""
        ...


class TargetCosts(Protocol):
    """What a pass of the target costs, for policies and drafters that weigh it."""

    def pass_seconds(self, num_rows: int) -> float:
        """Seconds of a pass over `num_rows` rows of one short text, measured now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPort:
    """What a drafter may know and use of the target."""

    facts: TargetFacts
    layers: TargetLayers
    rows: TargetRows
    costs: TargetCosts
    origin: Origin
    cache: CacheConfig  # of what rows a drafter keeps itself


def lent_parts(target: Decoder | TargetPort) -> Decoder | TargetLayers:
    """What a drafter's network borrows and holds no weights of: `embed`, `norm` and `head`."""
    return target if isinstance(target, Decoder) else target.layers
