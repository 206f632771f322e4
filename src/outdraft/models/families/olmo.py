"""OLMo 2 and 3: norms only behind each half; queries and keys are normed over all heads at once.

OLMo 2 (2024, https://arxiv.org/abs/2501.00656). OLMo 3 (2025, https://allenai.org/blog/olmo3) adds windows on three
layers of four; only the others stretch their positions (yarn).
"""

from typing import Any

from outdraft.models.families.llama import kinds_of, read_common, write_common, write_windows
from outdraft.models.families.shared.fields import MOST_CHANNELS, SLIDING, Fields, every_nth_full
from outdraft.models.families.shared.naming import Architecture
from outdraft.models.families.shared.rope_fields import read_rope, write_ropes
from outdraft.models.networks.config import ModelConfig

_THETA = 500000.0  # OLMo 3's


def _read(fields: Fields, **special: Any) -> ModelConfig:
    return read_common(
        fields,
        norm="rms32",
        norm_eps=fields.get("rms_norm_eps", float, 1e-5),
        pre_norm=False,
        post_norm=True,
        qk_norm=True,
        qk_norm_whole=True,
        **fields.attention_biases(),
        **special,
    )


def _read3(fields: Fields) -> ModelConfig:
    _, width = fields.heads("num_attention_heads", "hidden_size")
    width = fields.size("head_dim", width, most=MOST_CHANNELS)
    max_len = fields.size("max_position_embeddings", 2048)
    kinds = fields.layer_kinds(every_nth_full(fields.layers("num_hidden_layers"), 4))
    everywhere = read_rope(fields, width, max_len, theta=_THETA)
    near = read_rope(fields, width, max_len, theta=_THETA, kind_of_layer=SLIDING, is_scaled=False)
    windows = fields.windows_of(kinds, fields.sliding_window(4096))
    ropes = tuple(near if kind == SLIDING else everywhere for kind in kinds)
    return _read(fields, windows=windows, rope=everywhere, ropes=ropes)


def _write(config: ModelConfig) -> dict[str, object]:
    return {**write_common(config), "attention_bias": config.qkv_bias}


def _write3(config: ModelConfig) -> dict[str, object]:
    fields = {**_write(config), **write_windows(config), "layer_types": kinds_of(config)}
    del fields["rope_theta"], fields["rope_scaling"]
    return fields | write_ropes(config.ropes, kinds_of(config))


OLMO2 = Architecture(model_type="olmo2", class_name="Olmo2ForCausalLM", parse=_read, write=_write)
OLMO3 = Architecture(model_type="olmo3", class_name="Olmo3ForCausalLM", parse=_read3, write=_write3)
