"""GLM-4 (0414, 9B and 32B): norms before and behind each half, and half of each head turned, in neighbouring pairs.

Z.ai, "GLM-4-0414", 2025, https://huggingface.co/zai-org/GLM-4-32B-0414.
"""

from outdraft.models.families.llama import read_common, write_common
from outdraft.models.families.shared.fields import MOST_CHANNELS, Fields
from outdraft.models.families.shared.naming import Architecture, LayerNames
from outdraft.models.families.shared.rope_fields import read_rope
from outdraft.models.networks.config import ModelConfig

_NAMES = LayerNames(
    attn_post_norm="post_self_attn_layernorm",
    mlp_post_norm="post_mlp_layernorm",
    up=("mlp.gate_up_proj",),
    has_neighbours=True,
)


def _read(fields: Fields) -> ModelConfig:
    width, longest = fields.size("head_dim", 128, most=MOST_CHANNELS), fields.size("max_position_embeddings", 131072)
    return read_common(
        fields,
        head_dim=128,
        norm_eps=fields.get("rms_norm_eps", float, 1.5625e-7),
        post_norm=True,
        max_len=longest,
        qkv_bias=fields.get("attention_bias", bool, True),
        rope=read_rope(fields, width, longest, share=0.5),
        eos_ids=fields.eos_ids() or (151329, 151336, 151338),
    )


def _write(config: ModelConfig) -> dict[str, object]:
    fields = {**write_common(config), "attention_bias": config.qkv_bias}
    assert config.rope is not None
    return fields | {"partial_rotary_factor": config.rope.dim / config.head_dim}


GLM4 = Architecture(model_type="glm4", class_name="Glm4ForCausalLM", parse=_read, write=_write, names=_NAMES)
