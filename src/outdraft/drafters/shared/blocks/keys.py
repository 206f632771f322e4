"""The keys of a block network's config.json, in both layouts, read into its sizes.

    speculators   transformer_layer_config, block_size, ... at the top; taps "after n layers"   (ours, too)
    flat          a Qwen3's config.json with `dflash_config` (z-lab, ModelOpt), or with its keys at the top (DeepSpec);
                  taps n - 1 for "after n layers"

A file that says something twice must say the same. What is not read is refused where it changes what is computed, else
one line in the log names it.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from outdraft.drafters.shared.blocks.net import BlockConfig
from outdraft.models.families.shared.fields import (
    MOST_CHANNELS,
    MOST_LAYERS,
    OFF,
    SLIDING,
    Fields,
    check_keys,
    names_windows,
)
from outdraft.models.files.load import find_architecture
from outdraft.models.networks.config import ModelConfig
from outdraft.models.networks.port import TargetFacts
from outdraft.options.errors import CapabilityError, ModelLoadError
from outdraft.options.shown import shown

NESTED, LAYERS, NAMED = "dflash_config", "transformer_layer_config", "speculators_model_type"
TAPS, FLAT_TAPS = ("aux_hidden_state_layer_ids", "eagle_aux_hidden_state_layer_ids"), "target_layer_ids"
RUNTIME, DEPTH = "runtime_block_size", "num_target_layers"
SLIDES, SLIDING_SIZE = "use_swa", "swa_window_size"  # a window for every layer, and how long it is
CAUSAL = ("is_causal", "causal")  # either says it
MOST_SLOTS = 1024  # of a block: all of them are computed, whatever is asked for
_log = logging.getLogger(__name__)
_WINDOWS = ("layer_types", "sliding_window", "use_sliding_window", "max_window_layers")
_READ = (
    *(*TAPS, FLAT_TAPS, *_WINDOWS, "speculators_config", "speculators_version", NAMED, LAYERS, NESTED),
    *("block_size", "mask_token_id", "sample_from_anchor", "shift_label", "sliding_window_non_causal"),
    *("draft_vocab_size", "target_hidden_size", DEPTH, "has_embed_tokens", "has_lm_head"),
    *("input_embedding_scale", "output_multiplier", "final_logit_softcapping", "projector_type"),
    *(RUNTIME, SLIDES, SLIDING_SIZE, *CAUSAL),
)
SINKS, VALUES, NORMS = "attention_sink_bias", "attention_value_scale", "use_gemma_norm"
SINK_TENSOR = f"self_attn.{SINKS}"  # of each layer [H]
MASK = "mask_embedding"
SLOT_MASKS = "slot_embeddings"  # one for each slot behind the anchor's
_SINKS = (SINKS, "add_swa_attention_sink_bias")  # either says it; MiMo's files have both
_ONLY: Mapping[str, tuple[object, ...]] = {  # what is computed here in any case
    "tap_shift": (*OFF, 1),
    "dspark_backbone_conv_enabled": OFF,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """What the absence of a key means, which differs by kind and layout."""

    from_anchor: bool = False  # in speculators' layout, and in DeepSpec's; elsewhere it is false
    causal_windows: bool = True  # in speculators' layout
    flat_causal_windows: bool = True
    block_size: int | None = 16  # in the flat layout; None: it must be there


def read_keys(
    raw: Mapping[str, Any],
    tensors: Collection[str],
    facts: TargetFacts,
    absent: Absent,
    own: Collection[str],
    where: Path,
) -> tuple[BlockConfig, Mapping[str, Any]]:
    """The sizes, and all keys in one table. `tensors`: the canonical names of those that the files hold. `own`: keys
    that the kind reads itself.

    Raises `ModelLoadError` for what is no block network, or contradicts itself, `CapabilityError` for another target's.
    """
    is_flat, said = not isinstance(raw.get(LAYERS), dict), said_in(raw, where)
    if is_flat and absent.block_size is not None and NESTED in raw:
        said.setdefault("block_size", absent.block_size)
    for key in ("block_size", "mask_token_id"):
        if said.get(key) is None:
            raise ModelLoadError(f"{where} holds no block network: its config.json names no {key}")
    told = {key: raw[key] for key in raw if key != NESTED} if is_flat else dict(raw[LAYERS])
    anywhere = (*_ONLY, *_SINKS, VALUES, NORMS, SLIDES, SLIDING_SIZE, *CAUSAL)
    said = {key: told[key] for key in anywhere if key in told} | said
    for key, values in _ONLY.items():
        if said.get(key) not in values:
            raise ModelLoadError(f"{where}: {key}={shown(said[key])} of config.json is not supported in a draft")
    known = {*_READ, *own, *_ONLY, *_SINKS, VALUES, NORMS}
    check_keys((raw.get(NESTED) or {}) if is_flat else raw, known, where.name, strict=False)
    fields = Fields({**said, "model_type": where.name})
    all_slide = _slide_all(told, fields, where)
    layers = _layers(told, known, where, qk_norm="layers.0.self_attn.q_norm.weight" in tensors)
    if _flag(fields, NORMS):
        layers = replace(layers, norm="rms32")
    causal, causal_windows = _sight(fields, absent, where, is_flat=is_flat, all_slide=all_slide)
    cap = fields.get("final_logit_softcapping", float, 0.0)
    if not 0 <= cap < inf:
        raise fields.error("final_logit_softcapping", cap, "a number above 0, or null for none")
    size, runtime = whole_number(said, "block_size", where, least=2, most=MOST_SLOTS), said.get(RUNTIME)
    from_anchor = _from_anchor(fields, absent, where, is_flat=is_flat)
    if runtime is not None:
        runtime = whole_number(said, RUNTIME, where, least=1 if from_anchor else 2, most=size)
    own_head, own_embedding = "lm_head.weight" in tensors, "embed_tokens.weight" in tensors
    config = BlockConfig(
        layers=layers,
        taps=_taps(said, where, layers.num_layers if is_flat else None, facts.num_layers),
        target_hidden_size=fields.size("target_hidden_size", facts.hidden_size, most=MOST_CHANNELS),
        block_size=size,
        runtime_block_size=runtime,
        mask_token_id=whole_number(said, "mask_token_id", where, least=0),
        from_anchor=from_anchor,
        causal=causal,
        causal_windows=causal_windows,
        draft_vocab_size=fields.size("draft_vocab_size", layers.vocab_size),
        own_head=own_head,
        own_embedding=own_embedding,
        own_mask=MASK in tensors and SLOT_MASKS not in tensors,
        slot_masks=SLOT_MASKS in tensors,
        sinks=_sinks(fields, where, there=any(name.endswith(SINK_TENSOR) for name in tensors)),
        value_scale=fields.get(VALUES, float, 1.0),
        embedding_scale=fields.get("input_embedding_scale", float, 1.0),
        output_multiplier=fields.get("output_multiplier", float, 1.0),
        logit_cap=cap or None,
    )
    for key, is_there in (("has_embed_tokens", own_embedding), ("has_lm_head", own_head)):
        if said.get(key) and not is_there:
            raise ModelLoadError(f"{where}: {key} of config.json is true, and its files hold no such tensor")
    return config, said


def whole_number(said: Mapping[str, Any], key: str, directory: Path, *, least: int, most: int = 1 << 24) -> int:
    """What config.json says under a key. Raises `ModelLoadError` where that is nothing, or no such number."""
    value = said.get(key)
    if type(value) is not int or not least <= value <= most:
        raise ModelLoadError(
            f"{directory}: {key}={shown(value)} of config.json must be a number of at least {least}, and at most {most}"
        )
    return value


def one_flag(fields: Fields, keys: Collection[str], where: Path) -> bool | None:
    """What keys of one meaning say; None: nothing. Raises `ModelLoadError` where they contradict each other."""
    told = {key: flag for key in keys if (flag := _flag(fields, key)) is not None}
    if len(set(told.values())) > 1:
        raise ModelLoadError(f"{where}: {' and '.join(told)} of config.json contradict each other: leave one out")
    return next(iter(told.values()), None)


def said_in(raw: Mapping[str, Any], where: Path) -> dict[str, Any]:
    """Keys at the top, and those of the nested table. Raises `ModelLoadError` where they differ."""
    table = raw.get(NESTED) or {}
    if not isinstance(table, dict):
        raise ModelLoadError(f"{where}: {NESTED}={shown(table)} of config.json is no table")
    for key in sorted(table.keys() & raw.keys()):
        if None not in (table[key], raw[key]) and table[key] != raw[key]:
            raise ModelLoadError(
                f"{where}: {key} of config.json is {shown(raw[key])}, in {NESTED} {shown(table[key])}: leave one out"
            )
    return {**raw, **{key: value for key, value in table.items() if value is not None}}


def _slide_all(told: dict[str, Any], fields: Fields, where: Path) -> bool:
    """Put among the layers' keys what servers read of windows beside them; whether that gives one to every layer.

    Raises `ModelLoadError` for two sizes.
    """
    size = fields.maybe_int(SLIDING_SIZE)
    other = None if told.get("use_sliding_window") is False else told.get("sliding_window")
    if size is not None and other not in (None, size):
        raise ModelLoadError(
            f"{where}: sliding_window of config.json is {shown(other)}, and {SLIDING_SIZE} {shown(size)}: leave one out"
        )
    told["sliding_window"] = other if size is None else size
    if not _flag(fields, SLIDES) or names_windows(told.get("layer_types")):
        return False
    told["layer_types"] = [SLIDING] * Fields(told).layers("num_hidden_layers")
    told["use_sliding_window"] = True
    return True


def _layers(told: dict[str, Any], known: Collection[str], where: Path, *, qk_norm: bool) -> ModelConfig:
    """Qwen3's layers, or Llama's where queries and keys have no norms."""
    if told.get("model_type") in (None, "llama", "qwen3"):  # which may have been copied from the target
        told["model_type"] = "qwen3" if qk_norm else "llama"
    kind = find_architecture(told)
    if kind.model_type not in ("llama", "qwen3"):
        raise ModelLoadError(f"{where}: layers of {kind.model_type!r} are not supported (supported: llama, qwen3)")
    slides = names_windows(told.get("layer_types"))
    if slides and told.get("use_sliding_window") is False:
        raise ModelLoadError(f"{where}: layer_types of config.json names windows, and use_sliding_window is false")
    told["use_sliding_window"] = slides or bool(told.get("use_sliding_window"))
    shape = kind.read(told, beside=known)
    if kind.model_type == "llama" and told["use_sliding_window"]:
        fields = Fields(told)
        shape = replace(shape, windows=fields.windows(shape.num_layers, fields.sliding_window()))
    return shape


def _sight(fields: Fields, absent: Absent, where: Path, *, is_flat: bool, all_slide: bool) -> tuple[bool, bool]:
    """Whether slots see only those before them: in every layer, and in those with windows.

    all_slide: layers have windows by `use_swa` alone, and then not, if nothing else is said.
    """
    causal, both_ways = one_flag(fields, CAUSAL, where), _flag(fields, "sliding_window_non_causal")
    if is_flat and causal is not None and causal is both_ways:
        raise ModelLoadError(f"{where}: is_causal and sliding_window_non_causal of config.json contradict each other")
    if both_ways is not None:
        return bool(causal), not both_ways
    by_default = not all_slide and (absent.flat_causal_windows if is_flat else absent.causal_windows)
    return bool(causal), by_default if causal is None or not is_flat else causal


def _from_anchor(fields: Fields, absent: Absent, where: Path, *, is_flat: bool) -> bool:
    """Whether the anchor's slot guesses. ModelOpt calls it `shift_label`; DeepSpec has no key for it, and does."""
    told = one_flag(fields, ("sample_from_anchor", "shift_label"), where)
    if told is not None:
        return told
    found = absent.from_anchor and not (is_flat and fields.has(NESTED))
    if is_flat and absent.from_anchor:
        _log.warning(
            "%s: config.json has no sample_from_anchor, so the anchor's own slot %s",
            where.name,
            "guesses too, as in DeepSpec" if found else "guesses nothing",
        )
    return found


