"""Phi-3, Phi-3.5, Phi-4 and Phi-4-mini: Llama with fused maps, rotary positions by longrope, maybe on a part of a head.

Abdin et al., "Phi-3 Technical Report", 2024, https://arxiv.org/abs/2404.14219.
"""

from outdraft.models.families.llama import read_common, write_common, write_windows
from outdraft.models.families.shared.fields import Fields
from outdraft.models.families.shared.naming import Architecture, LayerNames
from outdraft.models.networks.config import ModelConfig

_NAMES = LayerNames(qkv=("self_attn.qkv_proj",), up=("mlp.gate_up_proj",))


def _read(fields: Fields) -> ModelConfig:
    fields.look("attention_bias")  # its code has none, whatever the file says
    fields.only(full_attn_mod=1, interpolate_factor=1)
    size, longest = fields.sliding_window(), fields.size("max_position_embeddings", 4096)
    windows = fields.windows(fields.layers("num_hidden_layers"), size)
    windows = () if size is not None and size >= longest else windows
    return read_common(fields, max_len=longest, norm_eps=fields.get("rms_norm_eps", float, 1e-5), windows=windows)


def _write(config: ModelConfig) -> dict[str, object]:
    fields = {**write_common(config), **write_windows(config)}
    assert config.rope is not None
    fields["original_max_position_embeddings"] = config.rope.original_max_len
    return fields


PHI3 = Architecture(model_type="phi3", class_name="Phi3ForCausalLM", parse=_read, write=_write, names=_NAMES)
