"""CS Drafting: drafters that draft for each other, the larger ones where it counts most.

    lengths  [[5, 14, 10],    the target's guess: model 1 until there are 5 tokens, model 2 until 19, the base until 29
              [0,  1, 10],    a guess of model 1: model 2 until there is 1, the base until 11, then model 1 reviews
              [0,  0, 10]]    a guess of model 2: the base until there are 10, then model 2 reviews

A review is lenient (docs/methods/cascade.md), and may bring more tokens than were still wanted. So the distribution of
the whole is no model's softmax: the guess has none, and rules for deterministic guesses judge it exactly. The base is a
look-up in the text, and a table of bigrams after tokens that are new to it. Chen et al., "Cascade speculative drafting
for even faster LLM inference", 2023, https://arxiv.org/abs/2312.11462. Data in: sequences; data out: chains without a
distribution.
"""

from collections.abc import Generator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from outdraft.core.draft import Draft, chain
from outdraft.core.drafter import Traits
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.choose import check_finite
from outdraft.drafters.shared.limits import usable_depth
from outdraft.drafters.shared.look_up.datastore.file import Datastore, open_for
from outdraft.drafters.shared.look_up.ngram_index import NgramIndex
from outdraft.drafters.shared.networks.load_draft import ModelOptions, describe_network, load_draft, weights_of
from outdraft.drafters.shared.networks.own_model import DraftModel, Text
from outdraft.drafters.shared.per_salt import PerSalt
from outdraft.drafters.shared.plain import PlainDrafter
from outdraft.kernels.text_index.suffix_array import CorpusQuery
from outdraft.models.networks.port import TargetPort
from outdraft.options.base import RoundedOptions
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range

_WIDTH = 8  # successors that are counted for each token
_ONE = CorpusQuery(min_match=1, max_match=1, max_hits=5000, depth=1, max_nodes=1)  # of more places an even sample


class Bigrams:
    """One table for all texts of a salt."""

    __slots__ = ("_counts", "_known", "_store")

    def __init__(self, store: Datastore | None = None) -> None:
        self._store = store
        self._known: dict[int, int | None] = {}  # of the datastore, as far as it was asked
        self._counts: dict[int, dict[int, int]] = {}

    def learn(self, tokens: Seq[int]) -> None:
        """Count the pairs of a piece of text; with a datastore its own counts stand."""
        if self._store is not None:
            return
        for token, follower in pairwise(tokens):
            counts = self._counts.setdefault(token, {})
            if follower in counts or len(counts) < _WIDTH:
                counts[follower] = counts.get(follower, 0) + 1
            else:
                self._counts[token] = {known: count - 1 for known, count in counts.items() if count > 1}

    def after(self, token: int) -> int | None:
        """The successor with the largest count, of equals the one that came first; None where none is counted.

        Raises `ConfigError` if the datastore was changed while it was open.
        """
        if self._store is None:
            counts = self._counts.get(token)
            return max(counts, key=counts.__getitem__) if counts else None
        if token not in self._known:
            found = self._store.look_up([token], _ONE).tokens if token < self._store.corpus.end else []
            self._known[token] = found[0] if found else None
        return self._known[token]


_LONGEST = 4  # tokens of the base's longest match


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeOptions(RoundedOptions):
    """Which models, the largest first, and how many tokens each. Raises `ConfigError` naming what is out of range."""

    models: tuple[str, ...] = ("zoo:draft",)  # the draft models, the largest first; all have the target's vocabulary
    # the number format of all draft models' weights, for example "bfloat16"; "auto" takes the target's
    dtype: str = "auto"
    # row i, column j: how many tokens level j adds to a guess for the level above level i; a level that brings less
    # leaves the rest to the next, one whose own guess is kept may bring more; the last level is the look-up
    lengths: tuple[tuple[int, ...], ...] = ((5, 10), (0, 10))
    # how much more readily a level accepts the guesses of the next; 1 keeps its own best tokens alone, the paper takes
    # 2 to 5
    leniency: float = 3.0
    # the file whose texts the bigrams are counted on; when empty, they are counted on what the engine has read so far
    datastore: str = ""

    def __post_init__(self) -> None:
        RoundedOptions.__post_init__(self)
        object.__setattr__(self, "models", tuple(self.models))
        object.__setattr__(self, "lengths", tuple(tuple(row) for row in self.lengths))
        levels = len(self.models) + 1
        if len(self.lengths) != levels or any(len(row) != levels for row in self.lengths):
            raise ConfigError(
                f"lengths={self.lengths}: {len(self.models)} models and the base need {levels} rows of {levels} numbers"
            )
        if any(length < 0 for row in self.lengths for length in row):
            raise ConfigError(f"lengths={self.lengths}: must be at least 0")
        check_range(self, "leniency", least=1)


@dataclass(frozen=True, slots=True)
class _Ask:
    """Wanted: model `level`'s logits at the last `count` tokens of a text."""

    level: int
    tokens: list[int]
    count: int


_Work = Generator[_Ask, Tensor, None]


@dataclass(slots=True)
class _Guess:
    """What has been written beyond a text, with the probability that each token's reviewer gave it (the base: 1)."""

    text: list[int]
    limit: int  # tokens, at most
    index: NgramIndex
    tokens: list[int]
    probs: list[float]
    bigrams: Bigrams  # of its salt


