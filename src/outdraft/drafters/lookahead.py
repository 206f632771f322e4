"""Lookahead decoding: the target drafts for itself, by Jacobi iteration in spare rows of its own passes.

Fu, Bailis, Stoica and Zhang, "Break the sequential dependency of LLM inference using lookahead decoding", 2024,
https://arxiv.org/abs/2402.02057.

    nodes  [ root | trie of the pool's tuples that start at root | window ]
             0      Role.VERIFY                                    Role.PROBE, never accepted, never kept

    level 0   root g1 g2 g3      the pass's argmax below the last level completes the n-gram of each column:
    level 1    a   b  c  d           key root, tuple (a, e, new0)
    level 2    e   f  g  h       then level 1 becomes level 0, and the new tokens the last level.

Level 0 of the window is a chain below the root; level r of a column hangs from level r - 1. So a probe's ancestors are
what it must see, and its depth is its position. Data in: text and the argmax at the probes; data out: a tree.
"""

import random
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from functools import partial

import torch

from outdraft.core.draft import Draft, Role, chain
from outdraft.core.drafter import Seen, Traits
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.limits import usable_depth, usable_nodes
from outdraft.drafters.shared.look_up.span_index import Trie
from outdraft.drafters.shared.plain import OneByOne
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import MOST_NGRAM, MOST_NODES, check_range


class Window:
    """N - 1 levels of W guesses. It starts with one long level and loses a column for each level that fills."""

    __slots__ = ("_fresh", "_num_levels", "levels")

    def __init__(self, width: int, ngram: int, fresh: Callable[[], int]) -> None:
        self._num_levels = ngram - 1
        self._fresh = fresh  # a token to start from
        self.levels: list[list[int]] = [[fresh() for _ in range(width + ngram - 2)]]

    @property
    def ripe(self) -> bool:
        """Whether the next pass completes n-grams."""
        return len(self.levels) == self._num_levels

    def set_root(self, token: int) -> None:
        """Column 0 of level 0 is the pending token itself."""
        self.levels[0][0] = token

    def advance(self, new: list[int], banned: frozenset[int]) -> list[tuple[int, tuple[int, ...]]]:
        """Take the argmax below the last level, one a column; returns the n-grams (key, tuple) that this completes.

        `banned` tokens (ends of text) never enter the window: nothing can be learned behind them.
        """
        made: list[tuple[int, tuple[int, ...]]] = []
        if self.ripe:
            made = [(column[0], (*column[1:], last)) for *column, last in zip(*self.levels, new, strict=True)]
        new = [self._fresh() if token in banned else token for token in new]
        if self.ripe:
            self.levels = [*self.levels[1:], new]
        else:
            # The text has moved on by one, so every level loses the column that it has passed.
            self.levels = [level[1:] for level in (*self.levels, new)]
        return made


class Pool:
    """At most `limit` tuples a key, least recently seen first out."""

    __slots__ = ("_limit", "_tuples")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tuples: dict[int, dict[tuple[int, ...], None]] = {}

    def add(self, key: int, tokens: tuple[int, ...]) -> None:
        """Remember a tuple, or renew it."""
        seen = self._tuples.setdefault(key, {})
        seen.pop(tokens, None)
        seen[tokens] = None
        if len(seen) > self._limit:
            del seen[next(iter(seen))]

    def get(self, key: int) -> list[tuple[int, ...]]:
        """The key's tuples, latest first."""
        return list(reversed(self._tuples.get(key, {})))


@dataclass(frozen=True, slots=True, kw_only=True)
class LookaheadOptions:
    """Shape of the window. Raises `ConfigError` naming what is out of range."""

    window: int = 7  # how many columns the window of Jacobi iterations has (W)
    ngram: int = 5  # how many tokens an n-gram has, its key included (N); at most N - 1 tokens are drafted
    guesses: int = 7  # how many n-grams are remembered for each key and verified together (G)
    pool_from_prompt: bool = True  # whether the n-grams of the prompt are learned too
    seed: int = 0  # the seed of the tokens that the window starts from; no text depends on it

    def __post_init__(self) -> None:
        check_range(self, "window", "guesses", least=1, most=1024)
        check_range(self, "ngram", least=2, most=MOST_NGRAM)
        rows = (self.window + self.guesses) * (self.ngram - 1)
        if rows > MOST_NODES:
            raise ConfigError(
                f"window={self.window}, guesses={self.guesses}, ngram={self.ngram} make {rows} rows of a pass: at most "
                f"{MOST_NODES}"
            )


