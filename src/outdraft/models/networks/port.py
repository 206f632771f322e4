"""The port: what a drafter may know and use of the target, in six small records.

    facts    sizes, device, type, whether rows are exact         plain values
    layers   embeddings, some or all layers, norm and head       over any attention context, a drafter's own included
    rows     where guesses stand in the target's cache           tentative: nothing that is committed is touched
    costs    what a pass takes, measured now
    origin   the files and the tokenizer that it came from
    cache    where rows of a drafter's own lie: in the pool that the target's are in

What a drafter wants to hear of the target's own passes it declares in `core.target.Needs`.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from outdraft.cache.config import CacheConfig
from outdraft.codecs.codec import Codec
from outdraft.core.cache import KVCache, KVMemory
from outdraft.core.sequence import Sequence
from outdraft.core.skip import NO_SKIP, Skip
from outdraft.core.target import Recorder
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.guess import guess_with
from outdraft.models.networks.native import NativeDecoder
from outdraft.models.networks.network import Network
from outdraft.nn.branches import BranchContext, Branches
from outdraft.nn.cached import CachedContext
from outdraft.nn.context import AttentionContext
from outdraft.nn.segment import chain_segments

_REPEATS = 5  # of a pass whose time is measured


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
    logit_cap: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOrigin:
    """Where the target came from; None where that is not known."""

    source: Path | None = None  # for a drafter that loads the weights again in another form
    codec: Codec[Any] | None = None  # for drafters of another vocabulary
    renews: bool = False  # networks of drafters may be replaced while the engine runs


def facts_of(target: "Decoder | TargetPort") -> TargetFacts:
    """Of a target in an engine, or of a network that no engine runs."""
    if not isinstance(target, Decoder):
        return target.facts
    return network_facts(target, max_len=target.config.max_len, exact=target.exact)


def network_facts(network: Network, *, max_len: int, exact: bool) -> TargetFacts:
    """Of a network, and of the engine that it runs in."""
    config = network.config
    return TargetFacts(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_layers=config.num_layers,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        max_len=max_len,
        device=network.device,
        dtype=network.dtype,
        exact=exact,
        logit_cap=config.logit_cap,
    )


class TargetLayers:
    """The parts of the target's network, as functions that a drafter may call.

    native: the packed layers, for a drafter that runs them itself; None: PyTorch computes. record: how a drafter's own
    network should record its passes; None: not at all.
    """

    def __init__(self, network: Network, *, exact: bool, record: Recorder | None) -> None:
        self.native = network if isinstance(network, NativeDecoder) else None
        self.record = record
        self._network = network
        self._exact = exact

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Token embeddings: [n] -> [n, D]."""
        device = self._network.device
        return self._network.embed(ids.to(device), positions.to(device))

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
        positions = positions.to(self._network.device)
        return self._network.run(self.embed(ids, positions), positions, context, stop=stop, skip=skip).hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Final norm and head: [n, D] -> [n, V]."""
        return self._network.logits(hidden)

    def norm(self, hidden: Tensor) -> Tensor:
        """Final norm alone: [n, D] -> [n, D]."""
        return self._network.norm(hidden)

    def head(self, hidden: Tensor) -> Tensor:
        """Head alone: [n, D] -> [n, V]."""
        return self._network.head(hidden)

    def head_rows(self, ids: Tensor) -> Tensor:
        """Rows of the head's matrix, its scale included: [n] -> [n, D]."""
        network = self._network
        if isinstance(network, NativeDecoder):
            return network.stack.rows(ids) * network.config.logit_scale
        if isinstance(network, Decoder):
            return network.head_rows(ids)
        units = torch.eye(network.config.hidden_size, dtype=network.dtype, device=network.device)
        ids, bias = ids.to(network.device), network.head(torch.zeros_like(units[:1]))
        return torch.cat([(network.head(part) - bias)[:, ids] for part in torch.split(units, 64)]).T

    @torch.inference_mode()
    def score(self, ids: Tensor) -> Tensor:
        """Logits after each of n short texts of T tokens, each by itself: [n, T] -> [n, V]. Remembers nothing."""
        n, length = ids.shape
        first = self._network.config.first_position(length)
        positions = torch.arange(first, first + length, device=self._network.device).repeat(n)
        out = self.run(ids.flatten(), positions, _aside(self._network, n, length, self._exact))
        return self._network.logits(out[length - 1 :: length])


