"""A target of recurrent layers, without a file: what an engine must do for states that cannot trim.

    S' = g S + k v^T     o = q S'      each layer: g, k, v, q of its input, the tokens' vectors or the layer below

A gated linear recurrence (Yang et al., "Gated linear attention transformers", 2023, https://arxiv.org/abs/2312.06635)
in float64, one row at a time, so that no bit depends on the pass. A draft moves the state past nodes that may be
rejected; `commits` says how the state of the accepted path is found. All three have the same bits:

    "inputs"   the pass keeps what each row puts into the state (g, k, v); a commit puts in those of the accepted rows
    "states"   the pass keeps the state after every row; a commit takes that of the last accepted one
    "tokens"   the pass moves the state itself, from a snapshot; a commit goes back and reads the accepted tokens again

`num_kept` counts the numbers kept between pass and commit, `num_read` the rows that went through the layers.
"""

import math
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import torch
from torch import Tensor

from outdraft.cache.pool import PagePool
from outdraft.core.cache import PAGE
from outdraft.core.draft import Draft, HostTree
from outdraft.core.packing import PackedDrafts
from outdraft.core.sequence import Sequence
from outdraft.core.target import TargetOutput
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.options.shown import shown
from tests.helpers.state_copies import CopiedStates

COMMITS = ("inputs", "states", "tokens")


@dataclass(slots=True, kw_only=True)
class _Pass:
    """Between a pass and its commit: the tokens of the rows, and what each of them left."""

    tokens: list[int]
    left: list[Tensor] = field(default_factory=list)  # a row's inputs [L, 1 + Dk + Dv], or the state after it


