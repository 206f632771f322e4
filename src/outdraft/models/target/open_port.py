"""The implementation of the port to a target (`models/networks/port.py`), over its network and its cache."""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from time import perf_counter

import torch
from torch import Tensor

from outdraft.cache.config import CacheConfig
from outdraft.core.cache import KVCache, KVMemory
from outdraft.core.sequence import Sequence
from outdraft.core.skip import NO_SKIP, Skip
from outdraft.core.target import Recorder
from outdraft.models.adapter.network import TransformersNetwork
from outdraft.models.networks.native import NativeDecoder
from outdraft.models.networks.network import Network
from outdraft.models.networks.port import TargetFacts, TargetOrigin, TargetPort
from outdraft.models.target.guess import guess_with
from outdraft.nn.branches import BranchContext, Branches
from outdraft.nn.cached import CachedContext
from outdraft.nn.context import AttentionContext
from outdraft.nn.segment import chain_segments

_REPEATS = 5  # of a pass whose time is measured


class OpenedLayers:
    """`TargetLayers` over a network."""

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
        """Layers [0, stop), all by default, over any context: ids, positions [N] -> [N, D]."""
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

    @torch.inference_mode()
    def score(self, ids: Tensor) -> Tensor:
        """Logits after each of n short texts, each by itself: [n, T] -> [n, V]. The live cache is not touched."""
        n, length = ids.shape
        first = self._network.config.first_position(length)
        positions = torch.arange(first, first + length, device=self._network.device).repeat(n)
        out = self.run(ids.flatten(), positions, _aside(self._network, n, length, self._exact))
        return self._network.logits(out[length - 1 :: length])


class OpenedRows:
    """`TargetRows` over a cache."""

    def __init__(self, cache: KVCache, *, exact: bool) -> None:
        self._cache = cache
        self._exact = exact

    def tentative(self, seqs: Seq[Sequence], offset: int, rooms: Seq[int]) -> CachedContext:
        """One row of each sequence, `offset` rows after the pending one, with room for `rooms[i]` rows from it on."""
        for seq, room in zip(seqs, rooms, strict=True):
            self._cache.reserve(seq.id, offset + room)
        ids, bases = [seq.id for seq in seqs], [self._cache.length(seq.id) + offset for seq in seqs]
        return CachedContext(self._cache, chain_segments(ids, [1] * len(ids), bases), self._exact)

    def again(self, seqs: Seq[Sequence], counts: Seq[int]) -> BranchContext:
        """The last `counts[i]` committed rows once more, written behind the text."""
        parts, start = [], 0
        for seq, count in zip(seqs, counts, strict=True):
            length = self._cache.length(seq.id)
            self._cache.reserve(seq.id, count)
            above = [list(range(count, count + i)) for i in range(count)]  # counted from the first row seen again
            parts.append(Branches(seq=seq.id, start=start, text=length - count, first=length, above=above))
            start += count
        return BranchContext(self._cache, parts)

    def read(self, seq: Sequence, layer: int, start: int = 0) -> tuple[Tensor, Tensor]:
        """K and V of the committed rows from `start` on, each [Hkv, n - start, d]."""
        return self._cache.read(seq.id, layer, self._cache.length(seq.id), start)

    def memory(self, seq: Sequence) -> KVMemory:
        """The cache memory in which the rows are."""
        return self._cache.memory(seq.id)


class OpenedCosts:
    """`TargetCosts` of a network."""

    def __init__(self, network: Network, *, exact: bool) -> None:
        self._network = network
        self._exact = exact

    @torch.inference_mode()
    def pass_seconds(self, num_rows: int) -> float:
        """Seconds of a pass over so many rows, measured now."""
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


def open_port(
    network: Network,
    cache: KVCache,
    *,
    max_len: int,
    exact: bool,
    record: Recorder | None,
    origin: TargetOrigin,
    own_rows: CacheConfig,
) -> TargetPort:
    """The door to a network that reads and writes this cache. `own_rows`: the cache of a drafter's own rows."""
    config = network.config
    facts = TargetFacts(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_layers=config.num_layers,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        max_len=max_len,
        device=network.device,
        dtype=network.dtype,
        exact=exact,
        layers_apart=not isinstance(network, TransformersNetwork),
    )
    return TargetPort(
        facts=facts,
        layers=OpenedLayers(network, exact=exact, record=record),
        rows=OpenedRows(cache, exact=exact),
        costs=OpenedCosts(network, exact=exact),
        origin=origin,
        cache=own_rows,
    )


def _aside(network: Network, n: int, length: int, exact: bool) -> CachedContext:
    """n texts of `length` rows each, over a cache of their own."""
    config = network.config
    cache = CacheConfig().build(
        config.num_layers, config.num_kv_heads, config.head_dim, network.dtype, network.device, length
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
