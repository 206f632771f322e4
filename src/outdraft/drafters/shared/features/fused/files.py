"""Directories of EAGLE-3 networks of all libraries, read into one configuration and one set of names.

    original       midlayer.*, a Llama's config.json with draft_vocab_size; taps are not named
    speculators    layers.0.*, transformer_layer_config, taps "after n layers" at top level
    nested         layers.0.* or midlayer.*, taps in eagle_config, n - 1 for "after n layers"   (ModelOpt, SpecForge)
    numbered       target_layer_ids at top level, n - 1 for "after n layers"   (DeepSpec)

Two conventions of taps share a key, told apart by where it stands; here every tap becomes "after n layers", once. A
directory that says both must say the same in both. What we write is speculators' layout with every flag explicit, and
the taps in both places, so that servers that read either draft with it. Flags stand at the top, or in `eagle_config`,
or in both if they agree; what `eagle_config` says of a computation that there is no other of here must be that one.

Kinds of such networks are told apart by keys and tensors, never by the name of an architecture.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outdraft.drafters.shared.features.fused.net import FusedConfig
from outdraft.drafters.shared.learning.vocab import find_vocab
from outdraft.models.families.catalogue import ARCHITECTURES
from outdraft.models.families.shared.fields import MOST_CHANNELS, Fields, names_windows
from outdraft.models.files.foreign_heads import check_beside_layers, instead, speculators_config, under_names
from outdraft.models.files.load import find_architecture, read_json
from outdraft.options.errors import ModelLoadError
from outdraft.options.shown import shown
from outdraft.weights.renamed import NamedTensors, open_tensors
from outdraft.weights.source import TensorSource

FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
TAPS = "eagle_aux_hidden_state_layer_ids"
ALSO_TAPS, NUM_TAPS = "aux_hidden_state_layer_ids", "num_aux_hidden_states"
NESTED = "eagle_config"
AUX = "use_aux_hidden_state"
MASK = "mask_hidden"  # stands for the states of tokens that the target has not read
MASK_IDS = ("mask_token_id", "ptd_token_id", "pard_token")  # the token beside it, as publishers spell it
DEPTHS = 8  # where no file says how many tokens one pass guesses
ONLY: dict[str, object] = {  # of `eagle_config`: the one value that is computed
    "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True,
    "use_mtp_layernorm": False,
    "next_layer_regular": True,
    "parallel_draft_step": 1,
}
_log = logging.getLogger(__name__)
_LEVELS = {"aux_norm_low": "fc_norm.0", "aux_norm_mid": "fc_norm.1", "aux_norm_high": "fc_norm.2"}  # SGLang's names
_BORROWED = ("verifier_lm_head.", "verifier_norm.")  # the target's own, which some trainers save
ORIGINAL = "LlamaForCausalLMEagle3"


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedKind:
    """What tells two kinds of such networks apart."""

    what: str  # in words
    model_type: str  # speculators_model_type
    architecture: str  # as config.json names it
    masked: bool = False  # it has states that stand for those of tokens that the target has not read


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedFiles:
    """A directory, understood."""

    config: FusedConfig
    tensors: TensorSource  # under speculators' names: layers.0.*, fc.weight, norm.weight, lm_head.weight, ...
    vocab: Tensor | None  # [V'] the target's ids of the draft's tokens; None: all


def read_fused(kind: FusedKind, directory: Path, num_layers: int) -> FusedFiles:
    """An EAGLE-3 network in any spelling. `num_layers`: the target's, for taps that no file names.

    Raises `ModelLoadError` for what is no network of this kind, is damaged, or contradicts itself.
    """
    raw = read_json(directory / "config.json")
    told = raw.get("speculators_model_type")
    whole = raw.get("transformer_layer_config")
    is_ours = told == kind.model_type and isinstance(whole, dict)
    if told is not None and not is_ours:
        raise ModelLoadError(f"{directory} holds a {shown(told)}, no {kind.what}{instead(directory)}")
    if not (is_ours or "draft_vocab_size" in raw or ORIGINAL in str(raw.get("architectures"))):
        raise ModelLoadError(
            f"{directory} holds no EAGLE-3 network: its config.json names neither speculators_model_type, "
            f"draft_vocab_size nor {ORIGINAL}{instead(directory)}"
        )
    source = open_tensors(directory)
    tensors = under_names(source, _ours)
    if (MASK in tensors) != kind.masked:
        raise ModelLoadError(
            f"{directory} holds no {kind.what}: it has {'no ' * kind.masked}{MASK}{instead(directory)}"
        )
    layers = dict(whole) if isinstance(whole, dict) else {key: raw[key] for key in raw if key != NESTED}
    if len(rows := tensors.shape("t2d") if "t2d" in tensors else ()) == 1:
        layers["vocab_size"] = rows[0]  # some files of the original name the draft's own there
    if ORIGINAL in str(raw.get("architectures")):  # its class says what is computed, whatever model_type was copied
        layers["model_type"] = "qwen3" if "layers.0.self_attn.q_norm.weight" in tensors else "llama"
    family = find_architecture(layers)
    if family.model_type not in ("llama", "qwen3"):
        raise ModelLoadError(
            f"{directory}: layers of {family.model_type!r} are not supported (supported: llama, qwen3)"
        )
    shape = family.read(layers, beside=_BESIDE)
    if any(window is not None for window in shape.windows) or names_windows(layers.get("layer_types")):
        raise ModelLoadError(f"{directory}: an EAGLE-3 network with sliding windows is not supported")
    fields = Fields({**{key: raw[key] for key in raw if key in _KEYS}, "model_type": kind.model_type})
    if is_ours:
        check_beside_layers(raw, _BESIDE)
    check_nested(raw, directory)
    one_state = not read_flag(raw, AUX, True, directory)
    if one_state:
        tensors = _without_fusion(tensors)
    taps = (num_layers,) if one_state else _taps(raw, num_layers, directory)
    flags = {flag: read_flag(raw, flag, _inferred(flag, tensors), directory) for flag in FLAGS}
    if one_state and (flags["norm_before_fc"] or flags["fc_norm"]):
        raise ModelLoadError(f"{directory}: {AUX}=false leaves no fc for norm_before_fc or fc_norm to stand before")
    if flags["norm_before_fc"] and flags["fc_norm"]:
        raise ModelLoadError(f"{directory}: norm_before_fc and fc_norm exclude each other")
    config = FusedConfig(
        layers=shape,
        taps=taps,
        draft_vocab_size=fields.size("draft_vocab_size", shape.vocab_size),
        target_hidden_size=fields.size("target_hidden_size", shape.hidden_size, most=MOST_CHANNELS),
        one_state=one_state,
        own_head="lm_head.weight" in tensors,
        own_embedding="embed_tokens.weight" in tensors,
        train_embedding=fields.get("embed_requires_grad", bool, False),
        **flags,
        **_masks(raw, shape.vocab_size, directory) if kind.masked else {},
    )
    vocab = find_vocab(tensors, config.draft_vocab_size, config.layers.vocab_size, directory)
    return FusedFiles(config=config, tensors=tensors, vocab=vocab)


_KEYS = ("draft_vocab_size", "target_hidden_size", "embed_requires_grad")
_BESIDE = (  # what a flat config.json has beside the layers' own keys
    *(*FLAGS, TAPS, ALSO_TAPS, NUM_TAPS, "target_layer_ids", AUX, NESTED, *MASK_IDS, *_KEYS),
    *("use_sliding_window", "max_window_layers", "sliding_window", "layer_types", "qkv_bias"),
    *("target_model_type", "eagle_version", "parallel_drafting"),
)


def _without_fusion(tensors: NamedTensors) -> NamedTensors:
    """The tensors but for `fc`, which a network of one state never uses, whatever its trainer left in the file."""
    if "fc.weight" in tensors:
        _log.warning("%s: %s is false, so fc.weight is not read", tensors.origin.name, AUX)
    return NamedTensors(tensors, {name: name for name in tensors if not name.startswith("fc.")})


def _ours(name: str) -> str | None:
    """The canonical name; None: what is the target's own."""
    ours = name.removeprefix("model.")
    if ours.startswith("midlayer."):
        ours = "layers.0." + ours.removeprefix("midlayer.")
    stem, _, end = ours.partition(".")
    ours = f"{_LEVELS[stem]}.{end}" if stem in _LEVELS else ours
    return None if ours.startswith(_BORROWED) else ours


