"""What the adapter cannot run, found in config.json before any weight is read.

    auto_map               code in the model's repository       never run
    quantization_config    weights in a foreign packing         not unpacked here
    recurrent layers       a state that is not a list of rows   cannot be rolled back to the accepted path
    other layers           chunks, compressed rows, ...          their masks are not ours

A recurrent layer folds every token into one state, so a rejected guess cannot be taken out of it by dropping rows.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from outdraft.options.errors import ModelLoadError
from outdraft.options.shown import shown

ATTENDS = {"full_attention", "sliding_attention", "attention", "full", "sliding", "global", "local"}
_RECURRENT_WORDS = ("linear", "mamba", "conv", "recurrent", "ssm", "delta", "rwkv", "lstm", "lightning", "hybrid")
_LAYER_KEYS = ("layer_types", "layers_block_type", "block_types", "layer_block_types")
RECURRENT = set(
    """
    mamba mamba2 falcon_mamba falcon_h1 rwkv xlstm lfm2 lfm2_moe recurrent_gemma jamba bamba zamba zamba2
    nemotron_h qwen3_next qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text kimi_linear olmo_hybrid minimax
    """.split()
)
_OTHERS = dict.fromkeys(
    ("llama4", "llama4_text"),
    "its temperature counts positions by transformers' own cache, and its chunks stand in its masks alone",
)


def refuse_config(raw: Mapping[str, Any], text: Mapping[str, Any], kind: str) -> None:
    """Raise `ModelLoadError` for what config.json alone shows. `text`: the language model's part of it."""
    for part in (raw, text):
        if part.get("auto_map"):
            named = part["auto_map"].values() if isinstance(part["auto_map"], Mapping) else ()
            shown_name = next((str(name) for name in named if "For" in str(name)), shown(part["auto_map"]))
            raise ModelLoadError(
                f"config.json: auto_map names code in the model's repository ({shown_name}), and outdraft never runs "
                f"that: if transformers itself knows model_type={kind!r}, delete auto_map from config.json, and its "
                "own code computes the model"
            )
        if part.get("quantization_config"):
            config = part["quantization_config"]
            method = config.get("quant_method") if isinstance(config, Mapping) else config
            raise ModelLoadError(
                f"config.json: quantization_config ({shown(method)}) of model_type={kind!r} is not read through "
                "transformers: load an unquantized copy of the model"
            )
    for key in _LAYER_KEYS:
        layers = text.get(key)
        for layer in layers if isinstance(layers, list) else ():
            if layer not in ATTENDS:
                _refuse_layer(kind, key, str(layer))
    if text.get("attention_chunk_size"):
        _refuse_layer(kind, "attention_chunk_size", str(text["attention_chunk_size"]))
    if kind in RECURRENT:
        refuse_recurrent(kind, "")
    if kind in _OTHERS:
        raise ModelLoadError(f"model_type={kind!r} cannot be run: {_OTHERS[kind]}")


def refuse_class(made: Any, kind: str) -> None:
    """Raise `ModelLoadError` for what the model's class in transformers says of itself."""
    if getattr(made, "_is_stateful", False):
        refuse_recurrent(kind, f" ({made.__name__})")
    hands_over = getattr(made, "_can_set_attn_implementation", None)
    if hands_over is not None and not hands_over():
        refuse_own_attention(kind, made.__name__)


def refuse_own_attention(kind: str, name: str) -> NoReturn:
    """For layers that attend by code of their own."""
    raise ModelLoadError(
        f"model_type={kind!r} cannot be run: {name} of transformers does not call the attention interface, so "
        "outdraft's cache cannot hold its keys and values; take a model of another family (docs/models.md lists them "
        "and says why), or add this one (docs/add_a_model.md)"
    )


def refuse_recurrent(kind: str, which: str) -> NoReturn:
    """For states that cannot be rolled back."""
    raise ModelLoadError(
        f"model_type={kind!r} cannot be run: it has recurrent layers{which}, whose state cannot be rolled back to the "
        "accepted tokens; take a model in which every layer is attention"
    )


def _refuse_layer(kind: str, key: str, layer: str) -> NoReturn:
    if any(word in layer for word in _RECURRENT_WORDS):
        refuse_recurrent(kind, f" (config.json: {key} names {layer!r})")
    raise ModelLoadError(
        f"model_type={kind!r} cannot be run: config.json: {key} names {layer!r}, and outdraft's cache knows only "
        f"{', '.join(sorted(one for one in ATTENDS if one.endswith('_attention')))}"
    )


def unknown_arguments(options: Iterable[tuple[str, object]], known: Iterable[str]) -> list[str]:
    """The names of what says something and is not known."""
    return sorted(name for name, value in options if name not in known and value is not None and value is not False)
