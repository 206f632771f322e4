"""Universal assisted generation: a draft model of any vocabulary writes text, which is read in the target's tokens.

    text ... " a t"  ->  draft ids  ->  greedy chain  ->  "ime ago"  ->  target ids [ime][ ago]

The guess is a function of the text alone, so any rule for deterministic guesses judges it exactly: at temperature 0 a
token is kept if the target would have written it, else if the target's draw is that very token (string-level exact
match). Timor et al., "Accelerating LLM inference with lossless speculative decoding algorithms for heterogeneous
vocabularies", 2025, https://arxiv.org/abs/2502.05202. Data in: sequences; data out: chains without a distribution.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from math import ceil, nan

from outdraft.codecs.codec import TextualCodec
from outdraft.core.draft import Draft, chain
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.choose import best_tokens, check_finite
from outdraft.drafters.shared.limits import usable_depth
from outdraft.drafters.shared.networks.load_draft import ModelOptions
from outdraft.drafters.shared.networks.own_model import DraftModel, Text, describe_model, open_model
from outdraft.drafters.shared.networks.retokenize import (
    RetokenizedDrafter,
    encode_end,
    load_codecs,
    spell,
    whole_characters,
)
from outdraft.models.networks.port import TargetPort


@dataclass(frozen=True, slots=True, kw_only=True)
class UniversalOptions(ModelOptions):
    """Which model; its directory holds its own tokenizer."""


class UniversalDrafter(RetokenizedDrafter):
    """A greedy chain of the draft model, as many of its tokens as the target's would make of them."""

    def __init__(self, model: DraftModel, target: TextualCodec, draft: TextualCodec) -> None:
        super().__init__(model, (target, draft), hold_spaces=True)
        self._target, self._draft = target, draft

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A guess for each sequence with a budget whose text ends with a whole character."""
        depths = [usable_depth(seq, budget) for seq, budget in zip(seqs, budgets, strict=True)]
        lengths = [self._length(seq, depth) for seq, depth in zip(seqs, depths, strict=True)]
        rows = [i for i, length in enumerate(lengths) if length > 0]
        drafts = [chain([seq.pending]) for seq in seqs]
        if rows:
            written = self._write([seqs[i] for i in rows], [lengths[i] for i in rows])
            for i, ids in zip(rows, written, strict=True):
                drafts[i] = chain([seqs[i].pending, *self._translate(ids, self._texts[seqs[i].id].held)[: depths[i]]])
        return drafts

    def _length(self, seq: Sequence, depth: int) -> int:
        """How many of the draft model's tokens make about `depth` of the target's, as the text so far has it."""
        if depth == 0:
            return 0
        ids = self.read(seq)
        return min(ceil(depth * len(ids) / len(seq.tokens)), self.model.room(ids))

    def _write(self, seqs: Seq[Sequence], lengths: list[int]) -> list[list[int]]:
        """The draft model's best tokens, one pass a token over all sequences."""
        texts = [Text(seq.id, self._texts[seq.id].ids) for seq in seqs]
        network = self.model.chain_network(texts)
        rows = list(range(len(seqs)))
        if network.chain is not None:
            found = network.chain(rows, lengths, [None] * len(seqs), None)
            check_finite(seqs, rows, [nan if -1 in path else 0.0 for path in found.tokens])
            return found.tokens
        written: list[list[int]] = [[] for _ in seqs]
        last, step, feed = [text.tokens[-1] for text in texts], 0, network.steps(lengths)
        while rows:
            logits = feed(step, rows, last, len(rows))
            for i, token in zip(rows, best_tokens(seqs, rows, logits, confident=False)[0], strict=True):
                written[i].append(token)
            step += 1
            rows = [i for i in rows if len(written[i]) < lengths[i]]
            last = [written[i][-1] for i in rows]
        return written

    def _translate(self, ids: list[int], held: int) -> list[int]:
        """In the target's tokens, less the spaces that stand there already; the end of a text is given as its token."""
        ends = self._draft.eos_token_ids
        stop = next((i for i, token in enumerate(ids) if token in ends), len(ids))
        text = whole_characters(spell(self._draft, ids[:stop]))
        if not text.startswith(" " * held):
            return []
        text = text[held:]
        found = (encode_end(self._target, text) if text else None) or []
        return [*found, min(self._target.eos_token_ids)] if stop < len(ids) and self._target.eos_token_ids else found


def build(options: UniversalOptions, port: TargetPort) -> UniversalDrafter:
    """Load the draft model and both tokenizers."""
    target, draft = load_codecs(options.model, port)
    return UniversalDrafter(open_model(options, port, same_vocab=False), target, draft)


METHOD = DrafterMethod(
    name="universal",
    summary="a smaller model of any vocabulary writes text, which is guessed in the target's tokens",
    build=build,
    options=UniversalOptions,
    paper=arxiv(
        "2502.05202",
        "Accelerating LLM inference with lossless speculative decoding algorithms for heterogeneous vocabularies",
    ),
    describe=describe_model,
)
