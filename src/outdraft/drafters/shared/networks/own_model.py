"""A draft model with its own memory of each text, kept in step by what the two have in common.

    cached   a b c d | t1 t2          text now: a b c d t1 y
    keep             | t1             longest common prefix; t2 is dropped
    feed                    y         everything after it, in one ragged pass

A text is anything with an id and tokens: a sequence, or a drafter's own view of one (`Text`: the ids of another
vocabulary, a guess that goes on), which may also lose its end again.

Leviathan, Kalman and Matias, "Fast inference from transformers via speculative decoding", 2022,
https://arxiv.org/abs/2211.17192. Data in: texts and draft tokens; data out: logits of what follows.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from outdraft.cache.config import CacheConfig
from outdraft.core.drafter import Traits
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.chains.network import ChainNetwork, LeastProbs
from outdraft.drafters.shared.networks.draft_cache import DraftCache
from outdraft.drafters.shared.networks.draft_network import loaded_network
from outdraft.drafters.shared.networks.load_draft import ModelOptions, describe_network, load_draft, weights_of
from outdraft.drafters.shared.networks.streaming_cache import StreamingCache, StreamWindow
from outdraft.drafters.shared.plain import PlainDrafter
from outdraft.drafters.shared.trees.tree import Tree
from outdraft.kernels.decoder.chains import Chains, Draw
from outdraft.models.networks.network import Network
from outdraft.models.networks.port import TargetPort
from outdraft.nn.cached import CachedContext
from outdraft.options.errors import CacheFullError

C = TypeVar("C")
_ENDLESS = 1 << 30  # tokens of a text, where the cache drops what is old


@dataclass(frozen=True, slots=True)
class Text:
    """A drafter's own view of a sequence."""

    id: int
    tokens: list[int]


Readable = Sequence | Text  # what a draft model may read: an id, under which its memory is kept, and tokens in its ids


@dataclass(slots=True, eq=False)
class _Memory:
    """What is held of one text."""

    first: int = 0  # what the model is given for token 0
    salt: tuple[object, ...] | None = None  # texts of one salt share rows; None: it shares none
    ids: list[int] = field(default_factory=list)  # committed rows
    # (guess row of the parent, or -1 for the text's last row; token)
    guess: list[tuple[int, int]] = field(default_factory=list)

    def position(self, i: int) -> int:
        """What the model is given for the i-th token behind the committed ones; -1: for the last of them."""
        return self.first + len(self.ids) + i

    def confirmed(self, tokens: list[int]) -> list[int]:
        """Guess rows on the path that `tokens` took; at least the pending token stays to be fed."""
        rows: list[int] = []
        at = len(self.ids)
        while at + len(rows) < len(tokens) - 1:
            step = (rows[-1] if rows else -1, tokens[at + len(rows)])
            row = next((r for r, fed in enumerate(self.guess) if fed == step), None)
            if row is None:
                break
            rows.append(row)
        return rows


