"""TriForce: a small drafter guesses for the target over retrieved keys, whose tokens are the guess for the target.

    small     t1 t2 t3 | t4 ...          a nested drafter, on the text and what is drafted so far
    middle    t1 t2 y  | ...             the target over a retrieval view: judges the small guesses, and adds a token
    target    t1 t2 y ...                all keys: the engine's own verification

    keys      [ 0..7 | 8..15 | 16..23 | ... | tail ]     the first chunk and what fills no chunk are always kept
    score       kept    q.m1    q.m2    ...   kept       the best of the others, as many as the budget holds

The middle level judges by rejection sampling. So a drafted token follows the view's own distribution given what stands
before it, whatever the small drafter said, and that is the `q` that the engine's rule needs. Sun et al., "TriForce:
lossless acceleration of long sequence generation with hierarchical speculative decoding", 2024,
https://arxiv.org/abs/2404.11912. Data in: sequences; data out: chains with distributions.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from outdraft.core.draft import Continuation, Draft, chain
from outdraft.core.drafter import Drafter, Traits
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.choose import Chooser, Sample, takes_argmax
from outdraft.drafters.shared.composed.ahead import AheadGuess, build_rewinding, first_path, imagine
from outdraft.drafters.shared.composed.nested import in_lane
from outdraft.drafters.shared.draw_options import SampleOptions
from outdraft.drafters.shared.limits import usable_depth
from outdraft.drafters.shared.networks.draft_network import target_network
from outdraft.drafters.shared.own_layers.sparse_view import SparseViews, last_queries
from outdraft.drafters.shared.plain import PlainDrafter
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import CacheFullError, ConfigError
from outdraft.options.ranges import MOST_NODES, check_range
from outdraft.sampling.warp import warp_nodes
from outdraft.verify.shared.proposal import keep_or_redraw


def retrieve_rows(keys: Tensor, queries: Tensor, budget: int, chunk: int) -> Tensor:
    """At most `budget` rows, of which the tail is part, but never less than the first chunk and the tail."""
    kv_heads, length, width = keys.shape
    whole = length // chunk
    tail = length - whole * chunk
    count = min(whole, max(1, (budget - tail) // chunk))
    means = keys[:, : whole * chunk].reshape(kv_heads, whole, chunk, width).float().mean(2)  # [Hkv, whole, d]
    grouped = queries.float().reshape(kv_heads, -1, width)  # [Hkv, H / Hkv, d]
    scores = torch.einsum("kgd,kcd->kc", grouped, means)
    scores[:, 0] = torch.inf
    best = scores.topk(count, dim=-1).indices.sort(-1).values  # [Hkv, count]
    within = torch.arange(chunk, device=keys.device)
    rows = (best[:, :, None] * chunk + within).flatten(1)
    rest = torch.arange(whole * chunk, length, device=keys.device).expand(kv_heads, -1)
    return torch.cat([rows, rest], 1)


_LANE = 1  # coins that neither the small drafter nor the middle level's own draws ask


class Middle:
    """One round of the sequences. `num_accepted` and `num_rejected` count guesses judged by rejection sampling."""

    def __init__(self, seqs: Seq[Sequence], sample: Sample) -> None:
        self.num_accepted = self.num_rejected = 0
        self._seqs = seqs
        self._sample = sample
        self._choose = Chooser(seqs, sample=sample, confident=False)

    def write(
        self, i: int, logits: Tensor, paths: Seq[list[int]], guess: Continuation | None
    ) -> tuple[int, Tensor | None]:
        """The token of sequence i after its path, and the distribution [V] that it was drawn from."""
        seq, path = self._seqs[i], paths[i]
        if guess is None or seq.coupled or takes_argmax(seq, self._sample):
            chosen = self._choose([i], logits[None], paths)
            return chosen.tokens[0], chosen.distributions[0]
        p = warp_nodes(seq, logits[None], [path], guesses=True)[0]
        coins, depth = in_lane(seq, _LANE).draft_coins(seq), len(path)

        def flip(chance: float) -> bool:
            return coins.draw(torch.tensor([chance, 1 - chance], dtype=torch.float64), depth, 2 * depth)[0] == 0

        token = keep_or_redraw(p, guess.token, guess.q, flip, lambda rest: coins.draw(rest, depth, 2 * depth + 1)[0])
        if token == guess.token:
            self.num_accepted += 1
        else:
            self.num_rejected += 1
        return token, p


@dataclass(frozen=True, slots=True, kw_only=True)
class TriForceOptions(SampleOptions):
    """The levels. Raises `ConfigError` naming what is out of range."""

    # the small drafter below: a name, or {"method": NAME, OPTION: VALUE}
    draft: str | Mapping[str, Any] = field(default_factory=lambda: {"method": "draft_model"})
    draft_depth: int = 3  # how many tokens the small drafter guesses at once
    budget: int = 4096  # how many rows of the text the middle level sees
    chunk: int = 8  # how many neighbouring rows are kept or left out together
    refresh: int = 512  # after how many tokens the rows are retrieved anew

    def __post_init__(self) -> None:
        SampleOptions.__post_init__(self)
        check_range(self, "draft_depth", least=1, most=MOST_NODES)
        check_range(self, "budget", "chunk", "refresh", least=1)
        if self.budget < 2 * self.chunk:
            raise ConfigError(f"budget={self.budget}: must hold two chunks of chunk={self.chunk} rows")


class TriForceDrafter(PlainDrafter):
    """A view for each sequence. The small drafter keeps its own memory, and sees no verdict: none is on its guess."""

    def __init__(self, options: TriForceOptions, port: TargetPort, small: Drafter) -> None:
        self.views = SparseViews(port)
        self.num_passes = 0  # of the middle level
        self.num_inner_accepted = self.num_inner_rejected = 0  # sampled guesses of the small drafter
        self._options = options
        self._port = port
        self._small = small
        self._network = target_network(port)
        self.traits = Traits(inner=(small,))

    def begin(self, seqs: Seq[Sequence]) -> None:
        """An empty view, and whatever the small drafter needs."""
        for seq in seqs:
            self.views.add(seq)
        self._small.begin(seqs)

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """Chains that the middle level wrote."""
        depths = [usable_depth(seq, budget) for seq, budget in zip(seqs, budgets, strict=True)]
        drafted: list[list[int]] = [[] for _ in seqs]
        distributions: list[list[Tensor]] = [[] for _ in seqs]
        middle = Middle(seqs, self._options.sample)
        rows = [i for i, depth in enumerate(depths) if depth > 0]
        for i in rows:
            self._bring_up(seqs[i])
        while rows:
            try:
                guesses = self._guess(rows, seqs, depths, drafted)
                logits = self._score(
                    [seqs[i] for i in rows],
                    [drafted[i] for i in rows],
                    [guess.tokens for guess in guesses],
                    [depths[i] for i in rows],
                )
            except CacheFullError:
                if not any(drafted):
                    raise
                break  # the tokens that were drawn stay
            for i, guess, own in zip(rows, guesses, logits, strict=True):
                for j, row in enumerate(own):
                    one = guess.behind(j)
                    token, distribution = middle.write(i, row, drafted, one)
                    drafted[i].append(token)
                    if distribution is not None:
                        distributions[i].append(distribution)
                    if one is None or one.token != token:
                        break
            rows = [i for i in rows if len(drafted[i]) < depths[i]]
        self.num_inner_accepted += middle.num_accepted
        self.num_inner_rejected += middle.num_rejected
        return [
            chain([seq.pending, *path], torch.stack(distribution) if distribution else None)
            for seq, path, distribution in zip(seqs, drafted, distributions, strict=True)
        ]

    def _guess(
        self, rows: list[int], seqs: Seq[Sequence], depths: list[int], drafted: list[list[int]]
    ) -> list[AheadGuess]:
        """What the small drafter thinks comes next; one token is the middle level's in any case."""
        rooms = [min(self._options.draft_depth, depths[i] - len(drafted[i]) - 1) for i in rows]
        asked = [j for j, room in enumerate(rooms) if room > 0]
        guesses = [AheadGuess() for _ in rows]
        if asked:
            texts = [imagine(seqs[rows[j]], drafted[rows[j]]) for j in asked]
            found = self._small.propose(texts, [Budget(depth=rooms[j], nodes=rooms[j]) for j in asked])
            for j, draft in zip(asked, found, strict=True):
                guesses[j] = first_path(draft)
        return guesses

    def _score(
        self, seqs: Seq[Sequence], drafted: list[list[int]], guesses: list[list[int]], depths: list[int]
    ) -> list[Tensor]:
        """Logits [1 + guessed, V] after the last drafted token and after each guess: one pass over the views."""
        self.num_passes += 1
        tokens: list[int] = []
        places: list[int] = []
        for seq, path, guess in zip(seqs, drafted, guesses, strict=True):
            first = len(seq.tokens) - 1 + len(path)
            tokens += [(path or [seq.pending])[-1], *guess]
            places += [seq.position(first + i) for i in range(1 + len(guess))]
        counts = [1 + len(guess) for guess in guesses]
        offsets = [len(path) for path in drafted]
        rooms = [depth - offset for depth, offset in zip(depths, offsets, strict=True)]
        context = self.views.extend(seqs, offsets, counts, rooms)
        logits = self._network.logits(tokens, places, context, range(len(tokens)))
        return list(logits.split(counts))  # type: ignore[no-untyped-call]

    def _bring_up(self, seq: Sequence) -> None:
        options = self._options
        if self.views.is_due(seq, options.budget, options.refresh) and seq.num_cached < seq.max_len:
            queries = last_queries(self._port, seq, 1)
            self.views.choose(
                seq, lambda layer, keys: retrieve_rows(keys, queries[layer][0], options.budget, options.chunk)
            )
        else:
            self.views.follow(seq)

    def end(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self.views.free(seq)
        self._small.end(seqs)


METHOD: DrafterMethod[TriForceOptions, TargetPort, TriForceDrafter] = DrafterMethod(
    name="triforce",
    summary="a small drafter, the target over retrieved keys, the target: for very long contexts",
    build=lambda options, port: TriForceDrafter(options, port, build_rewinding(options.draft, port, "triforce")),
    options=TriForceOptions,
    paper=arxiv(
        "2404.11912",
        "TriForce: lossless acceleration of long sequence generation with hierarchical speculative decoding",
    ),
)