def _inferred(flag: str, tensors: TensorSource) -> bool:
    """What an absent flag means: the tensors show norms, and the rest is off, as in the original."""
    return {"fc_norm": "fc_norm.0.weight", "norm_before_fc": "input_norm.weight"}.get(flag, "") in tensors


def _masks(raw: Mapping[str, Any], vocab_size: int, directory: Path) -> dict[str, Any]:
    """The mask token, and how many tokens a server is to draft, which is how many were trained."""
    told = {key: raw[key] for key in MASK_IDS if raw.get(key) is not None}
    key, token = next(iter(told.items()), (MASK_IDS[0], None))
    if any(other != token for other in told.values()):
        raise ModelLoadError(f"{directory}: {' and '.join(told)} of config.json name different tokens: leave in one")
    if type(token) is not int or not 0 <= token < vocab_size:
        raise ModelLoadError(
            f"{directory}: {key}={shown(token)} of config.json must be one of {vocab_size} tokens: write the one that "
            "the network was trained with"
        )
    try:
        count = raw["speculators_config"]["proposal_methods"][0]["speculative_tokens"]
    except (KeyError, IndexError, TypeError):
        count = DEPTHS
    if type(count) is not int or not 1 <= count <= 64:
        raise ModelLoadError(f"{directory}: speculative_tokens={shown(count)} of config.json must be between 1 and 64")
    return {"mask_token_id": token, "num_depths": count}


