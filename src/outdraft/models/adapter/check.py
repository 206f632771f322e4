"""The loaded weights, tried on random ids before a request relies on them.

    whole     one chain through our cache, against the model's own attention
    tree      (-1, 0, 0, 1, 2, 2) over the chain, against each of its paths alone
    ragged    two sequences in one pass, against each alone

A wrong mask, a position that the model counts by itself or a state that it keeps moves logits by a tenth and more;
rounding by 1e-5 of their size in float32. In between the model is taken; beyond it is refused by name. In half
precision rounding may send a row to other experts, so there the median row decides. Data in: a network; data out:
nothing, or a refusal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from outdraft.cache.config import CacheConfig
from outdraft.core.cache import KVCache
from outdraft.models.adapter.attention import NAME
from outdraft.models.adapter.network import TransformersNetwork
from outdraft.nn.cached import CachedContext
from outdraft.nn.segment import Segment
from outdraft.options.errors import ModelLoadError

_TREE = (-1, 0, 0, 1, 2, 2)
_PATHS = ((0, 1, 3), (0, 2, 4), (0, 2, 5))
_NUM_BASE = 8
_MOST = {torch.float64: 1e-4, torch.float32: 1e-3}  # largest difference of a row's logits, of their size
_MOST_HALF = 0.15  # of the median row


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialTexts:
    """Random ids of a text, and of a tree over it."""

    base: Tensor  # [8]
    tree: Tensor  # [6]


def make_trial(vocab_size: int, device: torch.device) -> TrialTexts:
    """The same for every model of a vocabulary."""
    generator = torch.Generator().manual_seed(12)
    ids = torch.randint(vocab_size, (_NUM_BASE + len(_TREE),), generator=generator).to(device)
    return TrialTexts(base=ids[:_NUM_BASE], tree=ids[_NUM_BASE:])


@torch.inference_mode()
def check_network(network: TransformersNetwork, trial: TrialTexts) -> None:
    """Raise `ModelLoadError` naming what came out otherwise."""
    chain = torch.cat((trial.base, trial.tree))
    own, passes = _own_logits(network.model, chain), _Passes(network)
    _compare(network, "a text in one pass", passes.new(0, chain), own)
    tree = passes.behind(trial.base, 1, trial.tree, _TREE)
    for i, path in enumerate(map(list, _PATHS)):
        _compare(network, "a tree of guesses", tree[path], passes.behind(trial.base, 2 + i, trial.tree[path]))
    both = passes.together((10, trial.base), (11, trial.tree))
    _compare(network, "two texts in one pass", both[:_NUM_BASE], own[:_NUM_BASE])
    _compare(network, "two texts in one pass", both[_NUM_BASE:], passes.new(12, trial.tree))


@torch.inference_mode()
def find_exact(network: TransformersNetwork, trial: TrialTexts) -> bool:
    """Whether rows can be kept apart: every function is known to, and on the trial no row changes a bit.

    Leaves the network so. In half precision rounding hides most differences, so the list of functions decides.
    """
    network.exact = True
    passes = _Passes(network)
    base, path = trial.base[:5], list(_PATHS[1])
    together = passes.new(0, base)
    alone = passes.one_by_one(1, base)
    tree = passes.behind(base, 2, trial.tree, _TREE)[path]
    both = passes.together((3, base), (4, trial.tree))
    pairs = (
        (together, alone),
        (tree, passes.behind(base, 5, trial.tree[path])),
        (both, torch.cat((together, passes.new(6, trial.tree)))),
    )
    network.exact = not network.unknown and all(torch.equal(*pair) for pair in pairs)
    return network.exact


def _own_logits(model: Any, ids: Tensor) -> Tensor:
    """By the model's own attention and masks: [N] -> [N, V]."""
    model.set_attn_implementation("eager")
    try:
        places = torch.arange(len(ids), device=ids.device)[None]
        return model(input_ids=ids[None], position_ids=places, use_cache=False).logits[0]  # type: ignore[no-any-return]
    finally:
        model.set_attn_implementation(NAME)


class _Passes:
    """Passes of a network over a cache of their own."""

    def __init__(self, network: TransformersNetwork) -> None:
        config = network.config
        self._network = network
        self._cache: KVCache = CacheConfig().build(
            config.num_layers, config.num_kv_heads, config.head_dim, network.dtype, network.device, 2 * _NUM_BASE
        )

    def new(self, seq: int, ids: Tensor) -> Tensor:
        """A text of its own: [N] -> logits [N, V]. Its rows stay tentative."""
        return self.together((seq, ids))

    def one_by_one(self, seq: int, ids: Tensor) -> Tensor:
        """The same text, a row a pass."""
        self._cache.add(seq)
        rows = []
        for i in range(len(ids)):
            rows.append(self._run([Segment(seq=seq, start=0, stop=1, base=i)], ids[i : i + 1]))
            self._cache.commit(seq, [0])
        return torch.cat(rows)

    def together(self, *texts: tuple[int, Tensor]) -> Tensor:
        """Several texts in one pass."""
        segments: list[Segment] = []
        for seq, ids in texts:
            self._cache.add(seq)
            start = segments[-1].stop if segments else 0
            segments.append(Segment(seq=seq, start=start, stop=start + len(ids), base=0))
        return self._run(segments, torch.cat([ids for _, ids in texts]))

    def behind(self, base: Tensor, seq: int, ids: Tensor, parents: tuple[int, ...] | None = None) -> Tensor:
        """Rows behind a text that is cached: a chain, or a tree."""
        self.new(seq, base)
        self._cache.commit(seq, range(len(base)))
        return self._run([Segment(seq=seq, start=0, stop=len(ids), base=len(base), parents=parents)], ids)

    def _run(self, segments: Sequence[Segment], ids: Tensor) -> Tensor:
        for segment in segments:
            self._cache.reserve(segment.seq, segment.num_rows)
        told = [segment.base + depth for segment in segments for depth in segment.depths()]
        positions = torch.tensor(told, device=ids.device)
        network, context = self._network, CachedContext(self._cache, segments, exact=self._network.exact)
        return network.logits(network.run(network.embed(ids, positions), positions, context).hidden)


def _compare(network: TransformersNetwork, what: str, ours: Tensor, theirs: Tensor) -> None:
    """Raise `ModelLoadError` where logits [N, V] differ by more than rounding."""
    ours, theirs = ours.double(), theirs.double()
    size = (theirs - theirs.mean(-1, keepdim=True)).abs().amax(-1)
    rows = (ours - theirs).abs().amax(-1) / size.clamp_min(1e-12)  # [N]
    most = _MOST.get(network.dtype)
    seen, bound = (rows.median(), _MOST_HALF) if most is None else (rows.max(), most)
    if not float(seen) <= bound:  # or no number
        raise ModelLoadError(
            f"model_type={network.config.architecture!r} cannot be run through transformers: {what} gives other logits "
            f"than each alone (by {float(seen):.1g} of their size, at most {bound:g} is rounding), so guesses would be "
            "judged wrongly"
        )
