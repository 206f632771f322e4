"""N-Grammys: continuations that the text has had, and the model's own bigrams, merged into one tree.

Stewart et al., "The N-Grammys: accelerating autoregressive inference with learning-free batched speculation", 2024,
https://arxiv.org/abs/2411.03786.

    k rows   what followed the last q tokens in the text, the most frequent first      count >= 1
             then t1 t2 t3 ..., t1 among the model's best after the last token,         count = p(t1 | last) < 1
             t2 the best after t1, t3 the best after t2; a row ends where it is worth less than a bound
    tables   bigram: the k best of p(. | x), by one pass over the text "x" for each token x; unigram: their mean

The paper verifies the rows as a batch; a tree has the same distribution and fewer nodes. The tables are made once and
lie in a file, which an interrupted build goes on with. Its name is a hash over the model's logits after a few tokens,
so a fine-tuned or quantized model has tables of its own. Data in: committed tokens; data out: a deterministic tree.
"""

import hashlib
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Literal
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.look_up.lookup_drafter import LookupDrafter
from outdraft.drafters.shared.look_up.ngram_index import NgramIndex
from outdraft.drafters.shared.look_up.span_index import Sequel
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path
from outdraft.options.ranges import MOST_NGRAM, check_range
from outdraft.options.read_file import require_file
from outdraft.weights.user_cache import user_cache

Score = Callable[[Tensor], Tensor]  # ids [n, T] -> logits [n, V] after each text


@dataclass(slots=True, kw_only=True)
class Tables:
    """Rows below `done` are filled."""

    ids: NDArray[np.int32]  # [V, k] best first
    probs: NDArray[np.float32]  # [V, k]
    total: NDArray[np.float64]  # [V] sum of the distributions so far
    done: int = 0

    @property
    def complete(self) -> bool:
        """Whether every token was scored."""
        return self.done == len(self.ids)


def empty_tables(vocab_size: int, width: int) -> Tables:
    """Tables of the right shape in which nothing is filled yet."""
    width = min(width, vocab_size)
    return Tables(
        ids=np.zeros((vocab_size, width), np.int32),
        probs=np.zeros((vocab_size, width), np.float32),
        total=np.zeros(vocab_size, np.float64),
    )


def fill(tables: Tables, score: Score, batch: int = 64) -> Iterator[int]:
    """Score the tokens that are left, `batch` a pass; yields how many are done after each pass."""
    while not tables.complete:
        rows = range(tables.done, min(tables.done + batch, len(tables.ids)))
        distributions = torch.softmax(score(torch.tensor(rows)[:, None]).double(), -1)
        best = distributions.topk(tables.ids.shape[1], -1)
        tables.ids[rows.start : rows.stop] = best.indices.cpu().numpy()
        tables.probs[rows.start : rows.stop] = best.values.cpu().numpy()
        tables.total += distributions.sum(0).cpu().numpy()
        tables.done = rows.stop
        yield tables.done


_SAVE_EVERY = 5.0  # seconds
_log = logging.getLogger(__name__)


def load_tables(score: Score, vocab_size: int, *, width: int, directory: str = "") -> Tables:
    """The tables of this model with `width` successors a token, from `directory` as far as they are there.

    A build that takes more than a few seconds says so, and its progress, as a warning of the log.
    Raises `ConfigError` if nothing can be written there.
    """
    folder = user_path(directory) if directory else user_cache("ngrammys")
    path = folder / f"{fingerprint(score, vocab_size)}-{width}.npz"
    tables = read(path) or empty_tables(vocab_size, width)
    if tables.complete:
        return tables
    write(path, tables)  # before the work: where nothing can be kept is known now
    began = saved = monotonic()
    first = tables.done
    try:
        for done in fill(tables, score):
            if monotonic() - saved >= _SAVE_EVERY and not tables.complete:
                write(path, tables)
                saved = monotonic()
                left = (saved - began) * (vocab_size - done) / (done - first)
                _log.warning("ngrammys: %d of %d tokens scored, about %.0f s left; %s", done, vocab_size, left, path)
    finally:
        write(path, tables)
    return tables


def fingerprint(score: Score, vocab_size: int) -> str:
    """A name for the model: a hash over its logits after some sixteen tokens spread over the vocabulary."""
    probes = torch.linspace(0, vocab_size - 1, min(16, vocab_size)).long()
    logits = torch.cat([score(probe.reshape(1, 1)) for probe in probes]).float().cpu()
    return hashlib.sha256(logits.numpy().tobytes()).hexdigest()[:24]