def _taps(raw: Mapping[str, Any], num_layers: int, directory: Path) -> tuple[int, ...]:
    """Taps "after n layers"."""
    said = {
        TAPS: (raw.get(TAPS), 0),
        ALSO_TAPS: (raw.get(ALSO_TAPS), 0),
        f"{NESTED}.{TAPS}": (nested(raw).get(TAPS), 1),
        "target_layer_ids": (raw.get("target_layer_ids"), 1),
    }
    found, default = {}, (2, num_layers // 2, num_layers - 3)
    for key, (listed, more) in said.items():
        if listed is None:
            continue
        if (
            not isinstance(listed, list)
            or not listed
            or not all(type(n) is int and -more <= n < 1 << 20 for n in listed)
        ):
            raise ModelLoadError(f"{directory}: {key}={shown(listed)} of config.json is no list of layers")
        found[key] = tuple(n + more for n in listed)
    if len(set(found.values())) > 1:
        told = "; ".join(f"{key}: after {taps} layers" for key, taps in found.items())
        raise ModelLoadError(f"{directory}: config.json names different taps ({told}): leave in one of them")
    taps = next(iter(found.values()), default)
    if raw.get(NUM_TAPS) not in (None, len(taps)):
        raise ModelLoadError(
            f"{directory}: config.json says {NUM_TAPS}={shown(raw[NUM_TAPS])} and has {len(taps)} taps "
            f"({', '.join(found) or 'the usual ones, as it names none'}): name the taps that it was trained with"
        )
    if not found and (min(default) < 0 or max(default) > num_layers):
        raise ModelLoadError(
            f"{directory} names no taps, and a target of {num_layers} layers is too small for the usual ones: name the "
            "taps in its config.json"
        )
    return taps


def read_flag(raw: Mapping[str, Any], flag: str, default: bool, where: Path) -> bool:
    """A flag at the top or in `eagle_config`. Raises `ModelLoadError` where both say something, and not the same."""
    told = [part[flag] for part in (raw, nested(raw)) if part.get(flag) is not None]
    if any(not isinstance(value, bool) for value in told):
        raise ModelLoadError(f"{where}: {flag}={shown(told[0])} of config.json is neither true nor false")
    if len(set(told)) > 1:
        raise ModelLoadError(f"{where}: {flag} of config.json is {told[0]} and in {NESTED} {told[1]}: leave one out")
    return bool(told[0]) if told else default


def nested(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The table `eagle_config`; empty where there is none."""
    table = raw.get(NESTED)
    return table if isinstance(table, Mapping) else {}


def check_nested(raw: Mapping[str, Any], where: Path) -> None:
    """Raise `ModelLoadError` for what `eagle_config` asks for and is not computed; one line for other keys."""
    table = nested(raw)
    if table is not raw.get(NESTED, table) and raw[NESTED] is not None:
        raise ModelLoadError(f"{where}: {NESTED}={shown(raw[NESTED])} of config.json is no table: write it as one")
    for key, only in ONLY.items():
        if table.get(key, only) not in (only, None):
            raise ModelLoadError(
                f"{where}: {NESTED}.{key}={shown(table[key])} is not supported (it must be {shown(only)}): take "
                "another head of this target"
            )
    unread = sorted(set(table) - {*ONLY, *FLAGS, TAPS, AUX})
    if unread:
        _log.warning("%s: %s has keys that are not read: %s", where.name, NESTED, ", ".join(unread))


def written(kind: FusedKind, config: FusedConfig, dtype: torch.dtype) -> dict[str, Any]:
    """The config.json of a directory in speculators' layout, every flag explicit, the taps in both spellings.

    Which target it belongs to by name is left open, `speculators_config.verifier.name_or_path`: the user who
    publishes it knows.
    """
    layers = config.layers
    family = ARCHITECTURES[layers.architecture]
    shape = {"model_type": family.model_type, **family.write(layers)}
    scaling: Any = shape.get("rope_scaling") or {"rope_type": "default"}
    shape["rope_parameters"] = {**scaling, "rope_theta": shape["rope_theta"]}
    stored = str(dtype).removeprefix("torch.")
    return {
        "architectures": [kind.architecture],
        **speculators_config(kind.model_type, None, [], config.num_depths if kind.masked else 3),
        "draft_vocab_size": config.draft_vocab_size,
        "dtype": stored,
        **({} if config.one_state else {TAPS: list(config.taps)}),
        NESTED: {AUX: False} if config.one_state else {TAPS: [tap - 1 for tap in config.taps]},
        **({MASK_IDS[0]: config.mask_token_id} if kind.masked else {}),
        "embed_requires_grad": config.train_embedding,
        **{flag: getattr(config, flag) for flag in FLAGS},
        "target_hidden_size": config.target_hidden_size,
        "tie_word_embeddings": False,
        "transformer_layer_config": shape,
    }
