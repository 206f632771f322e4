"""Classifier-free guidance around a target: a guided text has a shadow, the same output behind a negative prompt.

    text      [ prompt          | output | P - draft ]      log c
    shadow    [ negative prompt | output | P - draft ]      log u       log u + scale * (log c - log u)

The shadow's rows score the same tree, so every node has guided logits, and every drafter and every rule works on them
as on any target's (`sampling/guidance.py` has the formula and the paper). A shadow is a sequence of the target beneath,
with a cache of its own there. It reads its prompt in its own chunks, one in a pass, while the text reads the text's; a
text that is read first waits without rows (`Sequence.beside`). From the pending token on both are in step: what is kept
of the text's nodes is kept of the shadow's. Text that is not guided passes through. Hidden states, for drafters that
read them, are those of the text's own rows.
"""

from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from outdraft.core.draft import Draft
from outdraft.core.packing import PackedDrafts, pack
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.core.target import Replay, ReplayingTarget, SlicedPass, SlicingTarget, Target, TargetOutput
from outdraft.options.params import SamplingParams
from outdraft.sampling.guidance import guide

_APART = 1 << 40  # between the id of a text and that of its shadow: no engine counts so far


class GuidedTarget:
    """A target that guides the requests which ask for it. It stands inside the guard, which must see guided logits.

    `apart`: shadows have a pass of their own, for targets whose rows depend on the pass they are in, so that plain
    decoding's rows are alone in theirs. Else they share the text's pass, so that weights are read once for both.
    """

    def __init__(self, target: Target, *, apart: bool = False) -> None:
        self.target = target
        self.apart = apart
        self.vocab_size, self.max_len = target.vocab_size, target.max_len
        self._shadows: dict[int, Sequence] = {}  # of guided sequences, by their ids
        self._certain: dict[int, int] = {}  # of those that the last pass judged: rows before the pending one
        self._scored: PackedDrafts | None = None  # the shadows' part of the last pass

    def begin(self, seq: Sequence) -> int:
        """Make room for the sequence, and for its shadow; for neither if that raises."""
        num_there = self.target.begin(seq)
        if seq.request.params.guides:
            shadow = shadow_of(seq)
            try:
                shadow.num_cached = self.target.begin(shadow)
            except BaseException:
                self.target.end(seq)
                raise
            self._shadows[seq.id] = seq.beside = shadow
        return num_there

    def forward(self, packed: PackedDrafts, taps: Seq[int] = ()) -> TargetOutput:
        """The target's pass, in which the logits of guided sequences are guided."""
        self._scored = None
        self._certain.clear()
        guided = [i for i, seq in enumerate(packed.seqs) if seq.id in self._shadows]
        for i in guided:
            self._read(packed.seqs[i], packed.num_beside[i])
        judged = [i for i in guided if packed.drafts[i] is not None]
        own = _with_rows(packed)
        if not judged:
            return self._own(packed, own, taps)
        beside = self._scored = self._beside(packed, judged)
        if self.apart:
            scored, shadows = self._own(packed, own, taps), self.target.forward(beside)
        else:
            both = self.target.forward(_joined(own, beside), taps)
            scored, shadows = _parted(both, own)
            scored = _of_all(scored, packed)
        logits = scored.logits if scored.logits.dtype == torch.float64 else scored.logits.float()
        for j, i in enumerate(judged):
            nodes = packed.node_slice(i)
            scale = packed.seqs[i].request.params.guidance_scale
            logits[nodes] = guide(logits[nodes], shadows.logits[beside.node_slice(j)], scale)
        return replace(scored, logits=logits, drifted=scored.drifted | {judged[j] for j in shadows.drifted})

    def start(self, packed: PackedDrafts, taps: Seq[int] = ()) -> SlicedPass:
        """The target's, of texts that are not guided."""
        return cast(SlicingTarget, self.target).start(packed, taps)

    def replay(self, packed: PackedDrafts, i: int, node: int) -> Replay:
        """Score a node again, with both prompts."""
        target, seq = cast(ReplayingTarget, self.target), packed.seqs[i]
        own = target.replay(packed, i, node)
        shadow = self._shadows.get(seq.id)
        if shadow is None:
            return own
        assert self._scored is not None
        beside = target.replay(self._scored, self._scored.seqs.index(shadow), node)
        logits = guide(own.logits[None], beside.logits[None], seq.request.params.guidance_scale)[0]
        return Replay(logits=logits, num_rows=own.num_rows + beside.num_rows)

    def commit(self, seq: Sequence, keep: Seq[int]) -> None:
        """Keep these rows of the sequence's, and the shadow's rows of the same nodes."""
        if not keep:  # it had no row in the pass
            return
        self.target.commit(seq, keep)
        certain = self._certain.pop(seq.id, None)
        if certain is None:
            return
        shadow = self._shadows[seq.id]
        shadow.tokens += seq.tokens[seq.prompt_len + shadow.num_output :]  # what was written since
        nodes = [row - certain for row in keep if row >= certain]  # the rows before them are of the text's own prompt
        self.target.commit(shadow, nodes)
        shadow.num_cached += len(nodes)

    def shadow(self, seq: Sequence) -> Sequence | None:
        """What stands beside a running sequence, if it is guided."""
        return self._shadows.get(seq.id)

    def end(self, seq: Sequence) -> None:
        """End the text and its shadow in the target, the shadow also if the text's own end raises."""
        self._certain.pop(seq.id, None)
        shadow, seq.beside = self._shadows.pop(seq.id, None), None
        try:
            self.target.end(seq)
        finally:
            if shadow is not None:
                self.target.end(shadow)

    def _read(self, seq: Sequence, count: int) -> None:
        """So many tokens more of the shadow, in a pass of their own."""
        if count:
            shadow = self._shadows[seq.id]
            self.target.forward(pack([shadow], [None], max_chunk=count))
            self.target.commit(shadow, range(count))
            shadow.num_cached += count

    def _own(self, packed: PackedDrafts, own: PackedDrafts, taps: Seq[int]) -> TargetOutput:
        """The pass of those that have rows in it."""
        if not own.seqs:
            return TargetOutput(logits=torch.zeros(0, self.vocab_size))
        return _of_all(self.target.forward(own, taps), packed)

    def _beside(self, packed: PackedDrafts, judged: Seq[int]) -> PackedDrafts:
        """The rows of the shadows of these sequences: their own pending tokens, and the same guesses."""
        shadows, drafts = [], []
        for i in judged:
            seq, draft = packed.seqs[i], packed.drafts[i]
            assert draft is not None
            self._certain[seq.id] = packed.num_certain[i]
            shadows.append(self._shadows[seq.id])
            drafts.append(_below(draft, seq.pending, shadows[-1].pending))
        return pack(shadows, drafts)


