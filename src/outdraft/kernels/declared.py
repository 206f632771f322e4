"""Structures and functions of the C interface (native/api.h), as `ctypes` declares them."""

from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_uint64, c_void_p

from outdraft.kernels.index_types import SIGNATURES as INDEX_SIGNATURES
from outdraft.kernels.index_types import STRUCTURES as INDEX_STRUCTURES


class CBlocks(Structure):
    """od_blocks of native/packed.h."""

    _fields_ = (("type", c_int), ("num_out", c_int), ("rows", c_void_p), ("factor", c_float))


class CLinear(Structure):
    """od_linear of native/api.h."""

    _fields_ = (
        ("bits", c_int),
        ("num_out", c_int),
        ("num_in", c_int),
        ("group", c_int),
        ("weight", c_void_p),
        ("scales", c_void_p),
        ("bias", c_void_p),
        ("parts", POINTER(CBlocks)),
        ("num_parts", c_int),
    )


class CNorms(Structure):
    """od_norms of native/api.h."""

    _fields_ = tuple((name, c_void_p) for name in ("attn", "mlp", "attn_post", "mlp_post", "q", "k"))


class CEntrance(Structure):
    """od_entrance of native/api.h."""

    _fields_ = (
        ("fusion", CLinear),
        ("join", CLinear),
        ("tap_norms", c_void_p),
        ("token_norm", c_void_p),
        ("feature_norm", c_void_p),
        ("taps", c_int),
        ("tap_width", c_int),
        ("one_tap_norm", c_int),
        ("origin", c_int),
        ("norms_carried", c_int),
        ("tap_eps", c_float),
    )


class CShape(Structure):
    """Shape of native/model.h."""

    _fields_ = (
        ("hidden", c_int),
        ("heads", c_int),
        ("kv_heads", c_int),
        ("head_dim", c_int),
        ("inner", c_int),
        ("vocab", c_int),
        ("rotary", c_int),
        ("eps", c_float),
        ("scale", c_float),
        ("added", c_float),
        ("logit_scale", c_float),
        ("score_cap", c_float),
        ("logit_cap", c_float),
        ("growth", c_float),
        ("first_len", c_int),
        ("activation", c_int),
        ("gated", c_int),
        ("norm", c_int),
        ("norms_whole", c_int),
        ("parallel", c_int),
    )


class CSpan(Structure):
    """Span of native/model.h."""

    _fields_ = (
        ("start", c_int64),
        ("stop", c_int64),
        ("base", c_int64),
        ("first", c_int64),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("key_scales", c_void_p),
        ("value_scales", c_void_p),
        ("pages", c_void_p),
        ("layer_rows", c_int64),
        ("page_rows", c_int64),
        ("head_rows", c_int64),
        ("ends", POINTER(c_int32)),
        ("path", POINTER(c_int32)),
    )


class CPass(Structure):
    """Pass of native/model.h."""

    _fields_ = (
        ("hidden", c_void_p),
        ("positions", POINTER(c_int32)),
        ("cos", c_void_p),
        ("sin", c_void_p),
        ("table", c_int64),
        ("rows", c_int),
        ("spans", POINTER(CSpan)),
        ("num_spans", c_int),
        ("layers", POINTER(c_int32)),
        ("num_layers", c_int),
        ("taps", POINTER(c_void_p)),
        ("middles", POINTER(c_void_p)),
        ("queries", POINTER(c_void_p)),
        ("skipped", c_char_p),
        ("beside", c_void_p),
    )


class CFeed(Structure):
    """Feed of native/guesser.h."""

    _fields_ = (
        ("rows", c_int),
        ("num_spans", c_int),
        ("tokens", POINTER(c_int32)),
        ("positions", POINTER(c_int32)),
        ("spans", POINTER(CSpan)),
        ("cos", c_void_p),
        ("sin", c_void_p),
        ("table", c_int64),
        ("features", c_void_p),
        ("taps", POINTER(c_void_p)),
        ("wanted", POINTER(c_int32)),
        ("num_wanted", c_int),
        ("states", c_void_p),
        ("logits", c_void_p),
        ("skipped", c_char_p),
        ("kept", POINTER(c_void_p)),
    )


class CDistribution(Structure):
    """Distribution of native/guesser.h."""

    _fields_ = (("temperature", c_float), ("top_p", c_float), ("min_p", c_float), ("top_k", c_int))


class CGuessChain(Structure):
    """GuessChain of native/guesser.h."""

    _fields_ = (
        ("depths", POINTER(c_int32)),
        ("stride", c_int),
        ("feed_last", c_int),
        ("distributions", POINTER(CDistribution)),
        ("keys", POINTER(c_uint64)),
        ("tokens", POINTER(c_int32)),
        ("q", POINTER(c_void_p)),
        ("states", c_void_p),
        ("cutoffs", POINTER(c_float)),
        ("sure", POINTER(c_float)),
        ("made", POINTER(c_int32)),
    )


class CRowLosses(Structure):
    """RowLosses of native/losses.h."""

    _fields_ = (
        ("rows", c_int),
        ("size", c_int),
        ("is_narrow", c_int),
        *((name, c_float) for name in ("kl", "cross", "tv", "log_accepted", "hybrid", "text")),
        *((name, c_void_p) for name in ("p", "whole", "at", "q", "said", "heavy", "losses", "mass", "gradient")),
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