def _sinks(fields: Fields, where: Path, *, there: bool) -> bool:
    """Whether heads have sinks. `there`: whether the files hold some."""
    told: list[tuple[str, bool | None]] = [(key, _flag(fields, key)) for key in _SINKS if fields.has(key)]
    for key, flag in told or [(SINKS, None)]:
        if bool(flag) != there:
            raise ModelLoadError(
                f"{where}: {key}={shown(flag)} of config.json, and its files hold {'' if there else 'no '}attention "
                f"sinks ({SINK_TENSOR} of layers): take both from one place, or download them again"
            )
    return there


def _flag(fields: Fields, key: str) -> bool | None:
    return fields.get(key, bool) if fields.has(key) else None


def _taps(said: Mapping[str, Any], where: Path, num_drafted: int | None, num_layers: int) -> tuple[int, ...]:
    """After so many of the target's `num_layers`. num_drafted: layers of a flat draft, which may leave its taps out."""
    if (
        said.get(DEPTH) is not None
        and (deep := whole_number(said, DEPTH, where, least=1, most=MOST_LAYERS)) != num_layers
    ):
        raise CapabilityError(
            f"the block network in {where} is for a target of {deep} layers, and this one has {num_layers}: take a "
            "draft of this target"
        )
    told = {}
    for key in (*TAPS, FLAT_TAPS):
        listed, more = said.get(key), int(key == FLAT_TAPS)
        if listed is None:
            continue
        fits = isinstance(listed, list) and all(type(n) is int and -more <= n < 1 << 20 for n in listed)
        if not fits or not listed:
            raise ModelLoadError(f"{where}: {key}={shown(listed)} of config.json is no list of layers")
        told[key] = tuple(n + more for n in listed)
    if len(set(told.values())) > 1:
        raise ModelLoadError(f"{where}: {' and '.join(told)} of config.json name different taps: leave in one")
    if told:
        return next(iter(told.values()))
    if num_drafted is None:
        raise ModelLoadError(f"{where}: config.json names no taps: give {TAPS[0]}, layers counted from 1")
    if num_drafted == 1:
        return (num_layers // 2 + 1,)
    return tuple(round(1 + i * (num_layers - 4) / (num_drafted - 1)) + 1 for i in range(num_drafted))
