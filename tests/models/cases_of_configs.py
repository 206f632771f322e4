"""A value for each key of a config.json that docs/files_of_others.md names, and the family that it is shown on."""

from typing import Any

_LLAMA: dict[str, Any] = dict(
    vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64,
)  # fmt: skip
SIZES = {
    "llama": _LLAMA,
    "gpt_neox": {key: value for key, value in _LLAMA.items() if key != "num_key_value_heads"},
    "gpt2": dict(vocab_size=61, n_embd=32, n_layer=2, n_head=4, n_positions=64),
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
WINDOW: dict[str, Any] = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
BOTH = ["sliding_attention", "full_attention"] * 2
_LONG = {"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
Read = tuple[str, dict[str, Any], Any]  # the family, what stands there besides, another value

READ: dict[str, Read] = {
    "vocab_size": ("llama", {}, 62),
    "hidden_size": ("llama", {}, 64),
    "intermediate_size": ("llama", {}, 50),
    "num_hidden_layers": ("llama", {}, 3),
    "num_attention_heads": ("llama", {}, 8),
    "num_key_value_heads": ("llama", {}, 1),
    "head_dim": ("llama", {}, 16),
    "max_position_embeddings": ("llama", {}, 128),
    "n_embd": ("gpt2", {}, 64),
    "n_layer": ("gpt2", {}, 3),
    "n_head": ("gpt2", {}, 2),
    "n_inner": ("gpt2", {}, 50),
    "n_positions": ("gpt2", {}, 32),
    "rms_norm_eps": ("llama", {}, 1e-3),
    "layer_norm_eps": ("gpt_neox", {}, 1e-3),
    "layer_norm_epsilon": ("gpt2", {}, 1e-3),
    "norm_epsilon": ("starcoder2", {}, 1e-3),
    "hidden_act": ("llama", {}, "gelu"),
    "hidden_activation": ("gemma2", {}, "silu"),
    "activation_function": ("gpt2", {}, "relu"),
    "tie_word_embeddings": ("llama", {}, True),
    "bos_token_id": ("llama", {}, 1),
    "eos_token_id": ("llama", {}, [2, 3]),
    "rope_theta": ("llama", {}, 500.0),
    "rope_parameters": ("llama", {}, {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}),
    "rope_scaling": ("llama", {}, YARN),
    "rope_local_base_freq": ("gemma3_text", {}, 77.0),
    "partial_rotary_factor": ("glm4", {}, 0.25),
    "rotary_pct": ("gpt_neox", {}, 0.5),
    "rotary_emb_base": ("gpt_neox", {}, 500.0),
    "original_max_position_embeddings": ("phi3", {"rope_scaling": _LONG}, 32),
    "attention_bias": ("llama", {}, True),
    "mlp_bias": ("llama", {}, True),
    "use_bias": ("starcoder2", {}, False),
    "use_parallel_residual": ("gpt_neox", {}, False),
    "sliding_window": ("mistral", {}, 8),
    "use_sliding_window": ("qwen2", {"sliding_window": 8, "max_window_layers": 1}, True),
    "max_window_layers": ("qwen2", {**WINDOW, "max_window_layers": None}, 1),
    "layer_types": ("gemma3_text", {}, BOTH),
    "sliding_window_pattern": ("gemma3_text", {}, 2),
    "no_rope_layers": ("smollm3", {}, [1, 0, 1, 0]),
    "no_rope_layer_interval": ("smollm3", {}, 2),
    "query_pre_attn_scalar": ("gemma2", {}, 20),
    "attn_logit_softcapping": ("gemma2", {}, 7.0),
    "final_logit_softcapping": ("gemma2", {}, 7.0),
    "embedding_multiplier": ("granite", {}, 3.0),
    "attention_multiplier": ("granite", {}, 0.3),
    "residual_multiplier": ("granite", {}, 0.6),
    "logits_scaling": ("granite", {}, 1.7),
    "logit_scale": ("cohere2", {}, 0.5),
}
REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "rope_scaling beside another rope_parameters": (
        "llama", {"rope_scaling": YARN, "rope_parameters": {"rope_type": "default"}},
    ),
    "use_bidirectional_attention": ("gemma3_text", {"use_bidirectional_attention": True}),
    "is_encoder_decoder": ("llama", {"is_encoder_decoder": True}),
    "add_cross_attention": ("gpt2", {"add_cross_attention": True}),
    "scale_attn_by_inverse_layer_idx": ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    "alibi": ("llama", {"alibi": True}),
    "clip_qkv": ("llama", {"clip_qkv": 8.0}),
    "use_qk_norm": ("llama", {"use_qk_norm": True}),
    "attention_chunk_size": ("llama", {"attention_chunk_size": 64}),
    "num_local_experts": ("mistral", {"num_local_experts": 8}),
    "num_nextn_predict_layers": ("glm4", {"num_nextn_predict_layers": 1}),
    "any other key": ("llama", {"my_own_key": 3}),
}  # fmt: skip
COMPUTED: dict[str, tuple[str, Any, Any]] = {  # the family, what is computed, another value
    "is_llama_config": ("llama", True, False),
    "full_attn_mod": ("phi3", 1, 2),
    "interpolate_factor": ("phi3", 1, 4),
    "mlp_type": ("starcoder2", "default", "gated"),
    "use_gated_activation": ("cohere2", True, False),
    "use_parallel_block": ("cohere2", True, False),
    "use_embedding_sharing": ("cohere2", True, False),
    "position_embedding_type": ("cohere2", "rope_gptj", "alibi"),
    "sliding_window_size": ("gemma2", 4096, 8),
    "scale_attn_weights": ("gpt2", True, False),
    "is_causal": ("llama", True, False),
    "head_type": ("llama", "lm", "other"),
    "norm_type": ("llama", "rms_norm", "batch_norm"),
    "attention_type": ("llama", "full_attention", "linear"),
    "rope_interleaved": ("llama", False, True),
}
