r"""PaSS: learned look-ahead embeddings in the target's own pass; it verifies one round's guesses and makes the next.

    pending -- g1 -- g2 -- g3          guesses of the last pass, to be verified
       \        \      \      \
       L1..Lk   L1..Lk  L1..Lk  L1..Lk    learned vectors (`Role.PROBE`), never accepted, never kept: behind the last
                                          accepted node they say what comes after the next token

Monea, Joulin and Grave, "PaSS: parallel speculative sampling", 2023, https://arxiv.org/abs/2311.13581. The target is
the only network. Data in: logits at the probes behind the accepted node; data out: a chain, and probes.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from outdraft.core.draft import Draft, Role
from outdraft.core.drafter import Seen, Traits
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.weights import Weights
from outdraft.drafters.parallel_sampling.net import LookAheads, load_look_aheads
from outdraft.drafters.shared.chains.grow import grow_chains
from outdraft.drafters.shared.chains.network import ChainNetwork
from outdraft.drafters.shared.draw_options import DrawOptions
from outdraft.drafters.shared.limits import cutoffs_of, usable_depth, usable_nodes
from outdraft.drafters.shared.networks.load_draft import module_weights
from outdraft.drafters.shared.plain import PlainDrafter
from outdraft.drafters.shared.state_drafter import chosen_model
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import CapabilityError


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelSamplingOptions(DrawOptions):
    """Which embeddings, and where they stand."""

    model: str | None = None  # the directory of the embeddings; if none is given, what lies in MODEL/head
    # whether look-aheads stand behind every guess, so that there are guesses whichever is rejected; False: behind the
    # last guess alone, and after a rejection a pass has none
    everywhere: bool = True


class ParallelSamplingDrafter(PlainDrafter):
    """What the probes said of each text, until its next guess."""

    def __init__(self, options: ParallelSamplingOptions, net: LookAheads, traits: Traits) -> None:
        self.traits = traits
        self._options, self._places = options, net.places.detach()
        self._said: dict[int, tuple[int, Tensor]] = {}  # sequence -> tokens of the text, logits [m, V] behind them
        self._probes: dict[int, list[list[int]]] = {}  # sequence -> of each node of its draft, the probes behind it

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """The guesses that the last pass made, and look-aheads for the next ones."""
        depths, said = [], list[Tensor]()
        for seq, budget in zip(seqs, budgets, strict=True):
            length, logits = self._said.get(seq.id, (-1, torch.empty(0)))
            known = len(logits) if length == len(seq.tokens) else 0
            depths.append(min(known, usable_depth(seq, budget)))
            said.append(logits)

        def block(rows: list[int], own: list[int]) -> Tensor:
            deepest = max(own)
            return torch.stack([torch.nn.functional.pad(said[i], (0, 0, 0, deepest))[:deepest] for i in rows])

        cutoffs = cutoffs_of(budgets, self._options.confidence_threshold)
        drafts = grow_chains(seqs, depths, ChainNetwork(block=block), cutoffs, sample=self._options.sample)
        return [self._look_ahead(*one) for one in zip(seqs, drafts, budgets, strict=True)]

    def _look_ahead(self, seq: Sequence, draft: Draft, budget: Budget) -> Draft:
        """The chain with look-aheads behind its nodes, as many as there is room for."""
        num_nodes, wide = draft.num_nodes, min(len(self._places), budget.depth)
        behind = range(num_nodes) if self._options.everywhere else range(num_nodes - 1, num_nodes)
        room = usable_nodes(seq, budget, num_nodes - 1 + wide * len(behind)) - (num_nodes - 1)
        wide = min(wide, room // len(behind))
        self._probes[seq.id] = [[] for _ in range(num_nodes)]
        if wide <= 0:
            return draft
        parents = list(range(-1, num_nodes - 1))  # a chain
        for node in behind:
            first = len(parents)
            parents += [node, *range(first, first + wide - 1)]
            self._probes[seq.id][node] = list(range(first, first + wide))
        more = len(parents) - num_nodes
        roles = torch.tensor([Role.VERIFY] * num_nodes + [Role.PROBE] * more)
        words = self._places.new_full((num_nodes, self._places.shape[1]), float("nan"))
        return replace(
            draft,
            tokens=torch.cat((draft.tokens, draft.tokens.new_full((more,), seq.pending))),
            parents=torch.tensor(parents),
            q=None if draft.q is None else torch.nn.functional.pad(draft.q, (0, 0, 0, len(parents) - len(draft.q))),
            roles=roles,
            embeds=torch.cat((words, *[self._places[:wide]] * len(behind))),
            confidence=None
            if draft.confidence is None
            else torch.nn.functional.pad(draft.confidence, (0, more), value=1.0),
        )

    def observe(self, seen: Seq[Seen]) -> None:
        """What the probes behind the last accepted node said."""
        for one in seen:
            probes = self._probes.pop(one.seq.id, None)
            self._said.pop(one.seq.id, None)
            if probes is None or one.logits is None or one.verdict is None or one.seq.finish_reason is not None:
                continue
            rows = probes[one.verdict.path[-1] if one.verdict.path else 0]
            if rows and rows[-1] < len(one.logits):  # else memory had no room for them
                self._said[one.seq.id] = len(one.seq.tokens), one.logits[rows]

    def end(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self._said.pop(seq.id, None)
            self._probes.pop(seq.id, None)


def build(options: ParallelSamplingOptions, port: TargetPort) -> ParallelSamplingDrafter:
    """Load the embeddings, and check that they fit the target."""
    home, facts = chosen_model(options.model, "parallel_sampling"), port.facts
    net = load_look_aheads(home, facts.dtype, facts.device)
    config = net.config
    if (config.hidden_size, config.num_layers) != (facts.hidden_size, facts.num_layers):
        raise CapabilityError(
            f"the look-ahead embeddings in {home} are for a target of {config.num_layers} layers and width "
            f"{config.hidden_size}, and this one has {facts.num_layers} and {facts.hidden_size}: take its own"
        )
    weights: Weights = module_weights(net, native=False)
    return ParallelSamplingDrafter(options, net, Traits(weights=(weights,), home=home, merges=False))


METHOD = DrafterMethod(
    name="parallel_sampling",
    summary="the target reads learned look-ahead embeddings behind its rows, which guess what comes next",
    build=build,
    options=ParallelSamplingOptions,
    paper=arxiv("2311.13581", "PaSS: parallel speculative sampling"),
    also_called=("pass",),
)
