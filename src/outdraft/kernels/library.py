"""The built kernels, through their C interface. Data in: nothing; data out: a `ctypes` library, or None and a reason.

A library that lacks a function named here, or has a structure of another size, is refused as if there were none:
PyTorch computes, and the log has a warning; a caller that cannot do without the kernels raises `CapabilityError`.
`OUTDRAFT_KERNELS` chooses: "off" (PyTorch only), or one of `KINDS`; unset: the best that runs here.
"""

import ctypes
import logging
import os
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_uint64, c_void_p
from functools import cache
from pathlib import Path

from outdraft.kernels.built_from import find_stranger
from outdraft.kernels.index_types import SIGNATURES as INDEX_SIGNATURES
from outdraft.kernels.index_types import STRUCTURES as INDEX_STRUCTURES
from outdraft.options.errors import CapabilityError, ConfigError

_log = logging.getLogger(__name__)
_FILE = Path(__file__).parent / "_native.so"
KINDS = ("amx", "avx512", "avx2", "neon_dot", "neon", "portable")


class CLinear(Structure):
    """od_linear of native/api.h."""

    _fields_ = (
        ("bits", c_int), ("num_out", c_int), ("num_in", c_int), ("group", c_int),
        ("weight", c_void_p), ("scales", c_void_p), ("bias", c_void_p),
    )  # fmt: skip


class CNorms(Structure):
    """od_norms of native/api.h."""

    _fields_ = tuple((name, c_void_p) for name in ("attn", "mlp", "attn_post", "mlp_post", "q", "k"))


class CEntrance(Structure):
    """od_entrance of native/api.h."""

    _fields_ = (
        ("fusion", CLinear), ("join", CLinear), ("tap_norms", c_void_p), ("token_norm", c_void_p),
        ("feature_norm", c_void_p), ("taps", c_int), ("tap_width", c_int), ("one_tap_norm", c_int), ("origin", c_int),
        ("norms_carried", c_int), ("tap_eps", c_float),
    )  # fmt: skip


class CShape(Structure):
    """Shape of native/model.h."""

    _fields_ = (
        ("hidden", c_int), ("heads", c_int), ("kv_heads", c_int), ("head_dim", c_int), ("inner", c_int),
        ("vocab", c_int), ("rotary", c_int), ("eps", c_float), ("scale", c_float), ("added", c_float),
        ("logit_scale", c_float), ("score_cap", c_float), ("logit_cap", c_float), ("growth", c_float),
        ("first_len", c_int), ("activation", c_int), ("gated", c_int), ("norm", c_int), ("norms_whole", c_int),
        ("parallel", c_int),
    )  # fmt: skip


class CSpan(Structure):
    """Span of native/model.h."""

    _fields_ = (
        ("start", c_int64), ("stop", c_int64), ("base", c_int64), ("first", c_int64),
        ("keys", c_void_p), ("values", c_void_p), ("key_scales", c_void_p), ("value_scales", c_void_p),
        ("pages", c_void_p), ("layer_rows", c_int64), ("page_rows", c_int64), ("head_rows", c_int64),
        ("ends", POINTER(c_int32)), ("path", POINTER(c_int32)),
    )  # fmt: skip


class CPass(Structure):
    """Pass of native/model.h."""

    _fields_ = (
        ("hidden", c_void_p), ("positions", POINTER(c_int32)), ("cos", c_void_p), ("sin", c_void_p),
        ("table", c_int64), ("rows", c_int), ("spans", POINTER(CSpan)), ("num_spans", c_int),
        ("layers", POINTER(c_int32)), ("num_layers", c_int), ("taps", POINTER(c_void_p)),
        ("middles", POINTER(c_void_p)), ("queries", POINTER(c_void_p)),
        ("skipped", c_char_p), ("beside", c_void_p),
    )  # fmt: skip


class CFeed(Structure):
    """Feed of native/guesser.h."""

    _fields_ = (
        ("rows", c_int), ("num_spans", c_int), ("tokens", POINTER(c_int32)), ("positions", POINTER(c_int32)),
        ("spans", POINTER(CSpan)), ("cos", c_void_p), ("sin", c_void_p), ("table", c_int64), ("features", c_void_p),
        ("taps", POINTER(c_void_p)), ("wanted", POINTER(c_int32)), ("num_wanted", c_int), ("states", c_void_p),
        ("logits", c_void_p), ("skipped", c_char_p), ("kept", POINTER(c_void_p)),
    )  # fmt: skip


