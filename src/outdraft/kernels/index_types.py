"""The C interface of the indices over texts (native/api_index.cpp): structures and signatures. Loaded by `library`."""

from array import array
from collections.abc import Iterable
from ctypes import POINTER, Structure, c_double, c_int, c_int32, c_int64, c_void_p


class CSortWatch(Structure):
    """SortWatch of native/suffix_array.h."""

    _fields_ = (("stop", c_int), ("share", c_double))


class CCorpus(Structure):
    """Corpus of native/suffix_array.h."""

    _fields_ = (("tokens", c_void_p), ("order", c_void_p), ("size", c_int32), ("end", c_int32))


class CCorpusQuery(Structure):
    """CorpusQuery of native/suffix_array.h."""

    _fields_ = (
        ("context", c_void_p),
        ("length", c_int),
        ("min_match", c_int),
        ("max_match", c_int),
        ("max_hits", c_int),
        ("depth", c_int),
        ("max_nodes", c_int),
    )


class CCorpusAnswer(Structure):
    """CorpusAnswer of native/suffix_array.h."""

    _fields_ = (
        ("tokens", POINTER(c_int32)),
        ("parents", POINTER(c_int32)),
        ("counts", POINTER(c_int32)),
        ("nodes", c_int32),
        ("match", c_int32),
        ("hits", c_int64),
    )


class CGuessLimits(Structure):
    """GuessLimits of native/suffix_tree.h."""

    _fields_ = (
        ("max_nodes", c_int),
        ("max_depth", c_int),
        ("width", c_int),
        ("factor", c_double),
        ("offset", c_double),
        ("min_prob", c_double),
    )


class CTreeGuess(Structure):
    """TreeGuess of native/suffix_tree.h."""

    _fields_ = (
        ("tokens", POINTER(c_int32)),
        ("parents", POINTER(c_int32)),
        ("probs", POINTER(c_double)),
        ("nodes", c_int32),
        ("match", c_int32),
        ("score", c_double),
    )


class CCursor(Structure):
    """Automaton::Cursor of native/automaton.h."""

    _fields_ = (("state", c_int32), ("length", c_int32))


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