class RecurrentTarget:
    """`core.target.Target` over `CopiedStates`. `prefixes`: texts that begin alike begin from each other's states."""

    def __init__(
        self,
        *,
        vocab_size: int = 61,
        num_layers: int = 2,
        width: int = 8,
        seed: int = 0,
        max_len: int = 256,
        commits: str = "inputs",
        prefixes: bool = False,
        num_slots: int = 64,
    ) -> None:
        if commits not in COMMITS:
            raise ConfigError(f"commits={shown(commits)}: it is one of {', '.join(COMMITS)}")
        generator = torch.Generator().manual_seed(seed)

        def weights(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64) * (1 / math.sqrt(width))

        self.vocab_size, self.max_len, self.width = vocab_size, max_len, width
        self.commits, self.prefixes = commits, prefixes
        self.embed = weights(vocab_size, width) * math.sqrt(width)
        self.maps = weights(num_layers, width, 3 * width + 1)  # to q, k, v and g
        self.head = weights(width, vocab_size) * 2
        empty = torch.zeros(num_layers, width, width, dtype=torch.float64)
        self.states = CopiedStates(empty, pool=PagePool(num_pages=num_slots), poison=True)
        self.num_kept = self.num_read = self.num_passes = 0
        self._passes: dict[int, _Pass] = {}

    def next_logits(self, tokens: Seq[int]) -> Tensor:
        """[V] logits of what follows `tokens`: every row from the empty state, no store."""
        state = torch.zeros_like(self.maps[:, : self.width, : self.width])
        for token in tokens:
            state, _, logits = self.read(state, token)
        return logits

    def read(self, state: Tensor, token: int) -> tuple[Tensor, Tensor, Tensor]:
        """One row: the state after it [L, Dk, Dv], what it put in [L, 1 + Dk + Dv], and its logits [V]."""
        x, after, inputs = self.embed[token], [], []
        for layer, maps in enumerate(self.maps):
            q, k, v, g = (x @ maps).split([self.width, self.width, self.width, 1])
            put = torch.cat([torch.sigmoid(g + 2), k, v])
            after.append(_put_in(state[layer], put, self.width))
            inputs.append(put)
            x = torch.nn.functional.normalize(x + q @ after[-1], dim=0) * math.sqrt(self.width)
        return torch.stack(after), torch.stack(inputs), x @ self.head

    def begin(self, seq: Sequence) -> int:
        """From the longest published beginning; a whole page before the pending token at most."""
        self.states.add(seq.id)
        if not self.prefixes or seq.scores_prompt:
            return 0
        return self.states.adopt(seq.id, seq.request.cache_salt, seq.tokens[:-1])

    def forward(self, packed: PackedDrafts, taps: Seq[int] = ()) -> TargetOutput:
        """Logits [M, V]. Each node is read from its parent's state. No state changes, but under "tokens"."""
        if taps:
            raise CapabilityError("RecurrentTarget gives no hidden states: take a drafter without taps")
        self.num_passes += 1
        rows: dict[int, Tensor] = {}
        for i, (seq, draft, tree) in enumerate(zip(packed.seqs, packed.drafts, packed.trees, strict=True)):
            self._refuse(seq, draft, tree)
            start, stop, certain = packed.row_starts[i], packed.row_starts[i + 1], packed.num_certain[i]
            below = tree.parents if tree is not None else []
            parents = [*range(-1, certain - 1), *(certain + parent if parent >= 0 else certain - 1 for parent in below)]
            for row, logits in enumerate(self._run(seq, packed.tokens[start:stop].tolist(), parents)):
                rows[start + row] = logits
        wanted = [rows[node] for node in packed.nodes.tolist()]
        return TargetOutput(
            logits=torch.stack(wanted) if wanted else self.head.new_zeros(0, self.vocab_size),
            logits_at=lambda some: torch.stack([rows[row] for row in some]),
        )

    def commit(self, seq: Sequence, keep: Seq[int]) -> None:
        """Find the state after these rows of the last pass; publish it wherever a page of the text is full."""
        made = self._passes.pop(seq.id)
        if self.commits == "tokens":
            self.states.restore(seq.id, seq.num_cached)
        text = seq.tokens[: seq.num_cached] + [made.tokens[row] for row in keep]
        for row in keep:
            state = self.states.state(seq.id)
            if self.commits == "tokens":
                state = self.read(state, made.tokens[row])[0]
                self.num_read += 1
            else:
                state = made.left[row] if self.commits == "states" else _put_in(state, made.left[row], self.width)
            self.states.advance(seq.id, 1, state)
            length = self.states.length(seq.id)
            if self.prefixes and length % PAGE == 0:
                self.states.publish(seq.id, seq.request.cache_salt, text[:length])

    def end(self, seq: Sequence) -> None:
        self.states.free(seq.id)
        self._passes.pop(seq.id, None)

    def _run(self, seq: Sequence, tokens: list[int], parents: list[int]) -> list[Tensor]:
        """Logits [V] at each of a sequence's rows; what a commit will need is left in its pass."""
        if self.commits == "tokens":
            if self.states.length(seq.id) != seq.num_cached:  # the pass before was not committed
                self.states.restore(seq.id, seq.num_cached)
            self.states.snapshot(seq.id)
            self.num_kept += self.states.state(seq.id).numel()
        made = self._passes[seq.id] = _Pass(tokens=tokens)
        base, states, logits = self.states.state(seq.id), list[Tensor](), list[Tensor]()
        for token, parent in zip(tokens, parents, strict=True):
            state, inputs, row = self.read(base if parent < 0 else states[parent], token)
            states.append(state)
            logits.append(row)
            if self.commits == "tokens":
                self.states.advance(seq.id, 1, state)
            else:
                made.left.append(inputs if self.commits == "inputs" else state)
                self.num_kept += made.left[-1].numel()
        self.num_read += len(tokens)
        return logits

    def _refuse(self, seq: Sequence, draft: Draft | None, tree: HostTree | None) -> None:
        """Raise `CapabilityError` for a draft whose nodes have no state of their own to be read from."""
        if draft is None or tree is None:
            return
        if draft.embeds is not None or draft.resume is not None or draft.mask is not None:
            raise CapabilityError(
                f"the draft of sequence {seq.id} brings vectors, a mask or states to go on from, and recurrent layers "
                "read tokens from the state of their parent: take a drafter of chains or trees of tokens"
            )
        if self.commits == "tokens" and any(parent != node - 1 for node, parent in enumerate(tree.parents)):
            raise CapabilityError(
                f"the draft of sequence {seq.id} is a tree, and commits='tokens' has one state for all nodes: take a "
                "drafter of chains, or commits='inputs'"
            )


def _put_in(state: Tensor, inputs: Tensor, width: int) -> Tensor:
    """g S + k v^T, for one layer or all: state [.., Dk, Dv], inputs [.., 1 + Dk + Dv]."""
    g, k, v = inputs[..., :1], inputs[..., 1 : width + 1], inputs[..., width + 1 :]
    return g[..., None] * state + k[..., :, None] * v[..., None, :]
