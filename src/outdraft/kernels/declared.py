"""Structures and functions of the C interface (native/api.h), as `ctypes` declares them."""

from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_uint64, c_void_p

from outdraft.kernels.index_types import SIGNATURES as INDEX_SIGNATURES
from outdraft.kernels.index_types import STRUCTURES as INDEX_STRUCTURES
from outdraft.kernels.index_types import all_of


class CBlocks(Structure):
    """od_blocks of native/packed.h."""

    _fields_ = (("type", c_int), ("num_out", c_int), ("rows", c_void_p), ("factor", c_float))


class CLinear(Structure):
    """od_linear of native/api.h."""

    _fields_ = (
        *all_of(c_int, "bits", "num_out", "num_in", "group"),
        *all_of(c_void_p, "weight", "scales", "bias"),
        ("parts", POINTER(CBlocks)),
        ("num_parts", c_int),
    )


class CNorms(Structure):
    """od_norms of native/api.h."""

    _fields_ = all_of(c_void_p, "attn", "mlp", "attn_post", "mlp_post", "q", "k")


class CEntrance(Structure):
    """od_entrance of native/api.h."""

    _fields_ = (
        *all_of(CLinear, "fusion", "join"),
        *all_of(c_void_p, "tap_norms", "token_norm", "feature_norm"),
        *all_of(c_int, "taps", "tap_width", "one_tap_norm", "origin", "norms_carried"),
        ("tap_eps", c_float),
    )


class CShape(Structure):
    """Shape of native/model.h."""

    _fields_ = (
        *all_of(c_int, "hidden", "heads", "kv_heads", "head_dim", "inner", "vocab", "rotary"),
        *all_of(c_float, "eps", "scale", "added", "logit_scale", "score_cap", "logit_cap", "growth"),
        *all_of(c_int, "first_len", "activation", "gated", "norm", "norms_whole", "parallel"),
    )


class CSpan(Structure):
    """Span of native/model.h."""

    _fields_ = (
        *all_of(c_int64, "start", "stop", "base", "first"),
        *all_of(c_void_p, "keys", "values", "key_scales", "value_scales", "pages"),
        *all_of(c_int64, "layer_rows", "page_rows", "head_rows"),
        *all_of(POINTER(c_int32), "ends", "path"),
    )


class CPass(Structure):
    """Pass of native/model.h."""

    _fields_ = (
        ("hidden", c_void_p),
        ("positions", POINTER(c_int32)),
        *all_of(c_void_p, "cos", "sin"),
        ("table", c_int64),
        ("rows", c_int),
        ("spans", POINTER(CSpan)),
        ("num_spans", c_int),
        ("layers", POINTER(c_int32)),
        ("num_layers", c_int),
        *all_of(POINTER(c_void_p), "taps", "middles", "queries"),
        ("skipped", c_char_p),
        ("beside", c_void_p),
    )


class CFeed(Structure):
    """Feed of native/guesser.h."""

    _fields_ = (
        *all_of(c_int, "rows", "num_spans"),
        *all_of(POINTER(c_int32), "tokens", "positions"),
        ("spans", POINTER(CSpan)),
        *all_of(c_void_p, "cos", "sin"),
        ("table", c_int64),
        ("features", c_void_p),
        ("taps", POINTER(c_void_p)),
        ("wanted", POINTER(c_int32)),
        ("num_wanted", c_int),
        *all_of(c_void_p, "states", "logits"),
        ("skipped", c_char_p),
        ("kept", POINTER(c_void_p)),
    )


class CDistribution(Structure):
    """Distribution of native/guesser.h."""

    _fields_ = (*all_of(c_float, "temperature", "top_p", "min_p"), ("top_k", c_int))


class CGuessChain(Structure):
    """GuessChain of native/guesser.h."""

    _fields_ = (
        ("depths", POINTER(c_int32)),
        *all_of(c_int, "stride", "feed_last"),
        ("distributions", POINTER(CDistribution)),
        ("keys", POINTER(c_uint64)),
        ("tokens", POINTER(c_int32)),
        ("q", POINTER(c_void_p)),
        ("states", c_void_p),
        *all_of(POINTER(c_float), "cutoffs", "sure"),
        ("made", POINTER(c_int32)),
    )