class CDistribution(Structure):
    """Distribution of native/guesser.h."""

    _fields_ = (("temperature", c_float), ("top_p", c_float), ("min_p", c_float), ("top_k", c_int))


class CGuessChain(Structure):
    """GuessChain of native/guesser.h."""

    _fields_ = (
        ("depths", POINTER(c_int32)), ("stride", c_int), ("feed_last", c_int),
        ("distributions", POINTER(CDistribution)),
        ("keys", POINTER(c_uint64)), ("tokens", POINTER(c_int32)), ("q", POINTER(c_void_p)), ("states", c_void_p),
        ("cutoffs", POINTER(c_float)), ("sure", POINTER(c_float)), ("made", POINTER(c_int32)),
    )  # fmt: skip


_SIGNATURES = {
    "od_error": (c_char_p, []),
    "od_best_kernels": (c_char_p, []),
    "od_has_kernels": (c_int, [c_char_p]),
    "od_model_new": (c_void_p, [POINTER(CShape), c_int, c_int, c_char_p]),
    "od_model_free": (None, [c_void_p]),
    "od_model_set_layer": (c_void_p, [c_void_p, c_int, POINTER(CLinear), POINTER(CNorms), c_int, c_int]),
    "od_model_set_head": (c_void_p, [c_void_p, POINTER(CLinear), c_void_p]),
    "od_model_read_head": (c_void_p, [c_void_p, c_void_p]),
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
    **INDEX_SIGNATURES,
}


_STRUCTURES: dict[str, type[Structure]] = {
    "od_linear": CLinear, "od_norms": CNorms, "od_entrance": CEntrance, "Shape": CShape, "Span": CSpan, "Pass": CPass,
    "Feed": CFeed, "Distribution": CDistribution, "GuessChain": CGuessChain, **INDEX_STRUCTURES,
}  # fmt: skip


def library() -> ctypes.CDLL | None:
    """The library, or None where there is none that fits what is declared here."""
    return _load()[0]


def require_library() -> ctypes.CDLL:
    """The library. Raises `CapabilityError` saying why there is none."""
    native, why_not = _load()
    if native is None:
        raise CapabilityError(why_not)
    return native


def why_none() -> str:
    """Why there is no library; empty where there is one."""
    return _load()[1]


@cache
def _load() -> tuple[ctypes.CDLL | None, str]:
    """The library, or why there is none."""
    if not _FILE.exists():
        why_not = "the native kernels are not built: reinstall outdraft where a C++17 compiler is"
        if os.environ.get("OUTDRAFT_KERNELS") != "off":  # they were not wanted
            _log.warning(
                "%s; PyTorch computes the models, more slowly, and may write another, equally valid text", why_not
            )
        return None, why_not
    try:
        found = ctypes.CDLL(str(_FILE))
        stranger = find_stranger(found, _SIGNATURES, _STRUCTURES)
    except OSError as error:
        found, stranger = None, str(error)
    if found is None or stranger is not None:
        why_not = (
            f"the native kernels in {_FILE} were not built from these sources ({stranger}): reinstall outdraft, in a "
            "checkout with `pip install -e .`"
        )
        _log.warning("%s; until then PyTorch computes the models, more slowly", why_not)
        return None, why_not
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found, ""


def library_file() -> Path:
    """Where the library lies, if it is built."""
    return _FILE


def wanted_kind() -> str | None:
    """Which kernels to use: one of `KINDS`, or None for none. Raises `ConfigError` where OUTDRAFT_KERNELS cannot be."""
    return _kind_for(os.environ.get("OUTDRAFT_KERNELS", ""))


@cache
def _kind_for(asked: str) -> str | None:
    if asked == "off":
        return None
    native = library()
    if asked:
        if asked not in KINDS:
            raise ConfigError(f"OUTDRAFT_KERNELS={asked!r}: it is 'off' or one of {', '.join(KINDS)}")
        if native is None or not native.od_has_kernels(asked.encode()):
            raise ConfigError(f"OUTDRAFT_KERNELS={asked}: not built, or this processor cannot run them; unset it")
        return asked
    return native.od_best_kernels().decode() if native is not None else None
