"""Llama 2 and 3.x, and all that share its names: SmolLM, TinyLlama, Mistral (with its sliding window), and Ministral 3
(whose queries grow with the logarithm of the position, from the length on that it was first trained with).

RMSNorm, rotary positions, grouped-query attention, gated SiLU feed-forward. The rename table here is also Qwen's.
"""

from outdraft.models.families.shared.fields import FULL, MOST_CHANNELS, SLIDING, Fields
from outdraft.models.families.shared.naming import Architecture
from outdraft.models.families.shared.rope_fields import read_rope, write_rope
from outdraft.models.networks.config import ModelConfig


def read_common(
    fields: Fields, *, head_dim: int | None = None, theta: float = 10000.0, max_len: int = 2048, **special: object
) -> ModelConfig:
    """The keys that all Llama-like configurations share. head_dim (None: D / H), theta, max_len: where the file names
    none."""
    heads, share = fields.heads("num_attention_heads", "hidden_size")
    head_dim = fields.size("head_dim", head_dim or share, most=MOST_CHANNELS)
    max_len = fields.size("max_position_embeddings", max_len)
    options: dict[str, object] = {
        "architecture": fields.name,
        "vocab_size": fields.size("vocab_size"),
        "hidden_size": fields.size("hidden_size", most=MOST_CHANNELS),
        "num_layers": fields.layers("num_hidden_layers"),
        "num_heads": heads,
        "num_kv_heads": fields.kv_heads("num_key_value_heads", heads),
        "head_dim": head_dim,
        "intermediate_size": fields.size("intermediate_size"),
        "max_len": max_len,
        "norm_eps": fields.get("rms_norm_eps", float, 1e-6),
        "tie_embeddings": fields.get("tie_word_embeddings", bool, False),
        "bos_id": fields.maybe_int("bos_token_id"),
        "eos_ids": fields.eos_ids(),
    }
    if "rope" not in special:
        options["rope"] = read_rope(fields, head_dim, max_len, theta=theta)
    if "activation" not in special:
        options["activation"] = fields.activation("hidden_act", "silu")
    return ModelConfig(**(options | special))  # type: ignore[arg-type]


def write_common(config: ModelConfig) -> dict[str, object]:
    """The same keys, as transformers reads them."""
    assert config.rope is not None
    eos = config.eos_ids
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_len,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tie_embeddings,
        "hidden_act": config.activation,
        "bos_token_id": config.bos_id,
        "pad_token_id": None,
        "eos_token_id": list(eos) if len(eos) > 1 else eos[0] if eos else None,
        **write_rope(config.rope, config.head_dim),
    }


def write_windows(config: ModelConfig) -> dict[str, object]:
    """The sliding window and, where not all layers have it, which do."""
    kinds = kinds_of(config)
    size = next((window for window in config.windows if window is not None), None)
    return {"sliding_window": size, **({"layer_types": kinds} if FULL in kinds and SLIDING in kinds else {})}


def kinds_of(config: ModelConfig) -> list[str]:
    """The value of `layer_types`."""
    return [FULL if config.window(i) is None else SLIDING for i in range(config.num_layers)]


def _read(fields: Fields) -> ModelConfig:
    bias = fields.get("attention_bias", bool, False)
    fields.only(is_llama_config=True)
    return read_common(fields, qkv_bias=bias, out_bias=bias, mlp_bias=fields.get("mlp_bias", bool, False))


def _write(config: ModelConfig) -> dict[str, object]:
    return {**write_common(config), "attention_bias": config.qkv_bias, "mlp_bias": config.mlp_bias}


def _read_mistral(fields: Fields) -> ModelConfig:
    windows = fields.windows(fields.layers("num_hidden_layers"), fields.sliding_window(4096))
    return read_common(fields, max_len=131072, windows=windows)


def _write_mistral(config: ModelConfig) -> dict[str, object]:
    return {**write_common(config), **write_windows(config)}


_MINISTRAL_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 16.0,
    "original_max_position_embeddings": 16384,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}


def _read_ministral(fields: Fields) -> ModelConfig:
    windows = fields.windows(fields.layers("num_hidden_layers"), fields.sliding_window())
    if not fields.has("rope_parameters") and not fields.has("rope_scaling"):
        fields.fill(rope_parameters=_MINISTRAL_ROPE)
    return read_common(
        fields, head_dim=128, max_len=262144, norm_eps=fields.get("rms_norm_eps", float, 1e-5), windows=windows
    )


LLAMA = Architecture(model_type="llama", class_name="LlamaForCausalLM", parse=_read, write=_write)
MINISTRAL3 = Architecture(
    model_type="ministral3", class_name="Ministral3ForCausalLM", parse=_read_ministral, write=_write_mistral
)
MISTRAL = Architecture(model_type="mistral", class_name="MistralForCausalLM", parse=_read_mistral, write=_write_mistral)
