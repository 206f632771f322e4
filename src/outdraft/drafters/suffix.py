"""Suffix decoding: what followed the longest matches in this request and in earlier answers, as far as it is sure.

Oliaro, Jia, Campos and Qiao, "SuffixDecoding: extreme speculative decoding for emerging AI applications", 2024,
https://arxiv.org/abs/2411.04975.
Data in: token ids; data out: a deterministic tree whose nodes carry their share of their siblings' counts. Of three
suffix trees one is the text's own (prompt and output), one holds the references of its request, one the outputs of
finished requests of its salt.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import torch

from outdraft.core.draft import Draft, chain
from outdraft.core.drafter import Traits
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.limits import usable_depth, usable_nodes
from outdraft.drafters.shared.look_up.lookup_drafter import IndexDrafter
from outdraft.drafters.shared.look_up.quotes import Texts
from outdraft.drafters.shared.per_salt import PerSalt
from outdraft.kernels.text_index.suffix_tree import GuessLimits, SuffixTree, TreeGuess, make_suffix_tree
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import MOST_NODES, check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class SuffixOptions:
    """How much is remembered and guessed. Raises `ConfigError` naming what is out of range."""

    # how many tokens the longest span that is counted has; matches are shorter
    depth: int = field(default=64, metadata={"aliases": ("suffix_decoding_max_tree_depth",)})
    # after a match of L tokens at most factor * L + offset nodes are drafted
    factor: float = field(default=1.0, metadata={"aliases": ("suffix_decoding_max_spec_factor",)})
    offset: float = 0.0  # how many nodes may be drafted in addition, whatever the length of the match
    # a continuation whose estimated probability is below this is left out
    min_prob: float = field(default=0.1, metadata={"aliases": ("suffix_decoding_min_token_prob",)})
    # how many finished outputs are remembered; the oldest is forgotten first, and 0 remembers none
    max_sequences: int = field(default=10_000, metadata={"aliases": ("suffix_decoding_max_cached_requests",)})
    nodes: int = 64  # how many nodes a tree has at most
    # true proposes a tree of the most frequent continuations; false, a chain of the most frequent tokens
    tree: bool = True

    def __post_init__(self) -> None:
        check_range(self, "depth", least=2, most=1024)
        check_range(self, "nodes", least=1, most=MOST_NODES)
        check_range(self, "max_sequences", least=0)
        check_range(self, "factor", "offset", least=0, most=1e6)
        check_range(self, "min_prob", least=0, most=1)
        if self.factor == self.offset == 0:
            raise ConfigError("factor=0 and offset=0 allow no draft at all: set one of them")


class SuffixDrafter(IndexDrafter[SuffixTree, SuffixTree]):
    """Remembers the outputs of finished requests as long as it lives."""

    def __init__(self, options: SuffixOptions) -> None:
        super().__init__(lambda seq: make_suffix_tree(options.depth), self._quote)
        self._options = options
        self._earlier = PerSalt(lambda: make_suffix_tree(options.depth))
        self.traits = Traits(peeks=True, quotes=True, forget=self._earlier.forget)

    def end(self, seqs: Seq[Sequence]) -> None:
        """Each tree goes; what the request wrote joins those of its salt, whose oldest leaves if they are too many.

        A text that only gives back its memory is not over: it begins again, and is remembered when it ends.
        """
        over = [seq for seq in seqs if seq.id in self._known and seq.finish_reason is not None]
        super().end(seqs)
        for seq in over:
            if not seq.num_output or not self._options.max_sequences:
                continue
            earlier = self._earlier.of(seq)
            earlier.extend(seq.output)
            earlier.close()
            if earlier.num_texts > self._options.max_sequences:
                earlier.evict()

    def guess(self, seq: Sequence, budget: Budget) -> Draft:
        """The best-scored guess of the trees; the text's own wins ties, then that of the references."""
        options = self._options
        depth, nodes = usable_depth(seq, budget), usable_nodes(seq, budget, options.nodes)
        if depth == 0:
            return chain([seq.pending])
        limits = GuessLimits(
            max_nodes=nodes,
            max_depth=depth,
            factor=options.factor,
            offset=options.offset,
            min_prob=options.min_prob,
            width=nodes if options.tree else 1,
        )
        context = seq.tokens[-options.depth :]
        trees = (self.own(seq), self.quoted(seq), self._earlier.of(seq))
        best, *others = [tree.guess(context, limits) for tree in trees if tree is not None]
        for other in others:
            best = other if other.score > best.score else best
        return _draft(seq.pending, best, budget)

    def _quote(self, texts: Texts) -> SuffixTree:
        tree = make_suffix_tree(self._options.depth)
        for text in texts:
            tree.extend(text)
            tree.close()
        return tree


def _draft(pending: int, guess: TreeGuess, budget: Budget) -> Draft:
    """The tree without what hangs below a node at which the budget ends its branch.

    The guess gives the probability of each path; a node's own is its share of its parent's.
    """
    tokens, parents, shares = [pending], [-1], [1.0]
    open_at = {-1: (0, 1.0)}  # node of the guess -> where it stands in the draft, and the chance of the path to it
    for node, (token, parent, prob) in enumerate(zip(guess.tokens, guess.parents, guess.probs, strict=True)):
        if parent not in open_at:
            continue
        above, chance = open_at[parent]
        share = prob / (guess.probs[parent] if parent >= 0 else 1.0)
        chance *= budget.chance(share)
        if share >= budget.confidence and chance >= budget.survival:
            open_at[node] = len(tokens), chance
        tokens.append(token)
        parents.append(above)
        shares.append(share)
    return Draft(tokens=torch.tensor(tokens), parents=torch.tensor(parents), confidence=torch.tensor(shares))


METHOD: DrafterMethod[SuffixOptions, TargetPort, SuffixDrafter] = DrafterMethod(
    name="suffix",
    summary="suffix trees of this request and of earlier answers, drafting as far as the counts are sure (no model)",
    build=lambda options, port: SuffixDrafter(options),
    options=SuffixOptions,
    paper=arxiv("2411.04975", "SuffixDecoding: extreme speculative decoding for emerging AI applications"),
    shape_of=lambda options: "tree" if options.tree else "chain",
    forms={"chain": {"tree": False}, "tree": {"tree": True}},
)
