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
_OWN_CODE = "no code of a model's repository is run"
_OWN_FORMAT = "the format is read from the files"
_MEASURED = "leave num_speculative_tokens out, and the policy chooses by measured cost"
_FORCED = "acceptance cannot be forced; `outdraft theory` says what a rate would bring"


def _all(words: str, line: str) -> dict[str, str]:
    """The same line for each of these words."""
    return dict.fromkeys(words.split(), line)


def _called(ours: str, words: str) -> dict[str, str]:
    """Words for what has the name `ours` here."""
    return _all(words, f"here it is called {ours}")


NOTED: Mapping[str, str] = {  # of LLM(...)
    **_all("tensor_parallel_size pipeline_parallel_size data_parallel_size", _ONE_DEVICE),
    **_all("distributed_executor_backend disable_custom_all_reduce", _ONE_DEVICE),
    **_all("speculative_draft_tensor_parallel_size", _ONE_DEVICE),
    **_all("swap_space block_size use_v2_block_manager low_cpu_mem_usage", _OWN_MEMORY),
    **_all("compilation_config attn_implementation attention_backend", _OWN_KERNELS),
    "gpu_memory_utilization": "kv_cache_memory= limits the memory of keys and values",
    "cpu_offload_gb": "weights_memory= limits what is held in memory",
    "load_format": _OWN_FORMAT,
    "trust_remote_code": _OWN_CODE,
    "enable_chunked_prefill": "prompts are always read in chunks",
    "async_scheduling": "one thread plans and computes every step",
    "max_logprobs": "any number of log probabilities may be asked for",
    "disable_log_stats": "statistics are in every result",
    "use_cache": "the key/value cache is always used",
    "use_mmap": "weights are mapped where the format allows it",
    "tokenizer_mode": "the tokenizer is read from the model's directory",
    "verbose": "the log is that of Python's logging, under 'outdraft'",
}
CURES: Mapping[str, str] = {  # of LLM(...)
    **_called("draft_model", "assistant_model draft_model_id draft_model_path spec_model"),
    **_called("num_speculative_tokens", "speculate spec_tokens num_draft_tokens num_assistant_tokens"),
    **_called("num_speculative_tokens", "max_speculative_tokens"),
    **_called("num_speculative_tokens, beside a drafter that looks up", "prompt_lookup_num_tokens"),
    **_called("draft_model; a method in brackets is a drafter", "speculative_model"),
    **_called("drafter; speculative_config= has a 'method'", "method"),
    **_called("drafter", "speculative_algorithm"),
    **_called("verifier", "spec_decoding_acceptance_method"),
    **_called("dtype", "torch_dtype"),
    **_called("device", "device_map n_gpu_layers"),
    **_called("max_model_len", "n_ctx max_seq_len"),
    **_called("max_num_seqs", "max_batch_size"),
    **_called("kv_cache_memory", "kv_cache_memory_bytes"),
    **_called("kv_cache_dtype", "kv_cache_quant"),
    **_called("max_num_waiting", "max_queued_requests"),
    **_called("model", "model_path pretrained_model_name_or_path"),
    **_all("lora_path enable_lora", "an adapter is merged into its model first: docs/models.md, LoRA adapters"),
    **{
        f"{kind}_options": f"they stand beside the name: {kind}={{'name': ..., option: value}}"
        for kind in ("drafter", "verifier", "policy")
    },
    "recipe": "drafter= takes a recipe's name or file: drafter='recipe:NAME'",
    "n_threads": "OMP_NUM_THREADS says it, a variable of the environment",
    "seed": "a seed belongs to a request: SamplingParams(seed=...)",
    "quantization": "round the model with `outdraft quantize`, or name one that is rounded",
    "load_in_8bit": "round the model with `outdraft quantize --bits 8`",
    "load_in_4bit": "round the model with `outdraft quantize --bits 4`",
    "tokenizer": "the tokenizer is read from the model's directory: put tokenizer.json there",
}

CONFIG_NOTED: Mapping[str, str] = {  # of speculative_config
    **_all("draft_tensor_parallel_size use_local_argmax_reduction", _ONE_DEVICE),
    **_all("attention_backend moe_backend", _OWN_KERNELS),
    **_all("disable_by_batch_size adaptive_verification enable_adaptive_verification", _MEASURED),
    **_all("dspark_draft_topk xpress_topc", "the scores of all tokens are corrected, so none are chosen before"),
    "enforce_eager": "LLM(enforce_eager=...) counts for the draft too",
    "kv_cache_dtype": "a draft's cache has the draft's own number format",
    "max_model_len": "the draft's own context counts; where a text outgrows it, decoding goes on without drafts",
    "draft_load_config": _OWN_FORMAT,
    "code_revision": _OWN_CODE,
    "disable_padded_drafter_batch": "batches are never padded",
    "disable_eagle_block_drop": "a head's cached rows are found by the token after them too, so none are dropped",
    "index_share_for_mtp_iteration": "no head here has sparse attention, so there is no index to share",
    "draft_lm_head_quantization": "the draft's option quantization= covers its head",
    "suffix_decoding_corpus_tokens": "finished answers are counted in texts, not in tokens",
}
CONFIG_CURES: Mapping[str, str] = {
    **_all("synthetic_acceptance_rate synthetic_acceptance_rates synthetic_acceptance_length", _FORCED),
    **_all(
        "acceptance_method posterior_threshold posterior_alpha",
        "rejection_sample_method= names the rule: `outdraft methods --kind verifier` lists them",
    ),
    **_all("temperature top_p top_k", "it belongs to a request: SamplingParams(...)"),
    **_all(
        "fly_window_size fly_entropy_threshold fly_entropy_top_k",
        "this lossy rule is not here; docs/verification.md lists the lossy rules that are",
    ),
    "revision": "download the draft at that revision, and give its directory as 'model'",
    "num_speculative_tokens_per_batch_size": "leave it and num_speculative_tokens out: the policy 'auto' "
    "measures what a batch costs",
    "tensor_parallel_size": "leave it out: one device is used",
    "speculative_token_tree": "the shape of a tree is an option of the method: `outdraft methods NAME`",
    "quantization": "this method has no weights that can be rounded when they are loaded",
    "parallel_drafting": "a draft writes one token in a pass, or a block where that is its method: leave it out",
    "use_heterogeneous_vocab": "with this method drafts have the target's vocabulary: leave it out",
}
METHODS: Mapping[str, str] = {  # of vLLM and SGLang, and not here
    **_all(
        "dspine jetspec", "this head of a block network is not here: docs/convert.md lists the drafts that are read"
    ),
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
