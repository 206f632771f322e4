"""Words that are no words of ours: those of other engines, and our own of earlier versions. One table, one error.

A word is *noted*, with a line in the log `outdraft.notes`, where leaving it out writes the same text (how work is
spread over devices, how memory is set aside). It is refused, with the cure, where the text or the promise of the call
would be another one, or where it has another name here. None and False ask for nothing.
"""

import logging
from collections.abc import Mapping
from typing import Any

from outdraft.options.errors import ConfigError
from outdraft.options.shown import shown

_log = logging.getLogger("outdraft.notes")

_ONE_DEVICE = "one device is used"
_OWN_MEMORY = "memory is taken as it is needed"
_OWN_KERNELS = "kernels are chosen by what the machine has"
_FORCED = "acceptance cannot be forced; `outdraft theory` says what a rate would bring"
_A_REQUESTS = "it belongs to a request: SamplingParams(...)"
_MERGED = "an adapter is merged into its model first: docs/models.md, LoRA adapters"
_LOSSY = "this lossy rule is not here; docs/verification.md lists the lossy rules that are"
_A_LENGTH = "here it is called num_speculative_tokens"
_A_DRAFT = "here it is called draft_model"
_A_HEAD = "this head of a block network is not here: docs/convert.md lists the drafts that are read"
_A_RULE = "rejection_sample_method= names the rule: `outdraft methods --kind verifier` lists them"

NOTED: Mapping[str, str] = {  # of LLM(...)
    "tensor_parallel_size": _ONE_DEVICE,
    "pipeline_parallel_size": _ONE_DEVICE,
    "data_parallel_size": _ONE_DEVICE,
    "distributed_executor_backend": _ONE_DEVICE,
    "disable_custom_all_reduce": _ONE_DEVICE,
    "speculative_draft_tensor_parallel_size": _ONE_DEVICE,
    "gpu_memory_utilization": "kv_cache_memory= limits the memory of keys and values",
    "swap_space": _OWN_MEMORY,
    "cpu_offload_gb": "weights_memory= limits what is held in memory",
    "block_size": _OWN_MEMORY,
    "use_v2_block_manager": _OWN_MEMORY,
    "load_format": "the format is read from the files",
    "trust_remote_code": "no code of a model's repository is run",
    "enable_chunked_prefill": "prompts are always read in chunks",
    "async_scheduling": "one thread plans and computes every step",
    "compilation_config": _OWN_KERNELS,
    "max_logprobs": "any number of log probabilities may be asked for",
    "disable_log_stats": "statistics are in every result",
    "attn_implementation": _OWN_KERNELS,
    "attention_backend": _OWN_KERNELS,
    "use_cache": "the key/value cache is always used",
    "low_cpu_mem_usage": _OWN_MEMORY,
    "use_mmap": "weights are mapped where the format allows it",
    "tokenizer_mode": "the tokenizer is read from the model's directory",
    "verbose": "the log is that of Python's logging, under 'outdraft'",
}
CURES: Mapping[str, str] = {  # of LLM(...)
    "recipe": "drafter= takes a recipe's name or file: drafter='recipe:NAME'",
    "drafter_options": "they stand beside the name: drafter={'name': ..., option: value}",
    "verifier_options": "they stand beside the name: verifier={'name': ..., option: value}",
    "policy_options": "they stand beside the name: policy={'name': ..., option: value}",
    "method": "here it is called drafter; speculative_config= has a 'method'",
    "speculative_algorithm": "here it is called drafter",
    "speculative_model": "here it is called draft_model; a method in brackets is a drafter",
    "assistant_model": _A_DRAFT,
    "draft_model_id": _A_DRAFT,
    "draft_model_path": _A_DRAFT,
    "spec_model": _A_DRAFT,
    "speculate": _A_LENGTH,
    "spec_tokens": _A_LENGTH,
    "num_draft_tokens": _A_LENGTH,
    "num_assistant_tokens": _A_LENGTH,
    "max_speculative_tokens": _A_LENGTH,
    "prompt_lookup_num_tokens": "here it is called num_speculative_tokens, beside a drafter that looks up",
    "spec_decoding_acceptance_method": "here it is called verifier",
    "torch_dtype": "here it is called dtype",
    "device_map": "here it is called device",
    "n_gpu_layers": "here it is called device",
    "n_ctx": "here it is called max_model_len",
    "max_seq_len": "here it is called max_model_len",
    "max_batch_size": "here it is called max_num_seqs",
    "kv_cache_memory_bytes": "here it is called kv_cache_memory",
    "kv_cache_quant": "here it is called kv_cache_dtype",
    "max_queued_requests": "here it is called max_num_waiting",
    "model_path": "here it is called model",
    "pretrained_model_name_or_path": "here it is called model",
    "n_threads": "OMP_NUM_THREADS says it, a variable of the environment",
    "seed": "a seed belongs to a request: SamplingParams(seed=...)",
    "quantization": "round the model with `outdraft quantize`, or name one that is rounded",
    "load_in_8bit": "round the model with `outdraft quantize --bits 8`",
    "load_in_4bit": "round the model with `outdraft quantize --bits 4`",
    "tokenizer": "the tokenizer is read from the model's directory: put tokenizer.json there",
    "lora_path": _MERGED,
    "enable_lora": _MERGED,
}