def read(path: Path) -> Tables | None:
    """What is kept there; None if nothing readable is."""
    try:
        with np.load(require_file(path)) as kept:
            return Tables(ids=kept["ids"], probs=kept["probs"], total=kept["total"], done=int(kept["done"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        _log.warning("ngrammys: %s is not readable (%s) and will be made again", path, error)
        return None


def write(path: Path, tables: Tables) -> None:
    """Whole or not at all. Raises `ConfigError` if the place cannot be written to."""
    beside = path.with_name(f"{path.stem}.{os.getpid()}.npz")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            np.savez(beside, ids=tables.ids, probs=tables.probs, total=tables.total, done=np.int64(tables.done))
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cache_dir={str(path.parent)!r} cannot be written to: {error}; name another directory"
        ) from error


class TableRows:
    """`everywhere`: rows begin with the tokens likely after any other, not with those after the last one."""

    __slots__ = ("_best", "_ids", "_min_prob", "_probs", "_sure")

    def __init__(self, tables: Tables, *, everywhere: bool, min_prob: float) -> None:
        self._ids, self._probs = tables.ids, tables.probs
        if everywhere:
            size, width = tables.ids.shape
            best = np.argsort(-tables.total, kind="stable")[:width]
            self._ids = np.broadcast_to(best, (size, width))
            self._probs = np.broadcast_to(tables.total[best] / size, (size, width))
        # `.data`, a memoryview, gives plain numbers, several times quicker than an array.
        self._best = np.ascontiguousarray(tables.ids[:, 0]).data
        self._sure = np.ascontiguousarray(tables.probs[:, 0]).data
        self._min_prob = min_prob

    def after(self, last: int, depth: int) -> Iterator[Sequel]:
        """Rows of at most `depth` tokens; each weighs the probability of its first token."""
        for first, prob in zip(map(int, self._ids[last]), map(float, self._probs[last]), strict=True):
            yield Sequel(self._walk(first, prob, depth), prob)

    def _walk(self, token: int, worth: float, depth: int) -> list[int]:
        path = [token]
        while len(path) < depth:
            worth *= self._sure[token]
            if worth < self._min_prob:
                break
            token = self._best[token]
            path.append(token)
        return path


_TABLE_WIDTH = 16  # successors kept at least, so that a change of `rows` need not make the tables again
_MAX_LOOKS = 64  # places of the text that are compared: bounds the cost of very common tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class NgrammysOptions:
    """How rows are made. Raises `ConfigError` naming what is out of range."""

    rows: int = 10  # how many continuations are proposed, those of the text and those of the tables together (k)
    query: int = 1  # how many tokens at the end of the text must match (q)
    context: bool = True  # whether continuations are taken from the text itself
    # where the other continuations begin: "bigram", after the last token; "unigram", with the mean of all bigrams
    table: Literal["bigram", "unigram", "none"] = "bigram"
    # a continuation of the table ends where the product of its probabilities falls below this; 0 never ends one
    min_prob: float = 0.001
    # the directory where the tables are kept; when empty, outdraft/ngrammys in the user's cache directory
    cache_dir: str = ""

    def __post_init__(self) -> None:
        check_range(self, "rows", least=1, most=256, note="of every token of the vocabulary")
        check_range(self, "query", least=1, most=MOST_NGRAM)
        if not 0 <= self.min_prob < 1:
            raise ConfigError(f"min_prob={self.min_prob}: must be at least 0 and below 1")
        if self.table not in ("bigram", "unigram", "none"):
            raise ConfigError(f"table={self.table!r}: it is 'bigram', 'unigram' or 'none'")
        if self.table == "none" and not self.context:
            raise ConfigError("context=False, table='none': nothing is left to guess from; turn one of them on")


class MixedIndex:
    """The text's n-grams, then the model's tables."""

    __slots__ = ("_table", "_text")

    def __init__(self, text: NgramIndex | None, table: TableRows | None) -> None:
        self._text, self._table = text, table

    def extend(self, tokens: Iterable[int]) -> None:
        """Enter the tokens that follow those entered so far."""
        if self._text is not None:
            self._text.extend(tokens)

    def lookup(self, context: Seq[int], depth: int) -> Iterator[Sequel]:
        """Rows of the text, the most frequent first, then rows of the table; who asks takes as many as it wants."""
        if self._text is not None:
            found = islice(self._text.lookup(context, depth), _MAX_LOOKS)
            for row, count in Counter(tuple(one.tokens) for one in found).most_common():
                yield Sequel(row, count)
        if self._table is not None:
            yield from self._table.after(context[-1], depth)


def build(options: NgrammysOptions, port: TargetPort) -> LookupDrafter:
    """Take the tables from the cache directory, or make them: one pass of one token for each of the vocabulary."""
    table = None
    if options.table != "none":
        width = max(options.rows, _TABLE_WIDTH)
        tables = load_tables(port.layers.score, port.facts.vocab_size, width=width, directory=options.cache_dir)
        table = TableRows(tables, everywhere=options.table == "unigram", min_prob=options.min_prob)

    def make_index(seq: Sequence) -> MixedIndex:
        text = NgramIndex(options.query, options.query) if options.context else None
        return MixedIndex(text, table)

    return LookupDrafter(make_index, options.rows)


METHOD = DrafterMethod(
    name="ngrammys",
    summary="frequent continuations of the text, then the model's own bigrams, which are computed once (no model)",
    build=build,
    options=NgrammysOptions,
    paper=arxiv(
        "2411.03786", "The N-Grammys: accelerating autoregressive inference with learning-free batched speculation"
    ),
    shape_of=lambda options: "tree",
)
