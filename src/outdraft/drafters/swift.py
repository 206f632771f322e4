"""SWIFT: the target drafts with sublayers left out, and in each round tries another set beside the text.

    text    ... a b c d e f g | pending        the last tokens once more in one parallel pass that skips a set,
    again       a b c d e f                    as tentative rows behind the text; its argmaxes b' c' d' ... against
    score       how many of b c d e f g        what the target wrote; the set that agrees best drafts

    pending -+- t1 -+- t2 ---- t3        siblings: leaves beside the chain, the more, the less sure it is; they are
             +- u1  +- u2                judged and never fed to the draft, so they cost no draft pass

All sets are of one size, so that the score alone compares them. The search belongs to the drafter, not to a request:
its state stays. Which set drafts depends on text that is written, never on a guess. Xia et al., "SWIFT: on-the-fly
self-speculative decoding for LLM inference acceleration", 2024, https://arxiv.org/abs/2410.06916: the settings are
theirs. Data in: sequences; data out: chains, or chains with siblings.
"""

import random
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.core.draft import Draft
from outdraft.core.drafter import Traits
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.skip import Skip
from outdraft.core.target import Needs
from outdraft.drafters.shared.choose import Sample, takes_argmax
from outdraft.drafters.shared.draw_options import DrawOptions
from outdraft.drafters.shared.limits import usable_nodes
from outdraft.drafters.shared.networks.draft_network import target_network
from outdraft.drafters.shared.own_layers.own_chain import grow_own_chains
from outdraft.drafters.shared.plain import PlainDrafter
from outdraft.kernels.decoder.choice import best_tokens
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range
from outdraft.sampling.warp import warp_nodes

_KAPPA = 2.5
_NOISE = 0.05  # of a score, in units of the scores' spread
_MEMORY = 400  # the latest scores are looked at: a solve costs their number cubed


def advise(tried: Seq[tuple[list[bool], float]], candidates: Seq[list[bool]]) -> int:
    """Which candidate has the largest upper confidence bound."""
    known = tried[-_MEMORY:]
    x = torch.tensor([sublayers for sublayers, _ in known], dtype=torch.float64)  # [n, S]
    y = torch.tensor([score for _, score in known], dtype=torch.float64)  # [n]
    new = torch.tensor(candidates, dtype=torch.float64)  # [m, S]
    length = x.shape[1] / 4
    spread = y.std(correction=0).clamp(min=1e-6)
    solver = torch.linalg.cholesky(_kernel(x, x, length) + _NOISE * torch.eye(len(known), dtype=torch.float64))
    cross = _kernel(new, x, length)  # [m, n]
    mean = cross @ torch.cholesky_solve(((y - y.mean()) / spread)[:, None], solver)[:, 0]
    variance = 1 - (cross * torch.cholesky_solve(cross.T, solver).T).sum(-1)
    bound = mean + _KAPPA * variance.clamp(min=0).sqrt()
    return int(bound.argmax())


def _kernel(a: Tensor, b: Tensor, length: float) -> Tensor:
    """[n, S], [m, S] of zeros and ones -> [n, m]."""
    return torch.exp(-torch.cdist(a, b, p=1) / length)


@dataclass(frozen=True, kw_only=True)  # without slots, so that it can be joined with other options
class SearchOptions:
    """How long to search and for what. Raises `ConfigError` naming what is out of range."""

    ratio: float = 0.45  # what share of the sublayers is left out
    keep_ends: bool = True  # whether the first and the last layer are always computed
    max_trials: int = 1000  # after how many trials the search ends
    max_fruitless: int = 300  # after how many trials without a better set the search ends
    # the search ends once a set scores more than this: the share of tokens that it would have guessed
    enough: float = 0.95
    # every so many trials, the set is the advice of the Gaussian process instead of a random one
    advice_every: int = 25
    seed: int = 0  # the seed of the random sets

    def __post_init__(self) -> None:
        if not 0 < self.ratio < 1:
            raise ConfigError(f"ratio={self.ratio}: must be between 0 and 1")
        check_range(self, "max_trials", "max_fruitless", "advice_every", least=1)


