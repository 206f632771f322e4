"""A target between the loop and the real one that checks every call, and raises at the first broken contract.

pass      each sequence continues exactly where its cache ends; positions, parents and masks describe one tree
commit    the kept rows are all prompt rows, the pending token and one path below it; they spell the text
after     the cache has len(tokens) - 1 rows, and (`CacheRecheck`) equals a fresh pass over those tokens
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import replace
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor

from outdraft.core.cache import StateMemory
from outdraft.core.draft import Draft, HostTree, Role, chain
from outdraft.core.packing import PackedDrafts, pack
from outdraft.core.sequence import Sequence
from outdraft.core.target import Replay, ReplayingTarget, SlicedPass, SlicingTarget, Target, TargetOutput
from outdraft.engine.runner import Runner

TOLERANCE = 1e-5  # of keys and values, and of states of recurrent layers


class AuditError(AssertionError):
    """A part of the engine, or a drafter, broke the contract."""


def require(holds: bool, message: str) -> None:
    """Raise `AuditError` unless it holds."""
    if not holds:
        raise AuditError(message)


class AuditedTarget:
    """Wraps any `Target`. `recheck(seq, cached_tokens)`, if given, is called after every commit."""

    def __init__(self, target: Target, recheck: Callable[[Sequence, list[int]], None] | None = None) -> None:
        self.target = target
        self.recheck = recheck
        self.vocab_size = target.vocab_size
        self.max_len = target.max_len
        self.cached: dict[int, list[int]] = {}
        self.num_passes = 0
        self.num_sliced = 0  # of them
        self._pass: dict[int, tuple[int, HostTree | None]] = {}
        self._in_slices: set[int] = set()  # sequences whose pass is not over

    def begin(self, seq: Sequence) -> int:
        """A sequence may begin once."""
        require(seq.id not in self.cached, f"sequence {seq.id} began twice")
        num_there = self.target.begin(seq)
        require(0 <= num_there < len(seq.tokens), f"{num_there} rows are there of a prompt of {len(seq.tokens)} tokens")
        self.cached[seq.id] = seq.tokens[:num_there]
        return num_there

    def forward(self, packed: PackedDrafts, taps: Seq[int] = ()) -> TargetOutput:
        """Check the layout of the pass, then run it."""
        self._check_pass(packed)
        out = self.target.forward(packed, taps)
        expected = (packed.node_starts[-1], self.vocab_size)
        require(tuple(out.logits.shape) == expected, f"logits are {tuple(out.logits.shape)}, not {expected}")
        return out

    def start(self, packed: PackedDrafts, taps: Seq[int] = ()) -> SlicedPass:
        """Check the layout of a pass that runs in slices."""
        self._check_pass(packed)
        self._in_slices |= {seq.id for seq in packed.seqs}
        self.num_sliced += 1
        return cast(SlicingTarget, self.target).start(packed, taps)

    def _check_pass(self, packed: PackedDrafts) -> None:
        require(len({seq.id for seq in packed.seqs}) == len(packed.seqs), "one sequence twice in a pass")
        for i, seq in enumerate(packed.seqs):
            require(seq.id not in self._in_slices, f"sequence {seq.id}: another pass while its own runs in slices")
            self._check_rows(packed, i, seq)
        self.num_passes += 1

    def _check_rows(self, packed: PackedDrafts, i: int, seq: Sequence) -> None:
        cached, certain = self.cached[seq.id], packed.num_certain[i]
        draft, tree = packed.drafts[i], packed.trees[i]
        rows = slice(packed.row_starts[i], packed.row_starts[i + 1])
        tokens, positions = packed.tokens[rows].tolist(), packed.positions[rows].tolist()
        name = f"sequence {seq.id}"
        require(len(cached) == seq.num_cached, f"{name}: num_cached={seq.num_cached}, the cache holds {len(cached)}")
        require(cached == seq.tokens[: len(cached)], f"{name}: the cache does not spell the text")
        start = len(cached)
        require(tokens[:certain] == seq.tokens[start : start + certain], f"{name}: prompt rows are not the prompt")
        expected = [seq.position(i) for i in range(start, start + certain)]
        if tree is not None:
            pending_at = start + certain
            require(pending_at == len(seq.tokens) - 1, f"{name}: a draft before the prompt was read")
            require(tokens[certain] == seq.pending, f"{name}: node 0 is not the pending token")
            expected += [seq.position(pending_at + depth) for depth in tree.depths]
        require(positions == expected, f"{name}: positions {positions}, expected {expected}")
        if draft is not None and tree is not None:
            check_draft(draft, tree, self.vocab_size, name)
        self._pass[seq.id] = (certain, tree)

    def commit(self, seq: Sequence, keep: Seq[int]) -> None:
        """Check that the kept rows are the prompt rows and one path, and that they spell the text."""
        require(seq.id in self._pass, f"sequence {seq.id}: commit without a pass")
        certain, tree = self._pass.pop(seq.id)
        self._in_slices.discard(seq.id)
        keep = list(keep)
        require(keep[:certain] == list(range(certain)), f"sequence {seq.id}: a prompt row was dropped")
        cached = self.cached[seq.id]
        cached += seq.tokens[len(cached) : len(cached) + certain]
        nodes = [row - certain for row in keep[certain:]]
        if tree is not None:
            require(bool(nodes) and nodes[0] == 0, f"sequence {seq.id}: the pending token was not kept")
            for above, node in pairwise(nodes):
                require(node in tree.children[above], f"sequence {seq.id}: kept nodes {nodes} are no path of the tree")
            cached += [tree.tokens[node] for node in nodes]
        require(cached == seq.tokens[: len(cached)], f"sequence {seq.id}: kept rows do not spell the text")
        if tree is not None:
            require(
                len(cached) == len(seq.tokens) - 1, f"sequence {seq.id}: {len(cached)} rows, {len(seq.tokens)} tokens"
            )
        self.target.commit(seq, keep)
        if self.recheck is not None:
            self.recheck(seq, cached)

    def replay(self, packed: PackedDrafts, i: int, node: int) -> Replay:
        """A drifted pass may be asked again before it is committed."""
        require(packed.seqs[i].id in self._pass, f"sequence {packed.seqs[i].id}: replay without a pass")
        return cast(ReplayingTarget, self.target).replay(packed, i, node)

    def end(self, seq: Sequence) -> None:
        """A sequence may end once, after it began."""
        require(seq.id in self.cached, f"sequence {seq.id} ended without beginning")
        del self.cached[seq.id]
        self._pass.pop(seq.id, None)
        self._in_slices.discard(seq.id)
        self.target.end(seq)


def check_draft(draft: Draft, tree: HostTree, vocab_size: int, name: str) -> None:
    """A draft is well formed: ids in range, distributions that are distributions, acceptable nodes that see their
    ancestors alone."""
    n = draft.num_nodes
    require(all(0 <= token < vocab_size for token in tree.tokens), f"{name}: a drafted id is outside the vocabulary")
    require(draft.roles is None or int(draft.roles[0]) == Role.VERIFY, f"{name}: the pending node is a probe")
    for node, children in enumerate(tree.children):
        by_row: dict[int, list[int]] = {}
        for child in children:
            row = node if draft.drawn_from is None else int(draft.drawn_from[child])
            by_row.setdefault(row, []).append(tree.tokens[child])
        for row, drafted in by_row.items():
            if draft.q is None:  # a child drawn with replacement may come twice; a table's would be a wasted row
                require(len(set(drafted)) == len(drafted), f"{name}: node {node} has the same child twice: {drafted}")
                continue
            distribution = draft.q[row].double()
            require(
                bool((distribution >= 0).all()) and abs(float(distribution.sum()) - 1) < 1e-4,
                f"{name}: q[{row}] is no distribution",
            )
            require(
                all(distribution[token] > 0 for token in drafted),
                f"{name}: q[{row}] gives no mass to a child that it drew",
            )
    if draft.mask is not None:
        require(tuple(draft.mask.shape) == (n, n), f"{name}: mask is {tuple(draft.mask.shape)}, not {(n, n)}")
        acceptable = {0} | {child for children in tree.children for child in children}
        for node in acceptable:
            sees = torch.nonzero(draft.mask[node]).flatten().tolist()
            own = sorted({0, node, *tree.path(node)})
            require(sees == own, f"{name}: acceptable node {node} sees {sees}, its path is {own}")


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
