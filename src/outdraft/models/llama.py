"""Llama 2 and 3.x, and all that share its names: SmolLM, TinyLlama, Mistral (with its sliding window).

RMSNorm, rotary positions, grouped-query attention, gated SiLU feed-forward. The rename table here is also Qwen's.
"""

from collections.abc import Iterable

from outdraft.models.config import ModelConfig
from outdraft.models.fields import MOST_CHANNELS, Fields, write_rope
from outdraft.models.naming import Architecture, Entry, linear, norm


def read_common(fields: Fields, **special: object) -> ModelConfig:
    """The keys that all Llama-like configurations share."""
    heads, share = fields.heads("num_attention_heads", "hidden_size")
    head_dim = fields.size("head_dim", share, most=MOST_CHANNELS)
    max_len = fields.size("max_position_embeddings", 2048)
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
        "rope": fields.rope(head_dim, max_len),
        "activation": fields.activation("hidden_act", "silu"),
        "bos_id": fields.maybe_int("bos_token_id"),
        "eos_ids": fields.eos_ids(),
    }
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
        "eos_token_id": list(eos) if len(eos) > 1 else eos[0] if eos else None,
        **write_rope(config.rope, config.head_dim),
    }


def write_windows(config: ModelConfig) -> dict[str, object]:
    """The sliding window and, where not all layers have it, which do."""
    kinds = ["full_attention" if window is None else "sliding_attention" for window in config.windows]
    size = next((window for window in config.windows if window is not None), None)
    return {"sliding_window": size, **({"layer_types": kinds} if "full_attention" in kinds else {})}


def llama_table(config: ModelConfig) -> Iterable[Entry]:
    """Which of our tensors each tensor of a Llama checkpoint is."""
    yield Entry(ours="embedding", theirs=("model.embed_tokens.weight",))
    yield from norm("final_norm", "model.norm", config)
    yield Entry(ours="lm_head.weight", theirs=("lm_head.weight",))
    for i in range(config.num_layers):
        yield from layer_entries(f"layers.{i}", f"model.layers.{i}", config)


def layer_entries(us: str, them: str, config: ModelConfig, *, input_norm: bool = True) -> Iterable[Entry]:
    """One layer; `input_norm`: whether it has one (the first layer of a drafter may not)."""
    width = config.head_dim
    heights = (config.num_heads * width, config.num_kv_heads * width, config.num_kv_heads * width)
    inner = (config.intermediate_size, config.intermediate_size)
    qkv = [f"{them}.self_attn.{name}_proj" for name in "qkv"]
    gates = [f"{them}.mlp.{name}_proj" for name in ("gate", "up")]
    if input_norm:
        yield from norm(f"{us}.attn_norm", f"{them}.input_layernorm", config)
    yield from linear(f"{us}.qkv", qkv, config.qkv_bias, heights=heights)
    yield from linear(f"{us}.out", [f"{them}.self_attn.o_proj"], config.out_bias)
    if config.qk_norm:
        yield from norm(f"{us}.q_norm", f"{them}.self_attn.q_norm", config)
        yield from norm(f"{us}.k_norm", f"{them}.self_attn.k_norm", config)
    yield from norm(f"{us}.mlp_norm", f"{them}.post_attention_layernorm", config)
    yield from linear(f"{us}.up", gates, config.mlp_bias, heights=inner)
    yield from linear(f"{us}.down", [f"{them}.mlp.down_proj"], config.mlp_bias)


def _read(raw: dict[str, object]) -> ModelConfig:
    fields = Fields(raw)
    bias = fields.get("attention_bias", bool, False)
    return read_common(fields, qkv_bias=bias, out_bias=bias, mlp_bias=fields.get("mlp_bias", bool, False))


def _write(config: ModelConfig) -> dict[str, object]:
    return {**write_common(config), "attention_bias": config.qkv_bias, "mlp_bias": config.mlp_bias}


def _read_mistral(raw: dict[str, object]) -> ModelConfig:
    fields = Fields(raw)
    windows = fields.windows(fields.layers("num_hidden_layers"), fields.maybe_int("sliding_window"))
    return read_common(fields, windows=windows)


def _write_mistral(config: ModelConfig) -> dict[str, object]:
    return {**write_common(config), **write_windows(config)}


IGNORED = ("rotary_emb.inv_freq",)
LLAMA = Architecture(
    model_type="llama", class_name="LlamaForCausalLM", read=_read, write=_write, table=llama_table, ignored=IGNORED
)
MISTRAL = Architecture(
    model_type="mistral", class_name="MistralForCausalLM", read=_read_mistral, write=_write_mistral,
    table=llama_table, ignored=IGNORED,
)  # fmt: skip
