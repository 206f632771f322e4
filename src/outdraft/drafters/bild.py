"""Big little decoder: the small model writes while it is sure of itself, and hands over where it is not.

    t1 (0.9)  t2 (0.8)  t3 (0.4)        fallback 0.6: t3 is thrown away, the large model is asked after t2

The guess is greedy, so a token may be dropped for being unsure: any rule for deterministic guesses is exact on what is
left. BiLD's own rule keeps a guess until the large model finds one very improbable: verifier `rollback`, a lossy one.
Kim et al., "Speculative decoding with big little decoder", 2023, https://arxiv.org/abs/2302.07863. Data in: sequences;
data out: chains without a distribution.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.core.draft import Draft, chain
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.chains.grow import grow_chains
from outdraft.drafters.shared.limits import cutoffs_of, usable_depth
from outdraft.drafters.shared.networks.load_draft import ModelOptions
from outdraft.drafters.shared.networks.own_model import DraftModel, ModelDrafter, describe_model, open_model
from outdraft.models.networks.port import TargetPort
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class BildOptions(ModelOptions):
    """Which model, and when it hands over. Raises `ConfigError` naming what is out of range."""

    # a drafted token less probable than this is thrown away, and the guess ends before it
    fallback_threshold: float = 0.6

    def __post_init__(self) -> None:
        ModelOptions.__post_init__(self)
        check_range(self, "fallback_threshold", least=0, most=1)


class BildDrafter(ModelDrafter):
    """A greedy chain as long as every token is sure."""

    def __init__(self, options: BildOptions, model: DraftModel) -> None:
        super().__init__(model)
        self._threshold = options.fallback_threshold

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A guess for each sequence; nothing where the first token is unsure already."""
        depths = [
            min(usable_depth(seq, budget), self.model.room(seq.tokens))
            for seq, budget in zip(seqs, budgets, strict=True)
        ]
        cutoffs = cutoffs_of(budgets, self._threshold)
        drafts = grow_chains(seqs, depths, self.model.chain_network(seqs), cutoffs, sample="greedy")
        return [_without_unsure(draft, cutoff.token) for draft, cutoff in zip(drafts, cutoffs, strict=True)]


def _without_unsure(draft: Draft, least: float) -> Draft:
    """The chain less its last token, if that is what ended it."""
    if draft.confidence is None or draft.confidence[-1] >= least:
        return draft
    return chain(draft.tokens[:-1], confidence=draft.confidence[:-1])


METHOD: DrafterMethod[BildOptions, TargetPort, BildDrafter] = DrafterMethod(
    name="bild",
    summary="a smaller model writes greedily and hands over where it is unsure",
    build=lambda options, port: BildDrafter(options, open_model(options, port)),
    options=BildOptions,
    paper=arxiv("2302.07863", "Speculative decoding with big little decoder"),
    describe=describe_model,
)