class DraftModel:
    """A decoder and one text for each sequence."""

    rewinds = True  # a text may lose its end again

    def __init__(
        self,
        decoder: Network,
        *,
        chunk: int = 256,
        cache: CacheConfig | None = None,
        stream: StreamWindow | None = None,
    ) -> None:
        config = decoder.config
        self.decoder = decoder
        self.max_len = config.max_len if stream is None else _ENDLESS
        self._chunk = chunk
        if stream is not None:
            self._cache: DraftCache = StreamingCache(decoder, stream, room=2 * chunk)
        else:
            sizes, place = (config.num_layers, config.num_kv_heads, config.head_dim), (decoder.dtype, decoder.device)
            self._cache = DraftCache(*sizes, *place, config.max_len, exact=decoder.exact, config=cache)
        self._texts: dict[int, _Memory] = {}
        self._states = torch.empty(0)  # [n, D] behind the tokens that `guess` fed last
        self._network = loaded_network(decoder)

    @property
    def is_empty(self) -> bool:
        return not self._texts

    def add(self, seq: int) -> None:
        self._texts[seq] = _Memory()
        self._cache.add(seq)

    def free(self, seq: int) -> None:
        if self._texts.pop(seq, None) is not None:
            self._cache.free(seq)

    def cached_ids(self, seq: int) -> list[int]:
        """The text's ids whose rows are committed."""
        return list(self._texts[seq].ids)

    def room(self, tokens: Seq[int]) -> int:
        """How many tokens may be drafted behind this text: the last token fed is the last but one drafted."""
        return max(0, self.max_len + 1 - len(tokens))

    def read(self, seqs: Seq[Readable]) -> Tensor:
        """Bring every memory up to its text, pending token included: logits [B, V] of what follows."""
        return self._read([seq.id for seq in seqs], self._unread(seqs))

    def review(self, seqs: Seq[Readable], counts: Seq[int]) -> list[Tensor]:
        """The same, with the logits at each text's last `counts[i]` tokens: [counts[i], V] each."""
        for seq, count in zip(seqs, counts, strict=True):
            self._texts[seq.id].guess = []
            self._forget(seq.id, len(seq.tokens) - count)
        todo = self._unread(seqs, max(counts))
        logits = self._read([seq.id for seq in seqs], todo, every_row=True)
        rows = torch.split(logits, [len(new) for new in todo])
        return [own[-count:] for own, count in zip(rows, counts, strict=True)]

    def _forget(self, seq: int, length: int) -> None:
        """Hold no more than the text's first `length` tokens."""
        memory = self._texts[seq]
        if len(memory.ids) > length:
            memory.guess = []
            del memory.ids[self._cache.truncate(seq, length) :]

    def _unread(self, seqs: Seq[Readable], last: int = 1) -> list[list[int]]:
        """Keep what the texts have confirmed: the tokens of each that are to be fed, not too many at once.

        Of what is long, at least the `last` tokens are left.
        """
        todo: list[list[int]] = []
        for seq in seqs:
            text, known = self._texts[seq.id], seq.tokens[:-1]
            if not text.ids:
                self._begin(seq, text, known)
            if known[: len(text.ids)] != text.ids:  # taken back, asked twice, or about a text that did not come true
                pairs = enumerate(zip(text.ids, known, strict=False))
                self._forget(seq.id, next((i for i, (ours, theirs) in pairs if ours != theirs), len(known)))
            rows = text.confirmed(seq.tokens)
            self._cache.keep(seq.id, rows)
            text.ids += [text.guess[row][1] for row in rows]
            text.guess = []
            self._publish(seq.id)
            new = seq.tokens[len(text.ids) :]
            while len(new) >= self._chunk + last:  # a prompt is read alone, in chunks that no other request can shift
                self._read([seq.id], [new[: self._chunk]])
                new = new[self._chunk :]
            todo.append(new)
        return todo

    def _begin(self, seq: Readable, text: _Memory, known: list[int]) -> None:
        """Nothing of this text is held: perhaps an earlier one has left its beginning."""
        if not isinstance(seq, Sequence):
            text.first = self.decoder.config.first_position(self.max_len)
            return
        text.first = self.decoder.config.first_position(seq.longest)
        text.salt = (seq.request.cache_salt, text.first)
        if not text.guess:
            text.ids = known[: self._cache.adopt(seq.id, text.salt, known)]

    def _publish(self, seq: int) -> None:
        text = self._texts[seq]
        if text.salt is not None:
            self._cache.publish(seq, text.salt, text.ids)

    def guess(self, seqs: Seq[int], tokens: list[int], step: int) -> Tensor:
        """Feed one more token of each chain, `step` places after the pending one: logits [n, V]."""
        positions = [self._texts[seq].position(-1) + step for seq in seqs]
        context = self._extend(seqs, [1] * len(seqs))
        for seq, token in zip(seqs, tokens, strict=True):
            guess = self._texts[seq].guess
            guess.append((len(guess) - 1, token))
        self._states, logits = self._network.feed(tokens, positions, context, range(len(tokens)))
        return logits

    @property
    def runs_chains(self) -> bool:
        """Whether the kernels draft a whole chain in one call."""
        return self._network.runs_chains

    def chain_network(self, texts: Seq[Readable]) -> ChainNetwork:
        """The rows of a round, one for each text."""

        def feed(step: int, rows: list[int], tokens: list[int], num_open: int) -> Tensor:
            own = [texts[i] for i in rows]
            return self.read(own) if step == 0 else self.guess([text.id for text in own], tokens, step)

        def chain(rows: list[int], depths: list[int], draws: list[Draw | None], cutoffs: LeastProbs | None) -> Chains:
            own = [texts[i] for i in rows]  # all their rows stay guesses until the next call
            todo, ids = self._unread(own), [text.id for text in own]
            context = self._extend(ids, [len(new) for new in todo])
            self._extend(ids, [depth - 1 for depth in depths])  # room for the steps
            starts = [self._texts[seq].position(0) for seq in ids]
            positions = [start + i for start, new in zip(starts, todo, strict=True) for i in range(len(new))]
            fed = [token for new in todo for token in new]
            found = self._network.chain(fed, positions, context, depths, draws, cutoffs=cutoffs)
            for seq, new, path in zip(ids, todo, found.tokens, strict=True):
                self._texts[seq].guess = list(enumerate([*new, *path[:-1]], start=-1))
            return found

        return ChainNetwork(feed=feed, chain=chain if self.runs_chains else None, states=lambda: self._states)

    def confirm(self, seq: Sequence, num_accepted: int) -> None:
        """So many tokens of the sequence's last guess have become text. Here the text itself says so."""

    def feed_trees(self, level: int, trees: list[Tree]) -> Tensor:
        """What `grow_trees` asks: the pending tokens first, then the nodes below."""
        return self.read([tree.seq for tree in trees]) if level == 0 else self.branch(trees)

    def branch(self, trees: Seq[Tree]) -> Tensor:
        """Feed the frontier of each tree (below its pending token): logits [n, V], tree after tree."""
        tokens: list[int] = []
        positions: list[int] = []
        sees: list[list[list[int]]] = []
        for tree in trees:
            text = self._texts[tree.seq.id]
            visible = tree.rows_above()
            for node, above in zip(tree.frontier, visible, strict=True):
                text.guess.append((above[-1] if above else -1, tree.tokens[node]))
                tokens.append(tree.tokens[node])
                positions.append(text.position(-1) + tree.depths[node])
            sees.append(visible)
        ids = [tree.seq.id for tree in trees]
        context = self._or_forget(ids, lambda: self._cache.branch(ids, sees))
        return self._network.logits(tokens, positions, context, range(len(tokens)))

    def _extend(self, seqs: Seq[int], counts: Seq[int]) -> CachedContext:
        return self._or_forget(seqs, lambda: self._cache.extend(seqs, counts))

    def _or_forget(self, seqs: Seq[int], grow: Callable[[], C]) -> C:
        """Where the cache is full it has forgotten these guesses, and so do we."""
        try:
            return grow()
        except CacheFullError:
            for seq in seqs:
                self._texts[seq].guess = []
            raise

    def _read(self, seqs: Seq[int], todo: list[list[int]], *, every_row: bool = False) -> Tensor:
        """Feed committed tokens, several a sequence: logits [B, V] at each one's last, or at every row."""
        tokens: list[int] = []
        positions: list[int] = []
        last: list[int] = []
        for seq, new in zip(seqs, todo, strict=True):
            at = self._texts[seq].position(0)
            tokens += new
            positions += range(at, at + len(new))
            last.append(len(tokens) - 1)
        counts = [len(new) for new in todo]
        wanted = range(len(tokens)) if every_row else last
        logits = self._network.logits(tokens, positions, self._extend(seqs, counts), wanted)
        for seq, new in zip(seqs, todo, strict=True):
            self._cache.keep(seq, range(len(new)))
            self._texts[seq].ids += new
            self._publish(seq)
        return logits


class ModelDrafter(PlainDrafter):
    """`traits`: what it can do, besides having the model's weights."""

    def __init__(self, model: DraftModel, **traits: Any) -> None:
        self.model = model
        self.traits = Traits(weights=(weights_of(model.decoder),), **traits)

    def begin(self, seqs: Seq[Sequence]) -> None:
        """Memory for each; the prompt is read when the first guess is wanted."""
        for seq in seqs:
            self.model.add(seq.id)

    def end(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self.model.free(seq.id)


def open_model(options: ModelOptions, port: TargetPort, *, same_vocab: bool = True) -> DraftModel:
    """The draft model that the options name. Raises `CapabilityError` if its ids must be the target's and are not."""
    return DraftModel(load_draft(options, port, same_vocab=same_vocab), cache=port.cache)


def describe_model(drafter: ModelDrafter) -> Mapping[str, Any]:
    """What the model's options came to."""
    return describe_network(drafter.model.decoder)
