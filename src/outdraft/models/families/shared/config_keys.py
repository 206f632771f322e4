"""The keys of a config.json that may be ignored; any other unread key is an error.

A key that the architecture's reader asked for is known. Of the others, those below are bookkeeping, or have values that
leave the arithmetic as it is; any other with a value that says something is an error: it may change what is computed.
"""

import logging
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

from outdraft.options.errors import ModelLoadError
from outdraft.options.near_miss import near_miss
from outdraft.options.shown import shown

_log = logging.getLogger(__name__)
OFF: tuple[object, ...] = (None, False, 0, "", [], {})
NEUTRAL: dict[str, tuple[object, ...]] = {  # key -> the values that leave the arithmetic as it is
    "attention_multiplier": (None, 1),
    "embedding_multiplier": (None, 1),
    "residual_multiplier": (None, 1),
    "logits_scaling": (None, 1),
    "logit_scale": (None, 1),
    "scale_attn_weights": (None, True),
    "is_causal": (None, True),
    "is_decoder": (None, True, False),
    "position_embedding_type": (None, "absolute", "rope"),
    "head_type": (None, "lm"),
    "norm_type": (None, "layer_norm", "rms_norm"),
    "attention_type": (None, "full_attention"),
    "rope_interleaved": (None, False),
}
_SUSPECT = ("multiplier", "softcap", "expert", "quantiz", "num_nextn")
_REFUSED = (
    "alibi", "clip_qkv", "is_encoder_decoder", "add_cross_attention", "scale_attn_by_inverse_layer_idx", "use_qk_norm",
    "attention_chunk_size", *NEUTRAL,
)  # fmt: skip
_BOOKKEEPING = (
    "architectures", "model_type", "_*", "auto_map", "torch_dtype", "dtype", "transformers_version", "use_cache",
    "*_token_id", "*_token_index", "*_token_ids", "*dropout", "*dropout*prob", "*_pdrop", "initializer_range",
    "initializer_factor", "*_initializer*", "return_dict", "output_attentions", "output_hidden_states",
    "output_router_logits", "output_scores", "router_aux_loss_coef", "torchscript", "use_bfloat16",
    "tie_encoder_decoder", "cross_attention_hidden_size", "chunk_size_feed_forward", "id2label", "label2id",
    "num_labels", "problem_type", "task_specific_params", "finetuning_task", "tokenizer_class", "prefix",
    "remove_invalid_values", "summary_*", "pretraining_tp", "cache_implementation", "attn_implementation",
    "gradient_checkpointing", "reorder_and_upcast_attn", "classifier_*", "unsloth_*", "outdraft_*", "model_name",
    "name_or_path", "max_length", "min_length", "do_sample", "temperature", "top_k", "top_p", "typical_p",
    "repetition_penalty", "length_penalty", "num_beams", "num_beam_groups", "num_return_sequences", "early_stopping",
    "diversity_penalty", "exponential_decay_length_penalty", "encoder_no_repeat_ngram_size", "no_repeat_ngram_size",
    "bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "return_dict_in_generate", "pruned_heads",
    "tf_legacy_loss", "transformers.js_config",
)  # fmt: skip


def check_keys(
    raw: Mapping[str, object], used: set[str], name: str, *, strict: bool, beside: Collection[str] = ()
) -> None:
    """Raise `ModelLoadError` for the first unread key of config.json that may change the arithmetic.

    strict: every key that is not known; else only those that are known to matter, or sound like it (the layers of a
    drafter, whose config.json has keys of its own), and one line names the others. beside: what another reader reads.
    """
    unread = []
    for key, value in raw.items():
        allowed = NEUTRAL.get(key, OFF)
        if key in used or key in beside or value in allowed:
            continue
        is_known = any(fnmatchcase(key, pattern) for pattern in _BOOKKEEPING)
        matters = key in _REFUSED or any(word in key for word in _SUSPECT)
        if not (matters or strict or is_known):
            unread.append(key)
        if matters or (strict and not is_known):
            raise ModelLoadError(
                f"config.json of '{name}': {key}={shown(value)} is not supported: it may change what the model "
                f"computes, and outdraft does not know the key{near_miss(key, used)}. If it changes nothing, delete it "
                "from config.json"
            )
    if unread:
        _log.warning("config.json of '%s' has keys that are not read: %s", name, ", ".join(sorted(unread)))
