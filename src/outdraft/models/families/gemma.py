"""Gemma 2 and 3 (their text part): norms before and behind each half, stored as w and meaning 1 + w.

Embeddings are scaled. Gemma 2 (2024, https://arxiv.org/abs/2408.00118) bounds scores and logits softly, every second
layer has a window. Gemma 3 (2025, https://arxiv.org/abs/2503.19786) norms queries and keys instead, five layers of six
have a window, and those turn positions by another theta than the others.
"""

from typing import Any

from outdraft.models.families.llama import kinds_of, read_common, write_common, write_windows
from outdraft.models.families.shared.fields import FULL, MOST_CHANNELS, SLIDING, Fields, every_nth_full
from outdraft.models.families.shared.naming import Architecture, LayerNames
from outdraft.models.families.shared.rope_fields import read_rope, write_ropes
from outdraft.models.networks.config import ModelConfig

_NAMES = LayerNames(mlp_norm="pre_feedforward_layernorm", norm_offset=1.0)
_THETAS = {FULL: 1e6, SLIDING: 1e4}  # Gemma 3's


def _read(fields: Fields, period: int, **special: Any) -> ModelConfig:
    layers = fields.layers("num_hidden_layers")
    kinds = fields.layer_kinds(every_nth_full(layers, fields.get("sliding_window_pattern", int, period)))
    if fields.get("use_bidirectional_attention", bool, False):
        raise fields.error("use_bidirectional_attention", True, "rows see what is before them")
    cap, logit_cap = ("attn_logit_softcapping", 50.0), ("final_logit_softcapping", 30.0)
    is_2 = fields.name == "gemma2"
    if not is_2 and fields.has(cap[0]):
        raise fields.error(cap[0], fields.look(cap[0]), "Gemma 3 norms queries and keys instead")

    def maybe(key: str, default: float) -> float | None:
        absent = key not in fields.raw
        return fields.get(key, float, default) if fields.has(key) or (absent and is_2) else None

    hidden = fields.size("hidden_size", most=MOST_CHANNELS)
    return read_common(
        fields,
        head_dim=256,
        norm="rms32",
        post_norm=True,
        tie_embeddings=fields.get("tie_word_embeddings", bool, True),
        activation=fields.activation("hidden_activation", fields.activation("hidden_act", "gelu_pytorch_tanh")),
        embedding_scale=hidden**0.5,
        score_scale=fields.positive("query_pre_attn_scalar", 256.0) ** -0.5,
        score_cap=maybe(*cap),
        logit_cap=maybe(*logit_cap),
        windows=fields.windows_of(kinds, fields.sliding_window(4096)),
        **fields.attention_biases(),
        **special,
    )


def _read2(fields: Fields) -> ModelConfig:
    fields.look("cache_implementation")
    fields.only(sliding_window_size=fields.sliding_window(4096))
    return _read(fields, 2, max_len=8192)


def _read3(fields: Fields) -> ModelConfig:
    # Published wrappers name only what differs from the 2B model that was never released.
    fields.fill(
        vocab_size=262208,
        hidden_size=2304,
        intermediate_size=9216,
        num_hidden_layers=26,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
        eos_token_id=1,
        bos_token_id=2,
    )
    layers, max_len = fields.layers("num_hidden_layers"), fields.size("max_position_embeddings", 131072)
    width = fields.size("head_dim", 256, most=MOST_CHANNELS)
    everywhere = read_rope(fields, width, max_len, theta=_THETAS[FULL])
    near = read_rope(
        fields,
        width,
        max_len,
        theta_key="rope_local_base_freq",
        theta=_THETAS[SLIDING],
        kind_of_layer=SLIDING,
        is_scaled=False,
    )
    period = fields.get("sliding_window_pattern", int, 6)
    kinds = fields.layer_kinds(every_nth_full(layers, period))
    ropes = tuple(near if kind == SLIDING else everywhere for kind in kinds)
    return _read(fields, 6, qk_norm=True, max_len=max_len, rope=everywhere, ropes=ropes)


def _write(config: ModelConfig) -> dict[str, object]:
    assert config.score_scale is not None
    return {
        **write_common(config),
        **write_windows(config),
        "layer_types": kinds_of(config),
        "hidden_activation": config.activation,
        "attention_bias": config.qkv_bias,
        "query_pre_attn_scalar": _whole(config.score_scale**-2),
        "attn_logit_softcapping": config.score_cap,
        "final_logit_softcapping": config.logit_cap,
    }


def _whole(number: float) -> float | int:
    """What transformers wants where the number is whole."""
    number = round(number, 6)
    return int(number) if number.is_integer() else number


def _write3(config: ModelConfig) -> dict[str, object]:
    fields = _write(config)
    del fields["rope_theta"], fields["rope_scaling"]
    return fields | write_ropes(config.ropes, kinds_of(config))


GEMMA2 = Architecture(model_type="gemma2", class_name="Gemma2ForCausalLM", parse=_read2, write=_write, names=_NAMES)
GEMMA3 = Architecture(
    model_type="gemma3_text", class_name="Gemma3ForCausalLM", parse=_read3, write=_write3, names=_NAMES
)