class CRowLosses(Structure):
    """RowLosses of native/losses.h."""

    _fields_ = (
        *all_of(c_int, "rows", "size", "is_narrow"),
        *all_of(c_float, "kl", "cross", "tv", "log_accepted", "hybrid", "text"),
        *all_of(c_void_p, "p", "whole", "at", "q", "said", "heavy", "losses", "mass", "gradient"),
    )


SIGNATURES = {
    "od_error": (c_char_p, []),
    "od_best_kernels": (c_char_p, []),
    "od_has_kernels": (c_int, [c_char_p]),
    "od_model_new": (c_void_p, [POINTER(CShape), c_int, c_int, c_char_p]),
    "od_model_free": (None, [c_void_p]),
    "od_model_set_layer": (c_void_p, [c_void_p, c_int, POINTER(CLinear), POINTER(CNorms), c_int, c_int]),
    "od_model_set_head": (c_void_p, [c_void_p, POINTER(CLinear), c_void_p]),
    "od_model_read_head": (c_void_p, [c_void_p, c_void_p]),
    "od_model_read_rows": (c_void_p, [c_void_p, c_void_p, c_int64, c_void_p]),
    "od_model_bytes": (c_int64, [c_void_p]),
    "od_model_unit_bytes": (c_int64, [c_void_p, c_int]),
    "od_model_write_unit": (c_void_p, [c_void_p, c_int, c_void_p]),
    "od_model_lend_unit": (c_void_p, [c_void_p, c_int, c_void_p, c_int64]),
    "od_fix_threads": (c_int, [c_int]),
    "od_checksum": (c_uint64, [c_void_p, c_int64]),
    "od_model_read": (c_uint64, [c_void_p]),
    "od_model_run": (c_void_p, [c_void_p, POINTER(CPass)]),
    "od_model_logits": (c_void_p, [c_void_p, c_void_p, c_int, c_int, c_void_p]),
    "od_dot_work": (c_double, [c_int, c_int64, c_int, c_char_p]),
    "od_matrix_new": (c_void_p, [POINTER(CLinear)]),
    "od_matrix_free": (None, [c_void_p]),
    "od_matrix_bytes": (c_int64, [c_void_p]),
    "od_matrix_multiply": (c_void_p, [c_void_p, c_void_p, c_int, c_void_p, c_int, c_char_p]),
    "od_guesser_new": (c_void_p, [c_void_p, c_void_p, c_int, c_void_p, c_float, c_void_p, c_float, c_int]),
    "od_guesser_set_table": (c_void_p, [c_void_p, POINTER(CBlocks), c_void_p]),
    "od_guesser_free": (None, [c_void_p]),
    "od_guesser_set_entrance": (c_void_p, [c_void_p, POINTER(CEntrance)]),
    "od_guesser_set_ids": (c_void_p, [c_void_p, c_void_p, c_int, c_int]),
    "od_guesser_set_exit": (c_void_p, [c_void_p, POINTER(CLinear), c_void_p]),
    "od_guesser_feed": (c_void_p, [c_void_p, POINTER(CFeed)]),
    "od_guesser_chain": (c_void_p, [c_void_p, POINTER(CFeed), POINTER(CGuessChain)]),
    "od_best_tokens": (c_void_p, [c_void_p, c_int, c_int, c_void_p, c_void_p, c_char_p]),
    "od_top_tokens": (c_void_p, [c_void_p, c_int, c_int, c_int, c_void_p, c_void_p, c_char_p]),
    "od_distributions": (c_void_p, [c_void_p, c_int, c_int, POINTER(CDistribution), c_void_p, c_char_p]),
    "od_race": (c_void_p, [c_void_p, c_int, c_uint64, c_int, POINTER(c_int32), POINTER(c_int32), c_char_p]),
    "od_log_sums": (c_void_p, [c_void_p, c_int, c_int, c_int, c_void_p, c_int, c_char_p]),
    "od_row_losses": (c_void_p, [POINTER(CRowLosses), c_int, c_char_p]),
    **INDEX_SIGNATURES,
}


STRUCTURES: dict[str, type[Structure]] = {
    "od_blocks": CBlocks,
    "od_linear": CLinear,
    "od_norms": CNorms,
    "od_entrance": CEntrance,
    "Shape": CShape,
    "Span": CSpan,
    "Pass": CPass,
    "Feed": CFeed,
    "Distribution": CDistribution,
    "GuessChain": CGuessChain,
    "RowLosses": CRowLosses,
    **INDEX_STRUCTURES,
}
