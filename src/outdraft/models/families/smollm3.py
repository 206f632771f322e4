"""SmolLM3: Llama whose every fourth layer turns no positions.

Hugging Face, "SmolLM3", 2025, https://huggingface.co/blog/smollm3.
"""

from outdraft.models.families.llama import kinds_of, read_common, write_common, write_windows
from outdraft.models.families.shared.fields import FULL, SLIDING, Fields
from outdraft.models.families.shared.naming import Architecture
from outdraft.models.networks.config import ModelConfig


def _read(fields: Fields) -> ModelConfig:
    layers = fields.layers("num_hidden_layers")
    period = fields.size("no_rope_layer_interval", 4)
    turned = fields.look("no_rope_layers")  # 1: this layer turns
    if turned is None:
        turned = [int((i + 1) % period != 0) for i in range(layers)]
    if not isinstance(turned, list) or len(turned) != layers:
        raise fields.error("no_rope_layers", turned, f"a list of {layers} numbers")
    slides = fields.get("use_sliding_window", bool, False)
    size = fields.sliding_window() if slides else None
    if not slides:
        fields.without_windows()
    kinds = fields.layer_kinds([SLIDING if size is not None and not turn else FULL for turn in turned])
    config = read_common(
        fields,
        theta=2e6,
        max_len=32768,
        mlp_bias=fields.get("mlp_bias", bool, False),
        tie_embeddings=fields.get("tie_word_embeddings", bool, True),
        windows=fields.windows_of(kinds, size) if slides else (),
        **fields.attention_biases(),
    )
    return config.turned_where(turned)


def _write(config: ModelConfig) -> dict[str, object]:
    return {
        **write_common(config),
        **write_windows(config),
        "layer_types": kinds_of(config),
        "use_sliding_window": bool(config.windows),
        "no_rope_layers": [int(config.rope_at(i) is not None) for i in range(config.num_layers)],
        "attention_bias": config.qkv_bias,
        "mlp_bias": config.mlp_bias,
    }


SMOLLM3 = Architecture(model_type="smollm3", class_name="SmolLM3ForCausalLM", parse=_read, write=_write)
