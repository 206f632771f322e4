"""Big little decoder: the small model writes while it is sure of itself, and hands over where it is not.

    t1 (0.9)  t2 (0.8)  t3 (0.4)        fallback 0.6: t3 is thrown away, the large model is asked after t2

The guess is greedy, so a token may be dropped for being unsure: any rule for deterministic guesses is exact on what is
left. BiLD's own rule keeps a guess until the large model finds one very improbable: verifier `rollback`, a lossy one.
Kim et al., "Speculative decoding with big little decoder", 2023, https://arxiv.org/abs/2302.07863. Data in: sequences;
data out: chains without a law.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.core.draft import Draft, chain
from outdraft.core.drafter import Seen
from outdraft.core.errors import ConfigError
from outdraft.core.policy import Budget
from outdraft.core.registry import Method, Paper
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs, TargetPort
from outdraft.drafters.shared.choose import best_tokens
from outdraft.drafters.shared.draft_model import DraftModel
from outdraft.drafters.shared.limits import usable_depth
from outdraft.drafters.shared.load_draft import ModelOptions, describe_network, load_draft


@dataclass(frozen=True, slots=True, kw_only=True)
class BildOptions(ModelOptions):
    """Which model, and when it hands over. Raises `ConfigError` naming what is out of range."""

    fallback_threshold: float = 0.6  # a token less probable than this is thrown away, and the guess ends before it

    def __post_init__(self) -> None:
        ModelOptions.__post_init__(self)
        if not 0 <= self.fallback_threshold <= 1:
            raise ConfigError(f"fallback_threshold={self.fallback_threshold}: must be between 0 and 1")


class BildDrafter:
    """A greedy chain as long as every token is sure."""

    needs = Needs()

    def __init__(self, options: BildOptions, model: DraftModel) -> None:
        self.model = model
        self._threshold = options.fallback_threshold

    def begin(self, seqs: Seq[Sequence]) -> None:
        """Memory for each; the prompt is read when the first guess is wanted."""
        for seq in seqs:
            self.model.add(seq.id)

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A guess for each sequence; nothing where the first token is unsure already."""
        depths = [self._depth(seq, budget) for seq, budget in zip(seqs, budgets, strict=True)]
        written: list[list[int]] = [[] for _ in seqs]
        sure: list[list[float]] = [[1.0] for _ in seqs]
        rows = [i for i, depth in enumerate(depths) if depth > 0]
        step = 0
        while rows:
            logits = self._feed(seqs, rows, written, step)
            chosen = zip(rows, *best_tokens(seqs, rows, logits, confident=True), strict=True)
            rows, step = [], step + 1
            for i, token, confidence in chosen:
                if confidence < max(self._threshold, budgets[i].confidence):
                    continue
                written[i].append(token)
                sure[i].append(confidence)
                if step < depths[i]:
                    rows.append(i)
        return [
            chain([seq.pending, *path], confidence=torch.tensor(each))
            for seq, path, each in zip(seqs, written, sure, strict=True)
        ]

    def observe(self, seen: Seq[Seen]) -> None:
        """The text says what was accepted."""

    def end(self, seqs: Seq[Sequence]) -> None:
        """Free the memory."""
        for seq in seqs:
            self.model.free(seq.id)

    def _depth(self, seq: Sequence, budget: Budget) -> int:
        return max(0, min(usable_depth(seq, budget), self.model.max_len + 1 - len(seq.tokens)))

    def _feed(self, seqs: Seq[Sequence], rows: list[int], written: list[list[int]], step: int) -> Tensor:
        if step == 0:
            return self.model.read([seqs[i] for i in rows])
        return self.model.guess([seqs[i].id for i in rows], [written[i][-1] for i in rows], step)


def build(options: BildOptions, port: TargetPort) -> BildDrafter:
    """Load the small model."""
    return BildDrafter(options, DraftModel(load_draft(options, port)))


METHOD = Method(
    name="bild",
    kind="drafter",
    summary="a smaller model writes greedily and hands over where it is unsure",
    build=build,
    options=BildOptions,
    paper=Paper(
        title="Speculative decoding with big little decoder", year=2023, link="https://arxiv.org/abs/2302.07863"
    ),
    describe=lambda drafter: describe_network(drafter.model.decoder),
)
