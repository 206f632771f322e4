"""The target as the algorithm sees it, and as a drafter may see it.

`Target` scores packed rows. `TargetPort` is the small door for drafters that are part of the target (self-speculation,
heads). What they want to hear of the target's passes they declare in `Needs`, which is checked once at start. A model
knows nothing of methods, and a method never touches a model.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from outdraft.core.packing import PackedDrafts
from outdraft.core.sequence import Sequence
from outdraft.core.skip import NO_SKIP, Skip

# A function over tensors that stay where they are -> one that does the same, cheaper, for what they then hold.
Recorder = Callable[[Callable[[], Any]], Callable[[], Any]]


def after_attention(layer: int) -> int:
    """The tap in the middle of a layer: the hidden state after its attention, before its feed-forward part."""
    return -1 - layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a drafter needs of the target's passes, declared once. The port serves everyone."""

    taps: tuple[int, ...] = ()  # hidden states after so many layers, for every committed row, in `observe`
    prompt_taps: tuple[int, ...] = ()  # the same, of passes that read a prompt only
    resume_layer: int = 0  # its drafts restart the target behind so many layers, where taps before them see nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOutput:
    """One pass's result."""

    logits: Tensor  # [M, V] at the draft nodes
    hidden: Mapping[int, Tensor] = field(default_factory=dict)  # tap -> [R, D] at every row
    drifted: frozenset[int] = frozenset()  # i: rows of packed.seqs[i] may differ from plain decoding's in the last bits


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The end of a path, computed again as plain decoding computes it."""

    logits: Tensor  # [V] at the path's last node
    num_rows: int  # passes of one row that it took


class Target(Protocol):
    """Scores guesses and remembers what was kept."""

    vocab_size: int
    max_len: int

    def begin(self, seq: Sequence) -> None:
        """Make room for a new sequence."""
        ...

    def forward(self, packed: PackedDrafts, taps: Seq[int] = ()) -> TargetOutput:
        """Score every node; the K/V of all rows is written, tentatively."""
        ...

    def commit(self, seq: Sequence, keep: Seq[int]) -> None:
        """Keep these of the sequence's rows of the last pass (indices among its own rows, in path order)."""
        ...

    def replay(self, packed: PackedDrafts, i: int, node: int) -> Replay:
        """Score `node` of drifted sequence i again, row by row from where its memory left plain decoding's.

        Of the last pass's rows the path to `node` alone stands afterwards, so that `commit` may keep no other. Never
        asked of a target whose passes drift nowhere.
        """
        ...

    def end(self, seq: Sequence) -> None:
        """Forget the sequence."""
        ...


class TargetPort(Protocol):
    """What a drafter may use of the target."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    max_len: int
    kv_shape: tuple[int, int, int]  # layers, key heads and head width of the cache's rows
    device: torch.device
    dtype: torch.dtype
    record: Recorder | None  # how a drafter's own network should record its passes, if it can; None: not at all
    source: Path | None  # where the weights came from, for a drafter that loads them again in another form
    codec: object | None  # the target's tokenizer, a `codecs.text.TextCodec`, for drafters of another vocabulary

    @property
    def native(self) -> object | None:
        """The target as a `models.native.NativeDecoder`, for a drafter that runs its packed layers; None: PyTorch."""
        ...

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Token embeddings: [n] -> [n, D]."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """The target's final norm and head: [n, D] -> [n, V]."""
        ...

    def head(self, hidden: Tensor) -> Tensor:
        """The target's head alone, without the norm: [n, D] -> [n, V]."""
        ...

    def score(self, ids: Tensor) -> Tensor:
        """Logits after each of n short texts of T tokens, each by itself: [n, T] -> [n, V]. Remembers nothing."""
        ...

    def pass_seconds(self, num_rows: int) -> float:
        """Seconds of a pass over `num_rows` rows of one short text, measured now; for those who weigh costs."""
        ...

    def tentative(self, seqs: Seq[Sequence], offset: int, rooms: Seq[int]) -> Any:
        """The attention context (`nn.context`) of one token of each sequence, `offset` places after the pending one.

        It sees the tentative rows of earlier calls; there is room for `rooms[i]` rows from its own on.
        """
        ...

    def again(self, seqs: Seq[Sequence], counts: Seq[int]) -> Any:
        """The context of a pass over the last `counts[i]` cached tokens once more.

        Each sees the text's rows before them and the new rows of its own kind up to itself, which stand tentatively
        behind the text: nothing that is committed is touched.
        """
        ...

    def run(
        self, ids: Tensor, positions: Tensor, context: Any, *, stop: int | None = None, skip: Skip = NO_SKIP
    ) -> Tensor:
        """Layers [0, stop), all by default, over any context, a drafter's own cache included: [N], [N] -> [N, D]."""
        ...

    def rows(self, seq: Sequence, layer: int) -> tuple[Tensor, Tensor]:
        """K and V of the text's cached rows, each [Hkv, n, d], as the cache keeps them (turned). Not to be changed."""
        ...
