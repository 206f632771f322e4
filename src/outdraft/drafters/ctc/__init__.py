"""CTC drafting: slots over the vocabulary and a blank, whose repeats and blanks collapse into guesses of any length.

All slots at once, then the likeliest strings that they spell, as a tree. Wen et al., "Speculative decoding with
CTC-based draft model for LLM inference acceleration", 2024, https://arxiv.org/abs/2412.00061. After the
collapse a token has another depth than its slot, so depths and positions are those of the tree of strings. Candidates
are chosen, not drawn: a deterministic guess, which has no q. Data in: sequences; data out: chains or trees.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch

from outdraft.core.draft import Draft, chain
from outdraft.core.drafter import Traits
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.weights import Weights
from outdraft.drafters.ctc.collapse import StringTrie, chain_of, likeliest, trie_of
from outdraft.drafters.ctc.net import CtcNet
from outdraft.drafters.shared.choose import check_finite
from outdraft.drafters.shared.heads.drafter import open_heads
from outdraft.drafters.shared.heads.states import states_of
from outdraft.drafters.shared.limits import Cutoff, cutoffs_of, usable_nodes
from outdraft.drafters.shared.state_drafter import StateDrafter, chosen_model
from outdraft.models.networks.port import TargetPort
from outdraft.options.base import RoundedOptions
from outdraft.options.ranges import MOST_NODES, check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class CtcOptions(RoundedOptions):
    """Which network, how many candidates. Raises `ConfigError` naming what is out of range."""

    # the directory or hub name of the network, which belongs to one target; if none is given, what lies in MODEL/head
    model: str | None = None
    width: int = 4  # how many tokens of a slot are tried beside the blank; 1 tries the best one of each and is a chain
    beams: int = 16  # how many strings of tokens are kept from one slot to the next
    nodes: int = 16  # how many draft nodes of the tree are kept, the most probable ones
    # a drafted token less probable than this is kept, but its branch ends there; 0 never ends one
    confidence_threshold: float = 0.0

    def __post_init__(self) -> None:
        RoundedOptions.__post_init__(self)
        check_range(self, "width", "beams", "nodes", least=1, most=MOST_NODES)
        check_range(self, "confidence_threshold", least=0, most=1)


class CtcDrafter(StateDrafter):
    """One pass of the network a round, whatever the depth."""

    def __init__(self, options: CtcOptions, net: CtcNet, port: TargetPort, weights: Weights) -> None:
        self._states = states_of(net, port)
        home = chosen_model(options.model, "ctc")
        super().__init__(self._states, (net.config.tap,), Traits(weights=(weights,), home=home))
        self._options, self._net = options, net
        self._ids = None if net.vocab is None else net.vocab.cpu()  # of the columns

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A guess for each sequence that has a budget and whose states are known."""
        cutoffs = cutoffs_of(budgets, self._options.confidence_threshold)
        depths = self.depths(seqs, budgets)
        asked = [seq for seq, depth in zip(seqs, depths, strict=True) if depth > 0]
        slots = iter(self._slots(asked) if asked else ())
        nodes = [usable_nodes(seq, budget, self._options.nodes) for seq, budget in zip(seqs, budgets, strict=True)]
        return [
            self._draft(seq, self._trie(next(slots), depth, most, cutoff) if depth else None, cutoff)
            for seq, depth, most, cutoff in zip(seqs, depths, nodes, cutoffs, strict=True)
        ]

    def _slots(self, seqs: Seq[Sequence]) -> list[list[dict[int, float]]]:
        """For each sequence and slot the tokens that are tried, the blank among them, with log probabilities."""
        count, blank = self._net.config.num_heads, self._net.blank
        states = self._states.of(seqs).view(len(seqs) * count, -1)
        log_probs = torch.log_softmax(self._net.logits(states).float(), -1)  # [n * S, V + 1]
        best = log_probs.topk(min(self._options.width, blank), -1)
        values = best.values.tolist()
        check_finite(seqs, [row // count for row in range(len(values))], [own[0] for own in values])
        rows = zip(best.indices.tolist(), values, log_probs[:, blank].tolist(), strict=True)
        made = [
            dict(zip(tokens, own, strict=True)) | ({blank: empty} if self._options.width > 1 else {})
            for tokens, own, empty in rows
        ]
        return [made[i : i + count] for i in range(0, len(made), count)]

    def _trie(self, slots: list[dict[int, float]], depth: int, nodes: int, cutoff: Cutoff) -> StringTrie:
        blank = self._net.blank
        if self._options.width == 1:
            best = [next(iter(slot.items())) for slot in slots]
            return chain_of(best, blank, depth=depth, nodes=nodes, token=cutoff.token, path=cutoff.path)
        strings = likeliest(slots, blank, self._options.beams)
        return trie_of(strings, depth=depth, nodes=nodes, token=cutoff.token, path=cutoff.path)

    def _draft(self, seq: Sequence, trie: StringTrie | None, cutoff: Cutoff) -> Draft:
        """The tree below the pending token."""
        if trie is None:
            return chain([seq.pending])
        masses, parents = trie.masses, trie.parents
        shares = [1.0, *(masses[i] / max(masses[parents[i]], 1e-300) for i in range(1, len(parents)))]
        below = torch.tensor(trie.tokens[1:], dtype=torch.long)
        below = below if self._ids is None else self._ids[below]
        return Draft(
            tokens=torch.cat((torch.tensor([seq.pending]), below)),
            parents=torch.tensor(parents),
            confidence=torch.tensor(shares) if cutoff.is_asked else None,
        )


def build(options: CtcOptions, port: TargetPort) -> CtcDrafter:
    """Load the network. Raises `CapabilityError` for one of another target."""
    net, weights = open_heads(CtcNet, options.model, options.quantization, port)
    return CtcDrafter(options, net, port, weights)


METHOD = DrafterMethod(
    name="ctc",
    summary="slots over the vocabulary and a blank that collapse into guesses of any length; a chain or a tree",
    build=build,
    options=CtcOptions,
    paper=arxiv("2412.00061", "Speculative decoding with CTC-based draft model for LLM inference acceleration"),
    shape_of=lambda options: "chain" if options.width == 1 else "tree",
    forms={"chain": {"width": 1}, "tree": {"width": 4}},
)
