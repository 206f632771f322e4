"""What each architecture's GGUF spelling says beyond Llama's: names of tensors, how they are stored, keys.

Facts from llama.cpp's converter and gguf-py's tables of names (https://github.com/ggml-org/llama.cpp, 2026).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from outdraft.models.families.shared.fields import FULL, SLIDING
from outdraft.models.files.gguf_meta import GgufMeta

Keys = dict[str, object]
LONGROPE = "longrope"
BLOCK_DRAFTS = "dflash"  # the architecture of all drafts that write a block, read with them
FACTORS = {"long_factor": "rope_factors_long.weight", "short_factor": "rope_factors_short.weight"}
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BEHIND = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
_SANDWICH = _BEHIND | {"ffn_norm": "pre_feedforward_layernorm"}  # Gemma


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFamily:
    """How one `general.architecture` differs from `llama`."""

    model_type: str  # in config.json
    is_permuted: bool = False  # rows of q and k are stored in llama.cpp's order of rotary pairs
    norm_offset: float = 0.0  # norms are stored as w + this
    has_factors: bool = False  # longrope's factors may be there, as tensors
    top_names: Mapping[str, str] = field(default_factory=lambda: _TOP)  # llama.cpp's -> Hugging Face's
    layer_names: Mapping[str, str] = field(default_factory=lambda: LAYER)
    two_ways: bool = False  # rows may see those behind them
    keys: Callable[[GgufMeta, Keys], Keys] = lambda meta, told: {}  # of config.json, beside or in place of Llama's


def _llama(meta: GgufMeta, told: Keys) -> Keys:
    window = meta.value("attention.sliding_window")
    return {"model_type": "mistral", "sliding_window": window} if window else {}


def _ministral(meta: GgufMeta, told: Keys) -> Keys:
    if not meta.has("attention.temperature_scale"):
        return {"model_type": "mistral", "sliding_window": None}
    scaling = told["rope_scaling"]
    if not isinstance(scaling, dict):
        raise meta.error("rope.scaling.type", "a file with attention.temperature_scale stretches positions")
    mscale = meta.number("rope.scaling.yarn_log_multiplier", 1.0)
    more = {"mscale": mscale, "mscale_all_dim": mscale}
    return {"rope_scaling": {**scaling, **more, "llama_4_scaling_beta": meta.number("attention.temperature_scale", 0)}}


def _gemma(meta: GgufMeta, layers_of_the_largest: int) -> Keys:
    heads, width, head_dim = map(meta.count, ("attention.head_count", "embedding_length", "attention.key_length"))
    return {
        "query_pre_attn_scalar": width / heads if meta.count("block_count") == layers_of_the_largest else head_dim,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_act": None,
        "final_logit_softcapping": meta.value("final_logit_softcapping"),
        "sliding_window": meta.value("attention.sliding_window", 4096),
    }


def _gemma2(meta: GgufMeta, told: Keys) -> Keys:
    caps = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}  # where a file says nothing
    return _gemma(meta, 46) | {key: meta.number(key, cap) for key, cap in caps.items()}


def _gemma3(meta: GgufMeta, told: Keys) -> Keys:
    kinds = kinds_of(meta, 6)
    if not meta.has("attention.sliding_window"):
        kinds = [FULL] * len(kinds)
    return _gemma(meta, 62) | _two_ropes(meta, told, 1e6, near=1e4) | {"layer_types": kinds}


def _two_ropes(meta: GgufMeta, told: Keys, theta: float, *, near: float | None = None) -> Keys:
    """Layers with a window turn plainly, by a theta of their own; what stretches positions is for the others.

    near: their theta where the file has none; None: the others'.
    """
    theta = meta.number("rope.freq_base", theta)
    plain = {"rope_type": "default", "rope_theta": meta.number("rope.freq_base_swa", theta if near is None else near)}
    scaling = told["rope_scaling"] if isinstance(told["rope_scaling"], dict) else {"rope_type": "default"}
    everywhere = {**scaling, "rope_theta": theta}
    return {"rope_parameters": {FULL: everywhere, SLIDING: plain}, "rope_theta": None, "rope_scaling": None}


def _phi3(meta: GgufMeta, told: Keys) -> Keys:
    length = meta.count("context_length")
    original = meta.count("rope.scaling.original_context_length", length)
    keys: Keys = {
        "original_max_position_embeddings": original,
        "sliding_window": meta.value("attention.sliding_window") or None,
    }
    factors = {name: own.tolist() for name, theirs in FACTORS.items() if (own := meta.tensor(theirs)) is not None}
    if len(factors) < len(FACTORS):
        if factors or meta.value("rope.scaling.type") == LONGROPE:
            raise meta.error("rope.scaling.type", f"without both of {' and '.join(FACTORS.values())}")
        return keys
    scaling: Keys = dict(factors)
    scaling |= {"rope_type": "longrope", "factor": length / original}
    if meta.has("rope.scaling.attn_factor"):
        scaling["attention_factor"] = meta.number("rope.scaling.attn_factor", 1.0)
    return keys | {"rope_scaling": scaling}


def _granite(meta: GgufMeta, told: Keys) -> Keys:
    return {
        "attention_multiplier": meta.number("attention.scale", 0) or None,
        "embedding_multiplier": meta.number("embedding_scale", 1.0),
        "residual_multiplier": meta.number("residual_scale", 1.0),
        "logits_scaling": meta.number("logit_scale", 1.0),
    }


def _olmo(meta: GgufMeta, told: Keys) -> Keys:
    window = meta.value("attention.sliding_window")
    if not window:
        return {}
    keys: Keys = {"model_type": "olmo3", "sliding_window": window, "layer_types": kinds_of(meta, 4)}
    return keys | _two_ropes(meta, told, 10000.0)


def _glm4(meta: GgufMeta, told: Keys) -> Keys:
    return {"attention_bias": meta.holds("blk.0.attn_q.bias")}


def _starcoder2(meta: GgufMeta, told: Keys) -> Keys:
    return {
        "norm_epsilon": meta.number("attention.layer_norm_epsilon", 1e-5),
        "rms_norm_eps": None,
        "hidden_act": "gelu_pytorch_tanh",
        "use_bias": meta.holds("blk.0.attn_q.bias"),
        "attention_bias": None,
        "mlp_bias": None,
        "sliding_window": None,
    }


def _cohere2(meta: GgufMeta, told: Keys) -> Keys:
    return {
        "layer_norm_eps": meta.number("attention.layer_norm_epsilon", 1e-5),
        "rms_norm_eps": None,
        "logit_scale": meta.number("logit_scale", 1.0),
        "layer_types": kinds_of(meta, 4),
        "sliding_window": meta.count("attention.sliding_window"),
    }


def _exaone4(meta: GgufMeta, told: Keys) -> Keys:
    window = meta.value("attention.sliding_window")
    kinds = kinds_of(meta, 4)
    return {"sliding_window": window or None, "layer_types": kinds if window else [FULL] * len(kinds)}


def kinds_of(meta: GgufMeta, period: int) -> list[str]:
    """The value of `layer_types`; `period`: as `GgufMeta.flags`."""
    slides = meta.flags("attention.sliding_window_pattern", meta.count("block_count"), period)
    return [SLIDING if one else FULL for one in slides]


_FUSED_PHI = {
    name: theirs for name, theirs in LAYER.items() if name not in ("attn_q", "attn_k", "attn_v", "ffn_gate")
} | {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
_GLM = LAYER | {
    "post_attention_norm": "post_self_attn_layernorm",
    "post_ffw_norm": "post_mlp_layernorm",
    "ffn_up": "mlp.gate_up_proj",
}
FAMILIES = {
    "llama": GgufFamily(model_type="llama", is_permuted=True, keys=_llama),
    "mistral3": GgufFamily(model_type="ministral3", is_permuted=True, keys=_ministral),
    "qwen2": GgufFamily(model_type="qwen2"),
    "qwen3": GgufFamily(model_type="qwen3"),
    "gemma2": GgufFamily(model_type="gemma2", norm_offset=1.0, layer_names=LAYER | _SANDWICH, keys=_gemma2),
    "gemma3": GgufFamily(model_type="gemma3_text", norm_offset=1.0, layer_names=LAYER | _SANDWICH, keys=_gemma3),
    "phi3": GgufFamily(model_type="phi3", has_factors=True, layer_names=_FUSED_PHI, keys=_phi3),
    "granite": GgufFamily(model_type="granite", is_permuted=True, keys=_granite),
    "olmo2": GgufFamily(model_type="olmo2", layer_names=LAYER | _BEHIND, keys=_olmo),
    "smollm3": GgufFamily(model_type="smollm3", is_permuted=True),
    "glm4": GgufFamily(model_type="glm4", layer_names=_GLM, keys=_glm4),
    "starcoder2": GgufFamily(
        model_type="starcoder2", layer_names=LAYER | {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}, keys=_starcoder2
    ),
    "cohere2": GgufFamily(model_type="cohere2", keys=_cohere2),
    "exaone4": GgufFamily(model_type="exaone4", layer_names=LAYER | _BEHIND, keys=_exaone4),
}