class Search:
    """One search for a target of `num_layers` layers."""

    def __init__(self, options: SearchOptions, num_layers: int) -> None:
        inner = range(1, num_layers - 1) if options.keep_ends else range(num_layers)
        self._options = options
        self._sublayers = [(layer, half) for layer in inner for half in (0, 1)]  # half 0: attention, 1: feed-forward
        self._size = min(len(self._sublayers), max(1, round(options.ratio * len(self._sublayers))))
        self._rng = random.Random(options.seed)
        self._tried: list[tuple[list[bool], float]] = []
        self._since_best = 0
        by_second = sorted(self._sublayers, key=lambda one: (one[0] % 2 == 0, one))  # layers 1, 3, 5 ..., then 2, 4 ...
        self.best = _skip(by_second[: self._size])
        self.best_score = -1.0  # of nothing yet

    @property
    def num_trials(self) -> int:
        return len(self._tried)

    @property
    def is_over(self) -> bool:
        """Whether the best set stands."""
        options = self._options
        return (
            not self._sublayers
            or self.num_trials >= options.max_trials
            or self._since_best >= options.max_fruitless
            or self.best_score > options.enough
        )

    def trial(self, score: Callable[[Skip], float]) -> None:
        """Score one more set; the first one is that which the search began with."""
        skip = self._next() if self._tried else self.best
        value = score(skip)
        self._tried.append((self._flags(skip), value))
        self._since_best += 1
        if value > self.best_score:
            self.best, self.best_score, self._since_best = skip, value, 0

    def _next(self) -> Skip:
        if len(self._tried) % self._options.advice_every == 0:
            candidates = [self._random() for _ in range(256)]
            return candidates[advise(self._tried, [self._flags(skip) for skip in candidates])]
        return self._random()

    def _random(self) -> Skip:
        return _skip(self._rng.sample(self._sublayers, self._size))

    def _flags(self, skip: Skip) -> list[bool]:
        """Whether each sublayer is left out."""
        return [layer in (skip.mlp if half else skip.attention) for layer, half in self._sublayers]


def _skip(out: Seq[tuple[int, int]]) -> Skip:
    """The set of these sublayers, each a layer and a half."""
    attention, mlp = (frozenset(layer for layer, half in out if half == part) for part in (0, 1))
    return Skip(attention, mlp)


_WIDTHS = ((0.95, 3), (0.8, 5), (0.5, 8), (0.0, 10))  # above which confidence of the best token, how many children


def width_at(confidence: float, *, drawn: bool) -> int:
    """Children of a node whose best child is so probable; of a drawn guess half as many, without replacement."""
    width = next(width for cutoff, width in _WIDTHS if confidence > cutoff)
    return (width + 1) // 2 if drawn else width


def add_siblings(seq: Sequence, path: Draft, rows: list[Tensor], room: int, sample: Sample) -> Draft:
    """A tree of the chain `path` and leaves, at most `room` nodes below the root. rows: logits [V] of each step."""
    tokens: list[int] = path.tokens.tolist()
    parents = list(range(-1, len(tokens) - 1))
    drawn = not takes_argmax(seq, sample)
    distributions: dict[int, Tensor] = {}
    sure: list[float] = [] if path.confidence is None else path.confidence.tolist()
    for depth, logits in enumerate(rows):
        probabilities = torch.softmax(logits.float(), -1)
        more = min(width_at(float(probabilities.amax()), drawn=drawn) - 1, room - len(tokens) + 1)
        if drawn:
            distributions[depth] = warp_nodes(seq, logits[None], [tokens[1 : depth + 1]], guesses=True)[0]
        if more < 1:
            continue
        if drawn:
            found = seq.draft_coins(seq).draw(distributions[depth], depth, depth, 1 + more)
        else:
            found = logits.topk(min(1 + more, len(logits))).indices.tolist()
        others = [token for token in found if token != tokens[depth + 1]][:more]
        tokens += others
        parents += [depth] * len(others)
        sure += (distributions[depth] if drawn else probabilities)[others].tolist()
    q = None
    if drawn and distributions:
        q = distributions[0].new_zeros(len(tokens), distributions[0].shape[0])
        q[list(distributions)] = torch.stack(list(distributions.values()))
    confidence = torch.tensor(sure) if path.confidence is not None else None
    return Draft(tokens=torch.tensor(tokens), parents=torch.tensor(parents), q=q, confidence=confidence)


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


class SwiftDrafter(PlainDrafter):
    """One search for all requests; no state of a request."""

    needs = Needs(layer_subset=True)

    def __init__(self, options: SwiftOptions, port: TargetPort) -> None:
        self._options = options
        self._port = port
        self._network = target_network(port)
        self.traits = Traits(forget=self.forget)
        self.forget()

    def forget(self) -> None:
        """Search from the beginning."""
        self.search = Search(self._options, self._port.facts.num_layers)

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


METHOD = DrafterMethod(
    name="swift",
    summary="the target without some of its sublayers; a search beside the text finds which",
    build=SwiftDrafter,
    options=SwiftOptions,
    paper=arxiv("2410.06916", "SWIFT: on-the-fly self-speculative decoding for LLM inference acceleration"),
    describe=lambda drafter: {
        "first_skip_attention": sorted(drafter.search.best.attention),
        "first_skip_mlp": sorted(drafter.search.best.mlp),
    },
    shape_of=lambda options: "tree" if options.siblings else "chain",
    forms={"chain": {"siblings": False}, "tree": {"siblings": True}},
)