def guides(target: Target) -> bool:
    """Whether a `GuidedTarget` is among the wrappers of this target."""
    one: object = target
    while one is not None and not isinstance(one, GuidedTarget):
        one = getattr(one, "target", None)
    return one is not None


def unguided(target: Target) -> Target:
    """What a `GuidedTarget` stands around; another target is itself."""
    return target.target if isinstance(target, GuidedTarget) else target


def shadow_of(seq: Sequence) -> Sequence:
    """A guided text's output behind its negative prompt, as it begins. How the text is sampled is not passed on."""
    request = seq.request
    negative = request.negative_ids
    neutral = SamplingParams(max_tokens=request.params.max_tokens)
    return Sequence(
        id=seq.id - _APART,
        request=Request(prompt_token_ids=negative, params=neutral, cache_salt=request.cache_salt),
        tokens=[*negative, *seq.output],
        prompt_len=len(negative),
        max_len=seq.max_len - seq.prompt_len + len(negative),
        seed=0,
        coupled=False,
        eos_token_ids=seq.eos_token_ids,
        coins=seq.coins,
        draft_coins=seq.draft_coins,
        prompt_ids=frozenset(negative),
    )


def _below(draft: Draft, pending: int, own: int) -> Draft:
    """The guess below the shadow's pending token, which before the first token of the output is another one.

    Hidden states to resume from are the text's, so the shadow's rows start from the first layer.
    """
    tokens = draft.tokens
    if own != pending:
        tokens = torch.cat([tokens.new_tensor([own]), tokens[1:]])
    return replace(draft, tokens=tokens, resume=None)


def _with_rows(packed: PackedDrafts) -> PackedDrafts:
    """The same pass without the sequences that have no row in it; the rows and nodes are the same."""
    kept = [i for i, _ in enumerate(packed.seqs) if packed.row_starts[i] < packed.row_starts[i + 1]]
    if len(kept) == len(packed.seqs):
        return packed
    return replace(
        packed,
        seqs=tuple(packed.seqs[i] for i in kept),
        drafts=tuple(packed.drafts[i] for i in kept),
        trees=tuple(packed.trees[i] for i in kept),
        row_starts=(0, *(packed.row_starts[i + 1] for i in kept)),
        num_certain=tuple(packed.num_certain[i] for i in kept),
        node_starts=(0, *(packed.node_starts[i + 1] for i in kept)),
        embeds=tuple(packed.embeds[i] for i in kept),
        num_beside=tuple(packed.num_beside[i] for i in kept),
        prompt_rows=tuple(packed.prompt_rows[i] for i in kept),
    )


def _of_all(scored: TargetOutput, packed: PackedDrafts) -> TargetOutput:
    """The output of those that had rows, as one of the whole pass: others stand between those that drifted."""
    if not scored.drifted:
        return scored
    kept = [i for i, _ in enumerate(packed.seqs) if packed.row_starts[i] < packed.row_starts[i + 1]]
    return replace(scored, drifted=frozenset(kept[i] for i in scored.drifted))


def _joined(first: PackedDrafts, second: PackedDrafts) -> PackedDrafts:
    """Both in one pass, the rows of the first one before."""
    rows, nodes = first.row_starts[-1], first.node_starts[-1]
    return replace(
        first,
        seqs=first.seqs + second.seqs,
        drafts=first.drafts + second.drafts,
        trees=first.trees + second.trees,
        tokens=torch.cat([first.tokens, second.tokens.to(first.tokens.device)]),
        positions=torch.cat([first.positions, second.positions]),
        nodes=torch.cat([first.nodes, second.nodes + rows]),
        row_starts=first.row_starts + tuple(rows + start for start in second.row_starts[1:]),
        num_certain=first.num_certain + second.num_certain,
        node_starts=first.node_starts + tuple(nodes + start for start in second.node_starts[1:]),
        embeds=first.embeds + second.embeds,
    )


def _parted(both: TargetOutput, first: PackedDrafts) -> tuple[TargetOutput, TargetOutput]:
    """The outputs of the two parts of a joined pass."""
    rows, nodes, count = first.row_starts[-1], first.node_starts[-1], len(first.seqs)
    hidden: dict[int, Tensor] = {tap: states[:rows] for tap, states in both.hidden.items()}
    own = replace(
        both, logits=both.logits[:nodes], hidden=hidden, drifted=frozenset(i for i in both.drifted if i < count)
    )
    beside = TargetOutput(logits=both.logits[nodes:], drifted=frozenset(i - count for i in both.drifted if i >= count))
    return own, beside
