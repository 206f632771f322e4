"""The target drafts with sublayers left out, and in each round tries another set beside the text.

    text    ... a b c d e f g | pending        the last tokens once more in one parallel pass that skips a set,
    again       a b c d e f                    as tentative rows behind the text; its argmaxes b' c' d' ... against
    score       how many of b c d e f g        what the target wrote; the set that agrees best drafts

Xia et al., "SWIFT: on-the-fly self-speculative decoding for LLM inference acceleration", 2024,
https://arxiv.org/abs/2410.06916. Data in: sequences; data out: chains, or chains with siblings. The search belongs to
the drafter, not to a request: its state stays. Which set drafts depends on text that is written, never on a guess.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from torch import Tensor

from outdraft.core.draft import Draft
from outdraft.core.drafter import Seen, Traits
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.skip import Skip
from outdraft.core.target import Needs
from outdraft.drafters.shared.draw_options import DrawOptions
from outdraft.drafters.shared.limits import usable_nodes
from outdraft.drafters.shared.networks.draft_network import target_network
from outdraft.drafters.shared.own_layers.own_chain import grow_own_chains
from outdraft.drafters.swift.search import Search, SearchOptions
from outdraft.drafters.swift.siblings import add_siblings
from outdraft.kernels.decoder.choice import best_tokens
from outdraft.models.networks.port import TargetPort
from outdraft.options.ranges import check_range

_WIDEST = 10  # children of a node


@dataclass(frozen=True, slots=True, kw_only=True)
class SwiftOptions(SearchOptions, DrawOptions):
    """The search, and how its best set drafts. Raises `ConfigError` naming what is out of range."""

    # a drafted token less probable than this is kept, but the chain ends there; 0 never ends it
    confidence_threshold: float = 0.8
    # on how many of the last tokens a set of sublayers is scored; the search waits until so many are written
    context: int = 32
    search: bool = True  # whether the search runs; false drafts with every second layer left out
    # whether the next best tokens stand beside the chain; it pays where rows of a pass are nearly free
    siblings: bool = False

    def __post_init__(self) -> None:
        DrawOptions.__post_init__(self)
        SearchOptions.__post_init__(self)
        check_range(self, "context", least=1, note="so many tokens are compared")


class SwiftDrafter:
    """One search for all requests; no state of a request."""

    needs = Needs(layer_subset=True)

    def __init__(self, options: SwiftOptions, port: TargetPort) -> None:
        self._options = options
        self._port = port
        self._network = target_network(port)
        self.forget()

    @property
    def traits(self) -> Traits:
        """The search is what earlier requests leave behind."""
        return Traits(forget=self.forget)

    def forget(self) -> None:
        """Search from the beginning."""
        self.search = Search(self._options, self._port.facts.num_layers)

    def begin(self, seqs: Seq[Sequence]) -> None:
        """Nothing to prepare: the target has read the prompt."""

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """One trial of the search while it goes on, then guesses by the best set so far."""
        if self._options.search and not self.search.is_over:
            self._try_one([seq for seq, budget in zip(seqs, budgets, strict=True) if budget.depth > 0])
        skips = [self.search.best] * len(seqs)
        options = self._options
        if not options.siblings:
            return grow_own_chains(seqs, budgets, self._network, self._port.rows.tentative, options, skips)
        steps: list[list[Tensor]] = [[] for _ in seqs]

        def keep(rows: list[int], logits: Tensor) -> None:
            for i, row in zip(rows, logits, strict=True):
                steps[i].append(row)

        chains = grow_own_chains(seqs, budgets, self._network, self._port.rows.tentative, options, skips, keep)
        return [
            add_siblings(seq, path, rows, usable_nodes(seq, budget, _WIDEST * len(rows)), options.sample)
            for seq, budget, path, rows in zip(seqs, budgets, chains, steps, strict=True)
        ]

    def _try_one(self, seqs: Seq[Sequence]) -> None:
        """A trial on one of the sequences that have written enough and have room for its rows."""
        count = self._options.context
        able = [seq for seq in seqs if seq.num_output >= count and seq.num_cached + count <= seq.max_len]
        if able:
            seq = able[self.search.num_trials % len(able)]
            self.search.trial(lambda skip: self._agreement(seq, count, skip))

    def _agreement(self, seq: Sequence, count: int, skip: Skip) -> float:
        """The share of the last `count` tokens that a pass with this set would have guessed."""
        start = seq.num_cached - count
        ids, places = seq.tokens[start : start + count], [seq.position(start + i) for i in range(count)]
        logits = self._network.logits(ids, places, self._port.rows.again([seq], [count]), range(count), skip)
        guessed: list[int] = best_tokens(logits) or logits.argmax(-1).tolist()
        return sum(ours == theirs for ours, theirs in zip(guessed, seq.tokens[-count:], strict=True)) / count

    def observe(self, seen: Seq[Seen]) -> None:
        """The text itself is all there is to learn from."""

    def end(self, seqs: Seq[Sequence]) -> None:
        """No state is kept for a sequence, so nothing is dropped."""


def build(options: SwiftOptions, port: TargetPort) -> SwiftDrafter:
    """Over the target that is served."""
    return SwiftDrafter(options, port)
