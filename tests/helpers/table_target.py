"""A target without a network: the next-token logits are a seeded random table over the last tokens.

It keeps the contract of `core.target.Target` and nothing else, so that a test of the loop, of a rule or of a drafter
runs in microseconds and its exact distribution is known. Node v of a draft is scored from the cached tokens and v's own
path, which is what attention through a tree mask would see.
"""

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.core.packing import PackedDrafts
from outdraft.core.sequence import Sequence
from outdraft.core.target import TargetOutput
from outdraft.options.errors import CapabilityError


class TableTarget:
    """`order`: how many last tokens decide the next; `sharpness`: standard deviation of the logits (0 is uniform)."""

    def __init__(
        self,
        *,
        vocab_size: int = 11,
        order: int = 2,
        sharpness: float = 2.0,
        seed: int = 0,
        max_len: int = 256,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        shape = (vocab_size,) * (order + 1)
        self.table = (torch.randn(shape, generator=generator, dtype=torch.float64) * sharpness).to(dtype)  # [V, .., V]
        self.order = order
        self.vocab_size = vocab_size
        self.max_len = max_len
        self.cached: dict[int, list[int]] = {}  # sequence id -> tokens of committed rows
        self._pass: dict[int, list[int]] = {}  # sequence id -> tokens of the last pass, tentative
        self.num_passes = 0

    def next_logits(self, tokens: Seq[int]) -> Tensor:
        """[V] logits of what follows `tokens`; short texts are padded with token 0 on the left."""
        tail = [0] * self.order + list(tokens)
        return self.table[tuple(tail[len(tail) - self.order :])]

    def begin(self, seq: Sequence) -> int:
        self.cached[seq.id] = []
        return 0

    def forward(self, packed: PackedDrafts, taps: Seq[int] = ()) -> TargetOutput:
        """Logits [M, V]; a tap is each row's token, one-hot [R, V]: a test can see which row it got."""
        self.num_passes += 1
        rows: list[Tensor] = []
        for i, (seq, draft, tree) in enumerate(zip(packed.seqs, packed.drafts, packed.trees, strict=True)):
            tokens = [int(t) for t in packed.tokens[packed.row_starts[i] : packed.row_starts[i + 1]]]
            self._pass[seq.id] = tokens
            if draft is None or tree is None:
                continue
            if draft.embeds is not None or draft.resume is not None:
                raise CapabilityError("TableTarget has no layers: it takes neither embeds nor resume")
            before = self.cached[seq.id] + tokens[: packed.num_certain[i]]
            for node in range(draft.num_nodes):
                rows.append(self.next_logits(before + [tree.tokens[v] for v in (0, *tree.path(node))]))
        logits = torch.stack(rows) if rows else self.table.new_zeros(0, self.vocab_size)
        one_hot = torch.nn.functional.one_hot(packed.tokens, self.vocab_size).to(logits.dtype)
        return TargetOutput(
            logits=logits, hidden={tap: one_hot for tap in taps}, logits_at=lambda rows: self._logits_at(packed, rows)
        )

    def _logits_at(self, packed: PackedDrafts, rows: range) -> Tensor:
        """[n, V] at certain rows, which stand in a chain."""
        i = next(i for i, own in enumerate(packed.prompt_rows) if rows.start in own)
        texts = (packed.seqs[i].tokens[: packed.seqs[i].num_cached + row - packed.row_starts[i] + 1] for row in rows)
        return torch.stack([self.next_logits(text) for text in texts])

    def commit(self, seq: Sequence, keep: Seq[int]) -> None:
        """Keep these rows of the last pass."""
        tokens = self._pass.pop(seq.id)
        self.cached[seq.id] += [tokens[row] for row in keep]

    def end(self, seq: Sequence) -> None:
        del self.cached[seq.id]
        self._pass.pop(seq.id, None)
