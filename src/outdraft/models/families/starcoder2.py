"""StarCoder2: LayerNorm, biases, a tanh GELU without a gate, grouped queries, a window, rotary positions.

Lozhkov et al., "StarCoder 2 and The Stack v2", 2024, https://arxiv.org/abs/2402.19173.
"""

from outdraft.models.families.llama import read_common, write_common, write_windows
from outdraft.models.families.shared.fields import Fields
from outdraft.models.families.shared.naming import Architecture, LayerNames
from outdraft.models.networks.config import ModelConfig

_NAMES = LayerNames(up=("mlp.c_fc",), down="mlp.c_proj")


def _read(fields: Fields) -> ModelConfig:
    bias = fields.get("use_bias", bool, True)
    fields.only(mlp_type="default")
    return read_common(
        fields,
        max_len=4096,
        norm="layer",
        norm_eps=fields.get("norm_epsilon", float, 1e-5),
        gated_mlp=False,
        activation=fields.activation("hidden_act", "gelu_pytorch_tanh"),
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=bias,
        tie_embeddings=fields.get("tie_word_embeddings", bool, True),
        windows=fields.windows(fields.layers("num_hidden_layers"), fields.sliding_window()),
    )


def _write(config: ModelConfig) -> dict[str, object]:
    fields = {**write_common(config), **write_windows(config)}
    del fields["rms_norm_eps"]
    return fields | {"norm_epsilon": config.norm_eps, "use_bias": config.qkv_bias}


STARCODER2 = Architecture(
    model_type="starcoder2", class_name="Starcoder2ForCausalLM", parse=_read, write=_write, names=_NAMES
)
