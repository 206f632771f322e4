"""The cache audit: after a commit, the K/V of the committed rows equal those of one fresh pass over the same tokens.

So do the states of recurrent layers.
"""

from dataclasses import replace

from torch import Tensor

from outdraft.core.cache import StateMemory
from outdraft.core.draft import chain
from outdraft.core.packing import pack
from outdraft.core.sequence import Sequence
from outdraft.engine.runner import Runner
from outdraft.testing.audit import require

TOLERANCE = 1e-5


class CacheRecheck:
    """For `AuditedTarget` over a `Runner`: every layer, every committed row."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner

    def __call__(self, seq: Sequence, cached: list[int]) -> None:
        """Raise `AuditError` if the cache of `seq` is not what `cached` tokens leave behind."""
        n = len(cached)
        held = self.runner.cache.length(seq.id)
        require(held == n, f"sequence {seq.id}: the cache counts {held} rows, {n} tokens were committed")
        alone = replace(self.runner.cache_config, pool=None, num_pages=None, prefixes=False)
        again = Runner(self.runner.decoder, max_len=self.runner.max_len, exact=self.runner.exact, cache=alone)
        copy = replace(seq, tokens=[*cached, 0], num_cached=0)
        again.begin(copy)
        again.forward(pack([copy], [chain([0])], max_chunk=n + 1))
        again.commit(copy, range(n))
        for layer in range(self.runner.num_layers):
            held_kv, fresh_kv = _memory(self.runner, seq.id, layer, n), _memory(again, copy.id, layer, n)
            names = "KV" if len(held_kv) == 2 else "S"
            for name, ours, fresh in zip(names, held_kv, fresh_kv, strict=True):
                error = float((ours - fresh).abs().max()) if n else 0.0
                where = f"sequence {seq.id}: {name} of layer {layer}"
                require(error < TOLERANCE, f"{where} differs from a fresh pass over {n} tokens by {error:.2g}")
        self.runner.cache.check()


def _memory(runner: Runner, seq: int, layer: int, n: int) -> tuple[Tensor, ...]:
    """What a layer remembers of the n committed rows: keys and values, or a state."""
    cache = runner.cache
    if isinstance(cache, StateMemory) and layer in runner.decoder.config.states():
        return (cache.before(seq, layer, -1),)
    return cache.read(seq, layer, n)
