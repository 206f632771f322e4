"""Qwen2 and 2.5 (biases on q, k, v; optional sliding window on the upper layers) and dense Qwen3 (q/k norm, head_dim).

Tensor names are Llama's.
"""

from outdraft.models.families.llama import read_common, write_common, write_windows
from outdraft.models.families.shared.fields import Fields
from outdraft.models.families.shared.naming import Architecture
from outdraft.models.networks.config import ModelConfig


def _windows(fields: Fields) -> tuple[int | None, ...]:
    layers, first = fields.layers("num_hidden_layers"), fields.get("max_window_layers", int, 28)
    if not fields.get("use_sliding_window", bool, False):
        fields.without_windows()
        return ()
    return fields.windows(layers, fields.sliding_window(4096), first)


def _write_windows(config: ModelConfig) -> dict[str, object]:
    if not config.windows:
        return {"use_sliding_window": False}
    first = next(i for i, window in enumerate(config.windows) if window is not None)
    return {"use_sliding_window": True, "max_window_layers": first, **write_windows(config)}


def _read2(fields: Fields) -> ModelConfig:
    return read_common(fields, max_len=32768, qkv_bias=True, windows=_windows(fields))


def _write2(config: ModelConfig) -> dict[str, object]:
    return {**write_common(config), **_write_windows(config)}


def _read3(fields: Fields) -> ModelConfig:
    theta, max_len = (5e5, 128000) if fields.name == "qwen3_vl_text" else (10000.0, 32768)
    return read_common(
        fields,
        head_dim=128,
        theta=theta,
        max_len=max_len,
        qk_norm=True,
        windows=_windows(fields),
        **fields.attention_biases(),
    )


def _write3(config: ModelConfig) -> dict[str, object]:
    return {**write_common(config), **_write_windows(config), "attention_bias": config.qkv_bias}


QWEN3_VL = Architecture(  # the text part
    model_type="qwen3_vl_text", class_name="Qwen3VLTextModel", parse=_read3, write=_write3
)
QWEN2 = Architecture(model_type="qwen2", class_name="Qwen2ForCausalLM", parse=_read2, write=_write2)
QWEN3 = Architecture(model_type="qwen3", class_name="Qwen3ForCausalLM", parse=_read3, write=_write3)
