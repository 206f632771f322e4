"""Tiny models of families that outdraft does not compute itself, written by `transformers`: weights that show."""

import pytest
import torch

SMALL = dict(
    vocab_size=61,
    hidden_size=64,
    intermediate_size=64,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    pad_token_id=None,
    bos_token_id=1,
    eos_token_id=2,
)
EXPERTS = SMALL | dict(head_dim=16, num_experts_per_tok=2, moe_intermediate_size=32)
BOTH = ["sliding_attention", "full_attention"] * 2
PER_LAYER = dict(
    head_dim=16,
    sliding_window=6,
    vocab_size_per_layer_input=61,
    hidden_size_per_layer_input=8,
    num_kv_shared_layers=2,
    layer_types=BOTH,
)
LATENT = dict(
    num_key_value_heads=4,
    n_routed_experts=4,
    num_experts_per_tok=2,
    n_group=2,
    topk_group=1,
    kv_lora_rank=16,
    q_lora_rank=24,
    qk_rope_head_dim=8,
    qk_nope_head_dim=16,
    v_head_dim=16,
    moe_intermediate_size=32,
    first_k_dense_replace=1,
    n_shared_experts=1,
)
FAMILIES = {
    "qwen3_moe": EXPERTS | dict(num_experts=4),
    "mixtral": SMALL | dict(num_local_experts=4, num_experts_per_tok=2, sliding_window=6),
    "gpt_oss": EXPERTS | dict(num_local_experts=4, sliding_window=6, layer_types=BOTH),
    "deepseek_v3": SMALL | LATENT,  # values narrower than keys
    "glm4_moe": EXPERTS
    | dict(n_routed_experts=4, n_group=1, topk_group=1, n_shared_experts=1, first_k_dense_replace=1),
    "gemma3n_text": SMALL
    | PER_LAYER
    | dict(laurel_rank=8, altup_num_inputs=2, activation_sparsity_pattern=[0.5, 0.0, 0.0, 0.0])
    | dict(intermediate_size=[64] * 4),
    "gemma4_text": SMALL | PER_LAYER | dict(global_head_dim=32),  # two shapes of heads
    "opt": dict(
        vocab_size=61,
        hidden_size=64,
        ffn_dim=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        word_embed_proj_dim=64,
        max_position_embeddings=128,
        pad_token_id=1,
        bos_token_id=1,
        eos_token_id=2,
    ),  # learned positions
}


def write_model(kind, directory, seed=0, **changes):
    """A model of this family; no parameter is at its boring initial value."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(kind, **{**FAMILIES[kind], **changes})
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.15)
            elif "norm" in name:
                parameter.normal_(0.5, 0.1)
            else:
                parameter.normal_(0, 0.2)
    model.eval().save_pretrained(directory)
    return directory


def own_logits(directory, ids):
    """By the model's own eager attention, without a cache: [N] -> [N, V]."""
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager").eval()
    with torch.inference_mode():
        return model(input_ids=ids[None], use_cache=False).logits[0]
