"""Cohere2 (Command R7B, Aya): both halves read one LayerNorm; windows and rotary positions on three layers of four.

Pairs of rotary channels are neighbours, logits are multiplied by `logit_scale`, the head is tied.
Cohere, "Command R7B", 2024, https://huggingface.co/CohereLabs/c4ai-command-r7b-12-2024.
"""

from outdraft.models.families.llama import kinds_of, read_common, write_common, write_windows
from outdraft.models.families.shared.fields import SLIDING, Fields, every_nth_full
from outdraft.models.families.shared.naming import Architecture, LayerNames
from outdraft.models.networks.config import ModelConfig


def _read(fields: Fields) -> ModelConfig:
    fields.get("rms_norm_eps", float, 1e-5)  # stands in some files and is not used
    period = fields.get("sliding_window_pattern", int, 4)
    kinds = fields.layer_kinds(every_nth_full(fields.layers("num_hidden_layers"), period))
    fields.look("order_of_interleaved_layers")
    fields.look("rotary_pct")
    is_tied = fields.get("tie_word_embeddings", bool, True)
    fields.only(
        position_embedding_type="rope_gptj",
        use_gated_activation=True,
        use_parallel_block=True,
        use_embedding_sharing=is_tied,
    )
    config = read_common(
        fields,
        max_len=8192,
        norm="layer",
        norm_bias=False,
        norm_eps=fields.get("layer_norm_eps", float, 1e-5),
        parallel_residual=True,
        shared_norm=True,
        tie_embeddings=is_tied,
        logit_scale=fields.get("logit_scale", float, 0.0625),
        windows=fields.windows_of(kinds, fields.sliding_window(4096)),
        **fields.attention_biases(),
    )
    return config.turned_where([kind == SLIDING for kind in kinds])


def _write(config: ModelConfig) -> dict[str, object]:
    fields = {**write_common(config), **write_windows(config), "layer_types": kinds_of(config)}
    del fields["rms_norm_eps"]
    return fields | {
        "layer_norm_eps": config.norm_eps,
        "attention_bias": config.qkv_bias,
        "logit_scale": config.logit_scale,
    }


COHERE2 = Architecture(
    model_type="cohere2",
    class_name="Cohere2ForCausalLM",
    parse=_read,
    write=_write,
    names=LayerNames(has_neighbours=True),
)
