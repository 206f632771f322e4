"""Token-level intersection: a draft model of another vocabulary, restricted to the tokens that both have.

    draft logits   [.. " the" " a" "the" ..]      the tokens whose bytes both vocabularies know, at the target's ids;
    target's ids   [ 5:" a"  9:" the" .. -inf ]   then warped as the request asks, which renormalises: this is q

What is drawn is drawn from that very distribution, so q is exact and every rule for sampled guesses judges it. Timor et
al., "Accelerating LLM inference with lossless speculative decoding algorithms for heterogeneous vocabularies", 2025,
https://arxiv.org/abs/2502.05202. Data in: sequences; data out: chains with the distributions they were drawn from.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.codecs.codec import TextualCodec
from outdraft.codecs.text import TextCodec
from outdraft.core.draft import Draft
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.chains.grow import grow_chains
from outdraft.drafters.shared.chains.network import ChainNetwork
from outdraft.drafters.shared.choose import Sample
from outdraft.drafters.shared.draw_options import SampleOptions
from outdraft.drafters.shared.limits import cutoffs_of, usable_depth
from outdraft.drafters.shared.networks.load_draft import ModelOptions, load_draft
from outdraft.drafters.shared.networks.own_model import DraftModel, Text, describe_model
from outdraft.drafters.shared.networks.retokenize import RetokenizedDrafter, load_codecs
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import CapabilityError


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabMapOptions(SampleOptions, ModelOptions):
    """Which model, how to draw; the model's directory holds its own tokenizer."""

    def __post_init__(self) -> None:
        ModelOptions.__post_init__(self)
        SampleOptions.__post_init__(self)


class VocabMapDrafter(RetokenizedDrafter):
    """A chain in the target's ids, over the tokens that the draft model knows too."""

    def __init__(
        self,
        model: DraftModel,
        codecs: tuple[TextualCodec, TextualCodec],
        shared: Mapping[int, int],
        vocab_size: int,
        sample: Sample,
    ) -> None:
        super().__init__(model, codecs, hold_spaces=False)
        self.num_shared = len(shared)
        self._draft_id = shared  # target id -> draft id
        self._vocab_size = vocab_size
        self._sample = sample
        device = model.decoder.device
        self._ours = torch.tensor(list(shared), device=device)  # [S] target ids
        self._theirs = torch.tensor(list(shared.values()), device=device)  # [S] draft ids

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A guess for each sequence with a budget whose text ends with a whole character."""

        def feed(step: int, rows: list[int], tokens: list[int], num_open: int) -> Tensor:
            ids = [seqs[i].id for i in rows]
            if step == 0:
                return self._in_target(self.model.read([Text(id, self._texts[id].ids) for id in ids]))
            return self._in_target(self.model.guess(ids, [self._draft_id[token] for token in tokens], step))

        depths = [self._depth(seq, budget) for seq, budget in zip(seqs, budgets, strict=True)]
        return grow_chains(seqs, depths, ChainNetwork(feed=feed), cutoffs_of(budgets), sample=self._sample)

    def _depth(self, seq: Sequence, budget: Budget) -> int:
        depth = usable_depth(seq, budget)
        if depth == 0:
            return 0
        ids = self.read(seq)
        return min(depth, self.model.room(ids)) if ids else 0

    def _in_target(self, logits: Tensor) -> Tensor:
        """Draft logits [n, V'] at the target's ids [n, V]; what the draft model does not know is impossible."""
        placed = logits.new_full((logits.shape[0], self._vocab_size), -torch.inf)
        placed[:, self._ours] = logits[:, self._theirs]
        return placed


def shared_tokens(target: TextCodec, draft: TextCodec, target_size: int, draft_size: int) -> dict[int, int]:
    """Target id -> draft id of the tokens that stand for the same bytes, and of the two end tokens.

    Where several ids of one vocabulary spell the same, the last is taken: raw bytes stand before the tokens proper.
    """
    theirs = {draft.token_bytes(i): i for i in range(min(draft_size, draft.vocab_size))}
    ours = {target.token_bytes(i): i for i in range(min(target_size, target.vocab_size))}
    shared = {i: theirs[spelled] for spelled, i in ours.items() if spelled and spelled in theirs}
    if target.eos_token_ids and draft.eos_token_ids:
        shared[min(target.eos_token_ids)] = min(draft.eos_token_ids)
    return dict(sorted(shared.items()))


def build(options: VocabMapOptions, port: TargetPort) -> VocabMapDrafter:
    """Load the draft model and both tokenizers, and find what they share."""
    target, draft = load_codecs(options.model, port)
    network = load_draft(options, port, same_vocab=False)
    shared = shared_tokens(target, draft, port.facts.vocab_size, network.config.vocab_size)
    if len(shared) < 2:
        raise CapabilityError(
            f"draft model {options.model!r} shares {len(shared)} tokens with the target: use drafter 'universal', "
            "which needs none"
        )
    return VocabMapDrafter(
        DraftModel(network, cache=port.cache), (target, draft), shared, port.facts.vocab_size, options.sample
    )


METHOD = DrafterMethod(
    name="vocab_map",
    summary="a smaller model of another vocabulary, restricted to the tokens that both have",
    build=build,
    options=VocabMapOptions,
    also_called=("draft_model+use_heterogeneous_vocab",),
    paper=arxiv(
        "2502.05202",
        "Accelerating LLM inference with lossless speculative decoding algorithms for heterogeneous vocabularies",
    ),
    describe=lambda drafter: {**describe_model(drafter), "shared_tokens": drafter.num_shared},
)
