"""The contract of the target: it scores packed rows, and keeps the cache rows of those that were accepted.

A drafter declares in `Needs` which outputs of the passes it wants; this is checked once at start. What a drafter may
use of it besides is `models.port.TargetPort`.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from outdraft.core.packing import PackedDrafts
from outdraft.core.sequence import Sequence

# A function over tensors that stay where they are -> one that does the same, cheaper, for what they then hold.
Recorder = Callable[[Callable[[], Any]], Callable[[], Any]]


def after_attention(layer: int) -> int:
    """The tap in the middle of a layer: the hidden state after its attention, before its feed-forward part."""
    return -1 - layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a drafter needs of the target's passes, declared once. `models.port` serves everyone."""

    taps: tuple[int, ...] = ()  # hidden states after so many layers, for every committed row, in `observe`
    prompt_taps: tuple[int, ...] = ()  # the same, of passes that read a prompt only
    resume_layer: int = 0  # its drafts restart the target behind so many layers, where taps before them see nothing
    layer_subset: bool = False  # it runs some of the target's layers and leaves others out


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOutput:
    """What one pass of the target gives back."""

    logits: Tensor  # [M, V] at the draft nodes
    hidden: Mapping[int, Tensor] = field(default_factory=dict)  # tap -> [R, D] at every row
    drifted: frozenset[int] = frozenset()  # i: rows of packed.seqs[i] may differ from plain decoding's in the last bits
    replayed: Mapping[int, int] = field(default_factory=dict)  # i: so many rows of packed.seqs[i] were computed again
    logits_at: Callable[[range], Tensor] | None = None  # rows of the pass -> [n, V]; there if `packed.prompt_rows` are


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The end of a path, computed again as plain decoding computes it."""

    logits: Tensor  # [V] at the path's last node
    num_rows: int  # passes of one row that it took


class Target(Protocol):
    """Scores guesses and remembers what was kept."""

    vocab_size: int
    max_len: int

    def begin(self, seq: Sequence) -> int:
        """Make room for a new sequence. Returns how many rows of its prompt are there already.

        At most all but the pending token's. They are not read again, so a drafter does not see them in `observe`. A
        sequence that has ended may begin again, with all that it has written by then.
        """

    def forward(self, packed: PackedDrafts, taps: Seq[int] = ()) -> TargetOutput:
        """Score every node; the K/V of all rows is written, tentatively."""

    def commit(self, seq: Sequence, keep: Seq[int]) -> None:
        """Keep these of the sequence's rows of the last pass (indices among its own rows, in path order)."""

    def end(self, seq: Sequence) -> None:
        """Forget the sequence and everything kept for it."""


class SlicedPass(Protocol):
    """A pass that stops between layers, while other passes of the same target run."""

    def run(self, num_layers: int) -> TargetOutput | None:
        """So many layers more. None: the pass is not over. Its sequence is in no other pass until it is."""


class SlicingTarget(Target, Protocol):
    """A target whose rows have the same bits if their pass stops on the way."""

    def start(self, packed: PackedDrafts, taps: Seq[int] = ()) -> SlicedPass:
        """As `forward`, of which nothing has run yet but that there is room for the rows."""


class ReplayingTarget(Target, Protocol):
    """A target whose passes may drift, and which can go back (`decode/guard.py`)."""

    def replay(self, packed: PackedDrafts, i: int, node: int) -> Replay:
        """Score `node` of drifted sequence i again, row by row from where its memory left plain decoding's.

        Of the last pass's rows the path to `node` alone stands afterwards, so that `commit` may keep no other. It may
        be asked again for a node below. Where another pass comes instead of `commit`, all of it is forgotten.
        """
