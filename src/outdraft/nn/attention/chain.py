"""Static rows of a whole draft chain: a first pass over the text's new tokens, then one row a sequence and step.

    first    [ A A | B ]      what the text has gained since the last guess; its last row predicts t1
    step 1   [ t1A | t1B ]    one slot further on, and so on; where each row stands is known before any token is

A sequence that wants fewer steps than the others goes on into the page of the padding rows; the caller drops that.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch

from outdraft.core.cache import PAGE
from outdraft.nn.attention.rows import Bucket, NewRows, PagedRows, RowBuffers, StaticInts, padded


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainRows:
    """One sequence's part of a chain: `depth` tokens are wanted, of which all but the last are fed."""

    new: NewRows  # its pages hold the slots of all steps
    depth: int


class ChainBuffers:
    """The static memory of one bucket and number of steps: `first`, and `steps` - 1 times one row a sequence."""

    def __init__(self, bucket: Bucket, steps: int, dustbin: int, device: torch.device) -> None:
        self._seqs, self._dustbin, self._num_steps = bucket.seqs, dustbin, steps - 1
        self.first = RowBuffers(bucket, dustbin, device)
        self._ints = StaticInts(max(1, 3 * self._num_steps * bucket.seqs), device)
        owners = torch.arange(bucket.seqs, device=device)
        ones, zeros = torch.ones_like(owners), torch.zeros_like(owners)
        rows = self._ints.tensor[: 3 * self._num_steps * bucket.seqs].view(self._num_steps, 3, bucket.seqs)
        self.steps = [
            PagedRows(
                slots=slots,
                positions=positions,
                bases=bases,
                owners=owners,
                sees=ones[:, None],
                starts=owners,
                counts=ones,
                tables=self.first.rows.tables,
                block_seqs=owners,
                block_rows=zeros,
                block=bucket.block,
            )
            for slots, positions, bases in (step.unbind() for step in rows.unbind())
        ]

    def fill(self, parts: Seq[ChainRows]) -> None:
        """Take these sequences; the rest is padding."""
        self.first.fill([part.new for part in parts])
        flat: list[int] = []
        for step in range(1, self._num_steps + 1):
            bases = [part.new.base + len(part.new.ids) + step - 1 for part in parts]
            live = [step < part.depth for part in parts]
            slots = [
                part.new.pages[base // PAGE] * PAGE + base % PAGE if alive else self._dustbin * PAGE
                for part, base, alive in zip(parts, bases, live, strict=True)
            ]
            bases = [base if alive else 0 for base, alive in zip(bases, live, strict=True)]
            positions = [part.new.positions[-1] + step if alive else 0 for part, alive in zip(parts, live, strict=True)]
            flat += padded(slots, self._seqs, self._dustbin * PAGE)
            flat += padded(positions, self._seqs, 0)
            flat += padded(bases, self._seqs, 0)
        if flat:
            self._ints.send(flat)
