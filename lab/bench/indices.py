"""Seconds of the indices over texts: look-ups in a datastore, and a suffix tree's and an automaton's costs.

    python -m lab.bench.indices FILE          # a file of `outdraft datastore build`; prints JSON

Contexts come from the datastore's own text, with a wrong token before their last m, so that matches of all lengths are
asked for in turn. Suffix trees and automata learn a piece of the same text, cut into documents. Data in: an open
datastore; data out: figures as plain data, microseconds.
"""

import argparse
import json
import random
import sys
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from outdraft.drafters.shared.look_up.datastore.file import Datastore, open_datastore
from outdraft.kernels.text_index.automaton import make_automaton
from outdraft.kernels.text_index.suffix_array import CorpusQuery, look_up
from outdraft.kernels.text_index.suffix_tree import GuessLimits, make_suffix_tree

_LONGEST = 16
_TEXT = 500  # tokens of one text of a suffix tree
DEPTHS = (16, 32, 64, 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Median, 99th percentile and mean of the time of one call, in microseconds."""

    p50: float
    p99: float
    mean: float


def time_indices(store: Datastore, *, queries: int, num_tokens: int) -> dict[str, Any]:
    """Everything: {"datastore": ..., "suffix_tree": [one a depth], "automaton": ...}."""
    contexts = make_contexts(store, queries)
    hits: list[int] = []

    def ask(context: list[int]) -> None:
        hits.append(look_up(store.corpus, context, CorpusQuery()).hits)

    cold = _spread(ask, contexts)
    warm = _spread(ask, contexts)
    tokens = store.corpus.tokens[:num_tokens]
    texts = [list(map(int, tokens[start : start + _TEXT])) for start in range(0, len(tokens), _TEXT)]
    return {
        "datastore": {
            "queries": len(contexts),
            "mean_hits": sum(hits) / len(hits),
            "first_us": asdict(cold),  # pages may have to be read from the disk
            "again_us": asdict(warm),
        },
        "suffix_tree": [_time_suffix_tree(texts, contexts, depth) for depth in DEPTHS],
        "automaton": _time_automaton(texts),
    }


def make_contexts(store: Datastore, count: int) -> list[list[int]]:
    """Ends of texts whose last 2..16 tokens the datastore has, behind one that it has elsewhere."""
    rng, tokens = random.Random(0), store.corpus.tokens
    contexts = []
    for i in range(count):
        at = rng.randrange(max(1, len(tokens) - _LONGEST))
        known = 2 + i % (_LONGEST - 1)
        context = list(map(int, tokens[at : at + _LONGEST]))
        context[: len(context) - known] = [int(tokens[rng.randrange(len(tokens))])] * max(0, len(context) - known)
        contexts.append(context)
    return contexts


def _time_suffix_tree(texts: Seq[list[int]], contexts: Seq[list[int]], depth: int) -> dict[str, Any]:
    tree = make_suffix_tree(depth)
    size = sum(map(len, texts))

    def learn(text: list[int]) -> None:
        tree.extend(text)
        tree.close()

    appended = _total(learn, texts)
    held = getattr(tree, "num_bytes", None)
    limits = GuessLimits(max_nodes=64, max_depth=16)
    long = [text[: _TEXT // 2] for text in texts[: len(contexts)]]  # the whole depth matches
    guess = _spread(lambda context: tree.guess(context, limits), contexts)
    recite = _spread(lambda context: tree.guess(context, limits), long)
    evicted = _total(lambda text: tree.evict(), texts)
    return {
        "depth": depth,
        "tokens": size,
        "append_us": appended / size,
        "evict_us": evicted / size,
        "look_up_us": asdict(guess),
        "look_up_whole_depth_us": asdict(recite),
        "bytes_per_token": held / size if held is not None else None,
    }


def _time_automaton(texts: Seq[list[int]]) -> dict[str, Any]:
    automaton, size = make_automaton(), sum(map(len, texts))
    appended = _total(automaton.extend, texts)
    held = getattr(automaton, "num_bytes", None)
    return {"append_us": appended / size, "bytes_per_token": held / size if held is not None else None}


def _total(call: Callable[[list[int]], object], given: Seq[list[int]]) -> float:
    began = perf_counter()
    for one in given:
        call(one)
    return (perf_counter() - began) * 1e6


def _spread(call: Callable[[list[int]], object], given: Seq[list[int]]) -> Spread:
    times = sorted(_total(call, [one]) for one in given)
    return Spread(
        p50=times[len(times) // 2], p99=times[min(len(times) - 1, len(times) * 99 // 100)], mean=sum(times) / len(times)
    )


def main(words: Seq[str] | None = None) -> None:
    """Print the figures of one datastore."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.indices", description="Time look-ups in a datastore.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--queries", type=int, default=3000, help="look-ups that are timed")
    parser.add_argument("--tokens", type=int, default=200_000, help="the most tokens that suffix trees learn")
    asked = parser.parse_args(words)
    told = time_indices(open_datastore(asked.file), queries=asked.queries, num_tokens=asked.tokens)
    sys.stdout.write(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    main()