class TargetRows:
    """The target's cache, for guesses that its own layers make."""

    def __init__(self, cache: KVCache, *, exact: bool) -> None:
        self._cache = cache
        self._exact = exact

    def tentative(self, seqs: Seq[Sequence], offset: int, rooms: Seq[int]) -> CachedContext:
        """The attention context of one token of each sequence, `offset` rows after the pending one.

        It sees the tentative rows of earlier calls; there is room for `rooms[i]` rows from its own on.
        """
        for seq, room in zip(seqs, rooms, strict=True):
            self._cache.reserve(seq.id, offset + room)
        ids, bases = [seq.id for seq in seqs], [self._cache.length(seq.id) + offset for seq in seqs]
        return CachedContext(self._cache, chain_segments(ids, [1] * len(ids), bases), self._exact)

    def again(self, seqs: Seq[Sequence], counts: Seq[int]) -> BranchContext:
        """The context of a pass over the last `counts[i]` cached tokens once more.

        Each sees the text's rows before them and the new rows of its own kind up to itself, which stand tentatively
        behind the text.
        """
        parts, start = [], 0
        for seq, count in zip(seqs, counts, strict=True):
            length = self._cache.length(seq.id)
            self._cache.reserve(seq.id, count)
            above = [list(range(count, count + i)) for i in range(count)]  # counted from the first row seen again
            parts.append(Branches(seq=seq.id, start=start, text=length - count, first=length, above=above))
            start += count
        return BranchContext(self._cache, parts)

    def read(self, seq: Sequence, layer: int, start: int = 0) -> tuple[Tensor, Tensor]:
        """K and V of the text's cached rows from `start` on, each [Hkv, n - start, d], turned. Not to be changed."""
        return self._cache.read(seq.id, layer, self._cache.length(seq.id), start)

    def memory(self, seq: Sequence) -> KVMemory:
        """Where the rows stand as the cache stores them, floats or bytes. Not to be changed."""
        return self._cache.memory(seq.id)


class TargetCosts:
    """What a pass of the target costs, for policies and drafters that weigh it."""

    def __init__(self, network: Network, *, exact: bool) -> None:
        self._network = network
        self._exact = exact

    @torch.inference_mode()
    def pass_seconds(self, num_rows: int) -> float:
        """Seconds of a pass over `num_rows` rows of one short text, measured now."""
        network, rows = self._network, list(range(num_rows))
        context = _aside(network, 1, num_rows, self._exact)
        if isinstance(network, NativeDecoder):
            scorer = guess_with(network)
            return _measure_pass(lambda: scorer.feed([0] * num_rows, rows, context, rows)[1])
        ids = torch.zeros(num_rows, dtype=torch.long, device=network.device)
        positions = torch.tensor(rows, device=network.device)
        return _measure_pass(
            lambda: network.logits(network.run(network.embed(ids, positions), positions, context).hidden)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPort:
    """What a drafter may know and use of the target."""

    facts: TargetFacts
    layers: TargetLayers
    rows: TargetRows
    costs: TargetCosts
    origin: TargetOrigin
    cache: CacheConfig  # of what rows a drafter keeps itself


def _aside(network: Network, n: int, length: int, exact: bool) -> CachedContext:
    """n texts of `length` rows each, over a cache of their own."""
    config = network.config
    cache = CacheConfig().build_with(
        config.states(), config.num_layers, config.num_kv_heads, config.head_dim, network.dtype, network.device, length
    )
    for i in range(n):
        cache.add(i)
        cache.reserve(i, length)
    return CachedContext(cache, chain_segments(range(n), [length] * n, [0] * n), exact)


def _measure_pass(run: Callable[[], Tensor]) -> float:
    """Seconds of a pass, the least of a few: where policies that weigh costs begin. `run` -> logits [n, V]."""
    times = []
    for _ in range(_REPEATS):
        began = perf_counter()
        float(run()[-1, -1])  # a device answers when it is done
        times.append(perf_counter() - began)
    return min(times)


def lent_parts(target: Decoder | TargetPort) -> Decoder | TargetLayers:
    """What a drafter's network borrows and holds no weights of: `embed`, `norm`, `head`, `head_rows`."""
    return target if isinstance(target, Decoder) else target.layers