class CascadeDrafter(PlainDrafter):
    """All sequences advance together: those that wait for the same model share its pass.

    `num_copied` and `num_bigrams`: tokens that the base has written so far, by its two ways.
    """

    def __init__(
        self, models: Seq[DraftModel], lengths: Seq[Seq[int]], leniency: float, store: Datastore | None = None
    ) -> None:
        self.models = models
        self.bigrams = PerSalt(lambda: Bigrams(store))
        self.num_copied = self.num_bigrams = 0
        self._lengths = lengths
        self._leniency = leniency
        self._indices: dict[int, NgramIndex] = {}
        self.traits = Traits(weights=tuple(weights_of(model.decoder) for model in models), forget=self.bigrams.forget)

    def begin(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self._indices[seq.id] = NgramIndex(1, _LONGEST)
            for model in self.models:
                model.add(seq.id)

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        guesses, waiting = list[_Guess](), dict[int, tuple[_Work, _Ask]]()  # by place in the batch
        room = min((model.max_len for model in self.models), default=1 << 30)
        for i, (seq, budget) in enumerate(zip(seqs, budgets, strict=True)):
            limit = max(0, min(usable_depth(seq, budget), room - len(seq.tokens)))
            index = self._indices[seq.id]
            bigrams = self.bigrams.of(seq)
            bigrams.learn(seq.tokens[max(0, len(index) - 1) :])
            index.extend(seq.tokens[len(index) :])
            guesses.append(_Guess(seq.tokens, limit, index, [], [], bigrams))
            work = self._write(guesses[i], 0)
            if (ask := next(work, None)) is not None:
                waiting[i] = work, ask
        while waiting:
            level = max(ask.level for _, ask in waiting.values())
            asked = {i: pair for i, pair in waiting.items() if pair[1].level == level}
            texts = [Text(seqs[i].id, ask.tokens) for i, (_, ask) in asked.items()]
            found = self.models[level].review(texts, [ask.count for _, ask in asked.values()])
            for (i, (work, _)), logits in zip(asked.items(), found, strict=True):
                check_finite(seqs, [i], [float(logits.max())])
                try:
                    waiting[i] = work, work.send(logits)
                except StopIteration:
                    del waiting[i]
        return [chain([seq.pending, *guess.tokens]) for seq, guess in zip(seqs, guesses, strict=True)]

    def end(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self._indices.pop(seq.id, None)
            for model in self.models:
                model.free(seq.id)

    def _write(self, guess: _Guess, row: int) -> _Work:
        """Let the levels from `row` on write, each until there are as many tokens as the row of lengths adds up to."""
        start, wanted = len(guess.tokens), 0
        for level in range(row, len(self.models) + 1):
            wanted += self._lengths[row][level]
            while (before := len(guess.tokens)) < min(start + wanted, guess.limit):
                if level == len(self.models):
                    self._copy(guess, start + wanted)
                else:
                    yield from self._advance(guess, level)
                if len(guess.tokens) == before:
                    break

    def _advance(self, guess: _Guess, level: int) -> _Work:
        """The levels below guess, this one reviews: at least one more token."""
        start = len(guess.tokens)
        yield from self._write(guess, level + 1)
        drafted = guess.tokens[start:]
        logits = yield _Ask(level, guess.text + guess.tokens, 1 + len(drafted))
        best, distributions = logits.argmax(-1).tolist(), torch.softmax(logits.float(), -1)
        kept = 0
        for token, below in zip(drafted, guess.probs[start:], strict=True):
            prob = float(distributions[kept, token])
            if token != best[kept] and (self._leniency == 1 or self._leniency * prob <= below):
                break
            guess.probs[start + kept] = prob
            kept += 1
        del guess.tokens[start + kept :], guess.probs[start + kept :]
        if len(guess.tokens) < guess.limit:
            guess.tokens.append(best[kept])
            guess.probs.append(float(distributions[kept, best[kept]]))

    def _copy(self, guess: _Guess, upto: int) -> None:
        """What followed the longest, latest earlier occurrence of at most the last `_LONGEST` tokens.

        Where even the last token is new to the text: one token, by the bigrams.
        """
        room = min(upto, guess.limit) - len(guess.tokens)
        context = guess.text[-_LONGEST:] + guess.tokens
        if (found := next(iter(guess.index.lookup(context, room)), None)) is not None:
            written = list(found.tokens)
            self.num_copied += len(written)
        elif (likely := guess.bigrams.after(context[-1])) is not None:
            written = [likely]
            self.num_bigrams += 1
        else:
            return
        guess.tokens += written
        guess.probs += [1.0] * len(written)


def build(options: CascadeOptions, port: TargetPort) -> CascadeDrafter:
    """Load the models of every level and stack them."""
    models = [
        DraftModel(
            load_draft(ModelOptions(model=name, dtype=options.dtype, quantization=options.quantization), port),
            cache=port.cache,
        )
        for name in options.models
    ]
    store = open_for(options.datastore, port) if options.datastore else None
    return CascadeDrafter(models, options.lengths, options.leniency, store)


METHOD = DrafterMethod(
    name="cascade",
    summary="drafters that draft for each other, down to a look-up in the text",
    build=build,
    options=CascadeOptions,
    paper=arxiv("2312.11462", "Cascade speculative drafting for even faster LLM inference"),
    describe=lambda drafter: {"levels": [describe_network(model.decoder) for model in drafter.models]},
)