@dataclass(slots=True)
class _Lookahead:
    window: Window
    pool: Pool
    draft: Draft | None = None  # the last guess, if it carries a window
    probes: list[int] = field(default_factory=list)  # nodes of the window's last level


class LookaheadDrafter(OneByOne):
    """One window and one pool for each sequence."""

    traits = Traits(merges=False)  # it brings probes

    def __init__(self, options: LookaheadOptions) -> None:
        self._options = options
        self._states: dict[int, _Lookahead] = {}

    def begin(self, seqs: Seq[Sequence]) -> None:
        """A window of random prompt tokens; a pool of the prompt's n-grams or an empty one."""
        options = self._options
        for seq in seqs:
            prompt = [token for token in seq.tokens if token not in seq.eos_token_ids] or seq.tokens[:1]
            fresh = partial(random.Random(options.seed).choice, prompt)
            state = _Lookahead(Window(options.window, options.ngram, fresh), Pool(options.guesses))
            if options.pool_from_prompt:
                for at in range(len(seq.tokens) - options.ngram + 1):
                    state.pool.add(seq.tokens[at], tuple(seq.tokens[at + 1 : at + options.ngram]))
            self._states[seq.id] = state

    def observe(self, seen: Seq[Seen]) -> None:
        """Read the argmax below the window's last level: new n-grams for the pool, a new level for the window."""
        for one in seen:
            state = self._states.get(one.seq.id)
            if state is None or one.draft is None or one.draft is not state.draft or one.logits is None:
                continue
            new = one.logits[state.probes].argmax(-1).tolist()
            for key, tokens in state.window.advance(new, one.seq.eos_token_ids):
                state.pool.add(key, tokens)
            state.draft = None

    def end(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self._states.pop(seq.id, None)

    def guess(self, seq: Sequence, budget: Budget) -> Draft:
        """Tuples that start at the pending token, and the window as far as it fits."""
        state = self._states[seq.id]
        state.draft = None
        depth = usable_depth(seq, budget)
        if depth == 0:
            return chain([seq.pending])
        levels = state.window.levels
        state.window.set_root(seq.pending)
        num_probes = sum(len(level) for level in levels) - 1
        room = usable_nodes(seq, budget, num_probes + self._options.guesses * depth)
        trie = Trie(seq.pending)
        for tokens in state.pool.get(seq.pending):
            trie.insert(tokens[:depth])
        if num_probes > room:  # so none stands beyond the context either
            return trie.draft(room)
        return self._with_window(state, *trie.heaviest(room - num_probes))

    def _with_window(self, state: _Lookahead, kept: list[int], above: list[int]) -> Draft:
        """`kept` and `above`: tokens and parents of the nodes to verify."""
        levels, num_verify = state.window.levels, len(kept)
        tokens = kept + levels[0][1:] + [token for level in levels[1:] for token in level]
        columns = [0, *range(num_verify, num_verify + len(levels[0]) - 1)]  # each column's deepest node so far
        parents = above + columns[:-1]
        for _ in levels[1:]:
            parents += columns
            columns = list(range(len(parents) - len(columns), len(parents)))
        roles = torch.full((len(tokens),), Role.PROBE)
        roles[:num_verify] = Role.VERIFY
        state.probes = columns
        state.draft = Draft(tokens=torch.tensor(tokens), parents=torch.tensor(parents), roles=roles)
        return state.draft


METHOD: DrafterMethod[LookaheadOptions, TargetPort, LookaheadDrafter] = DrafterMethod(
    name="lookahead",
    summary="n-grams from Jacobi iteration in extra rows of the target's own passes (no model)",
    build=lambda options, port: LookaheadDrafter(options),
    options=LookaheadOptions,
    paper=arxiv("2402.02057", "Break the sequential dependency of LLM inference using lookahead decoding"),
    shape_of=lambda options: "tree",
)