CONFIG_NOTED: Mapping[str, str] = {  # of speculative_config
    "draft_tensor_parallel_size": _ONE_DEVICE,
    "attention_backend": _OWN_KERNELS,
    "moe_backend": _OWN_KERNELS,
    "enforce_eager": "LLM(enforce_eager=...) counts for the draft too",
    "kv_cache_dtype": "a draft's cache has the draft's own number format",
    "max_model_len": "the draft's own context counts; where a text outgrows it, decoding goes on without drafts",
    "draft_load_config": "the format is read from the files",
    "code_revision": "no code of a model's repository is run",
    "disable_padded_drafter_batch": "batches are never padded",
    "disable_eagle_block_drop": "a head's cached rows are found by the token after them too, so none are dropped",
    "index_share_for_mtp_iteration": "no head here has sparse attention, so there is no index to share",
    "disable_by_batch_size": "leave num_speculative_tokens out, and the policy chooses by measured cost",
    "use_local_argmax_reduction": _ONE_DEVICE,
    "draft_lm_head_quantization": "the draft's option quantization= covers its head",
    "adaptive_verification": "leave num_speculative_tokens out, and the policy chooses by measured cost",
    "enable_adaptive_verification": "leave num_speculative_tokens out, and the policy chooses by measured cost",
    "suffix_decoding_corpus_tokens": "finished answers are counted in texts, not in tokens",
    "dspark_draft_topk": "the scores of all tokens are corrected, so none are chosen before",
    "xpress_topc": "the scores of all tokens are corrected, so none are chosen before",
}
CONFIG_CURES: Mapping[str, str] = {
    "revision": "download the draft at that revision, and give its directory as 'model'",
    "num_speculative_tokens_per_batch_size": "leave it and num_speculative_tokens out: the policy 'auto' "
    "measures what a batch costs",
    "synthetic_acceptance_rate": _FORCED,
    "synthetic_acceptance_rates": _FORCED,
    "synthetic_acceptance_length": _FORCED,
    "acceptance_method": _A_RULE,
    "posterior_threshold": _A_RULE,
    "posterior_alpha": _A_RULE,
    "temperature": _A_REQUESTS,
    "top_p": _A_REQUESTS,
    "top_k": _A_REQUESTS,
    "tensor_parallel_size": "leave it out: one device is used",
    "speculative_token_tree": "the shape of a tree is an option of the method: `outdraft methods NAME`",
    "quantization": "this method has no weights that can be rounded when they are loaded",
    "fly_window_size": _LOSSY,
    "fly_entropy_threshold": _LOSSY,
    "fly_entropy_top_k": _LOSSY,
    "parallel_drafting": "a draft writes one token in a pass, or a block where that is its method: leave it out",
    "use_heterogeneous_vocab": "with this method drafts have the target's vocabulary: leave it out",
}
METHODS: Mapping[str, str] = {  # of vLLM and SGLang, and not here
    **dict.fromkeys(("dspine", "jetspec"), _A_HEAD),
    "peagle": "heads that write several tokens in one pass are not here: docs/convert.md lists the drafts that are "
    "read",
    "pard": "draft models that write several tokens in one pass are not here: name one that writes one",
    "uno": "a target does not draft for itself by an adapter here: `outdraft methods` lists the drafters",
    "mlp_speculator": "such networks are not read: docs/convert.md lists the drafts that are",
    "extract_hidden_states": "it drafts nothing; `outdraft train` reads the target's states by itself",
    "custom_class": "name a drafter of yours as the method, 'package.module:METHOD' (docs/add_a_method.md)",
}
RULES: Mapping[str, str] = {  # rejection_sample_method
    "fly": "it is lossy and not here; docs/verification.md lists the lossy rules that are",
    "synthetic": _FORCED,
}
EXACT = ("standard", "strict", "probabilistic")  # rejection_sample_method: exact rules, all of them; here "auto"


def refuse(key: str, value: Any) -> None:
    """Raise `ConfigError` with the cure for an argument of `LLM(...)` that the table refuses."""
    _settle({key: value}, "LLM", {}, CURES)


def settle(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is left of the arguments of `LLM(...)` that it does not know. Raises `ConfigError` with the cure."""
    return _settle(given, "LLM", NOTED, CURES)


def settle_config(options: Mapping[str, Any], known: list[str]) -> dict[str, Any]:
    """What is left of a method's options in a `speculative_config`; words that the method has (`known`) stay."""
    theirs = {key: value for key, value in options.items() if key not in known}
    left = _settle(theirs, "speculative_config", CONFIG_NOTED, CONFIG_CURES)
    return {key: value for key, value in options.items() if key in known or key in left}


def _settle(given: Mapping[str, Any], where: str, noted: Mapping[str, str], cures: Mapping[str, str]) -> dict[str, Any]:
    left = {}
    for key, value in given.items():
        asks = value is not None and value is not False
        if key in cures:
            if asks:
                raise ConfigError(f"{where} takes no {key}={shown(value)}: {cures[key]}")
        elif key not in noted:
            left[key] = value
        elif asks and (value is True or value != 1):  # 1: as it is here
            _log.warning("%s: %s=%s changes nothing here: %s", where, key, shown(value), noted[key])
    return left
