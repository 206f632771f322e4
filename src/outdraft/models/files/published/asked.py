"""A `quantization_config` that knows which of its keys a reader asked for: the others are named once."""

from collections.abc import Iterator, Mapping

from outdraft.models.families.shared.fields import OFF

_MAKING = set(
    """
    quant_method damp_percent damp_auto_increment static_groups true_sequential mse desc_act sym
    model_name_or_path model_file_base_name dataset meta quantizer tokenizer batch_size block_name_to_quantize
    to_quant_block_names cache_block_outputs module_name_preceding_first_block modules_in_block_to_quantize
    pad_token_id use_cuda_fp16 use_cuda_fp32 use_exllama disable_exllama max_input_length exllama_config do_fuse
    fuse_max_seq_len modules_to_fuse global_compression_ratio ignore ignored_layers modules_to_not_convert version
    autoround_version iters lr minmax_lr nsamples seqlen low_gpu_mem_usage gradient_accumulate_steps
    enable_quanted_input enable_minmax_tuning enable_norm_bias_tuning amp scale_dtype run_compressed actorder producer
    exclude_modules quantized_layers
    """.split()
)  # how the integers were found, and how other programs run them


class AskedTable(Mapping[str, object]):
    """The same table; `unread` are its keys that say something and that no reader has asked for."""

    def __init__(self, told: Mapping[str, object]) -> None:
        self._told, self._used = told, set[str]()

    def __getitem__(self, key: str) -> object:
        self._used.add(key)
        return self._told[key]

    def __contains__(self, key: object) -> bool:
        self._used.add(str(key))
        return key in self._told

    def __iter__(self) -> Iterator[str]:
        return iter(self._told)

    def __len__(self) -> int:
        return len(self._told)

    @property
    def unread(self) -> list[str]:
        """Sorted. Keys that say how the integers were found change nothing, and are none of these."""
        return sorted(key for key in set(self._told) - self._used - _MAKING if self._told[key] not in OFF)
