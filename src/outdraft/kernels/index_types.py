"""The C interface of the indices over texts (native/api_index.cpp): structures and signatures. Loaded by `library`."""

from array import array
from collections.abc import Iterable
from ctypes import POINTER, Structure, c_double, c_int, c_int32, c_int64, c_void_p
from typing import Any


def all_of(kind: Any, *names: str) -> tuple[tuple[str, Any], ...]:
    """Fields of a structure that follow each other and are of one type."""
    return tuple((name, kind) for name in names)


class CSortWatch(Structure):
    """SortWatch of native/suffix_array.h."""

    _fields_ = (("stop", c_int), ("share", c_double))


class CCorpus(Structure):
    """Corpus of native/suffix_array.h."""

    _fields_ = (*all_of(c_void_p, "tokens", "order"), *all_of(c_int32, "size", "end"))


class CCorpusQuery(Structure):
    """CorpusQuery of native/suffix_array.h."""

    _fields_ = (
        ("context", c_void_p),
        *all_of(c_int, "length", "min_match", "max_match", "max_hits", "depth", "max_nodes"),
    )


class CCorpusAnswer(Structure):
    """CorpusAnswer of native/suffix_array.h."""

    _fields_ = (
        *all_of(POINTER(c_int32), "tokens", "parents", "counts"),
        *all_of(c_int32, "nodes", "match"),
        ("hits", c_int64),
    )


class CGuessLimits(Structure):
    """GuessLimits of native/suffix_tree.h."""

    _fields_ = (*all_of(c_int, "max_nodes", "max_depth", "width"), *all_of(c_double, "factor", "offset", "min_prob"))


class CTreeGuess(Structure):
    """TreeGuess of native/suffix_tree.h."""

    _fields_ = (
        *all_of(POINTER(c_int32), "tokens", "parents"),
        ("probs", POINTER(c_double)),
        *all_of(c_int32, "nodes", "match"),
        ("score", c_double),
    )


class CCursor(Structure):
    """Automaton::Cursor of native/automaton.h."""

    _fields_ = all_of(c_int32, "state", "length")


STRUCTURES: dict[str, type[Structure]] = {
    "SortWatch": CSortWatch,
    "Corpus": CCorpus,
    "CorpusQuery": CCorpusQuery,
    "CorpusAnswer": CCorpusAnswer,
    "GuessLimits": CGuessLimits,
    "TreeGuess": CTreeGuess,
    "Cursor": CCursor,
}
SIGNATURES = {
    "od_sort_suffixes": (c_void_p, [c_void_p, c_int32, c_int32, c_void_p, POINTER(CSortWatch)]),
    "od_corpus_look_up": (c_void_p, [POINTER(CCorpus), POINTER(CCorpusQuery), POINTER(CCorpusAnswer)]),
    "od_suffix_tree_new": (c_void_p, [c_int]),
    "od_suffix_tree_free": (None, [c_void_p]),
    "od_suffix_tree_extend": (c_void_p, [c_void_p, c_void_p, c_int]),
    "od_suffix_tree_close": (None, [c_void_p]),
    "od_suffix_tree_evict": (c_void_p, [c_void_p]),
    "od_suffix_tree_count": (c_int64, [c_void_p, c_void_p, c_int]),
    "od_suffix_tree_guess": (c_void_p, [c_void_p, c_void_p, c_int, POINTER(CGuessLimits), POINTER(CTreeGuess)]),
    "od_suffix_tree_texts": (c_int, [c_void_p]),
    "od_suffix_tree_nodes": (c_int64, [c_void_p]),
    "od_suffix_tree_bytes": (c_int64, [c_void_p]),
    "od_automaton_new": (c_void_p, []),
    "od_automaton_free": (None, [c_void_p]),
    "od_automaton_extend": (c_void_p, [c_void_p, c_void_p, c_int]),
    "od_automaton_read": (c_void_p, [c_void_p, POINTER(CCursor), c_void_p, c_int]),
    "od_automaton_match": (c_int32, [c_void_p]),
    "od_automaton_match_end": (c_int32, [c_void_p]),
    "od_automaton_end": (c_void_p, [c_void_p, POINTER(CCursor), POINTER(c_int32)]),
    "od_automaton_bytes": (c_int64, [c_void_p]),
}


def ids(tokens: "Iterable[int]") -> "tuple[int, int, array[int]]":
    """Address and length of the tokens as int32, and what must live as long as they are read."""
    held = tokens if isinstance(tokens, array) and tokens.typecode == "i" else array("i", tokens)
    return (*held.buffer_info(), held)
