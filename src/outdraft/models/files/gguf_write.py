"""Write a Hugging Face directory as one GGUF file, llama.cpp's container: the inverse of `models.gguf`.

Every matrix is stored as it is (BF16, F16 or F32) and every vector as F32, as llama.cpp's own converter does; rounding
is left to llama.cpp's own tool. Rows of q and k of Llama models are put into llama.cpp's order, and a byte-level BPE
vocabulary goes along.
"""

import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outdraft.codecs.gguf_cuts import pre_of
from outdraft.codecs.text import TextCodec
from outdraft.codecs.tokenizer_file import read_tokenizer
from outdraft.models.files.gguf import reorder_rows, theirs_of
from outdraft.models.files.load import find_architecture, read_json
from outdraft.models.networks.config import ModelConfig
from outdraft.nn.rope import RopeConfig, frequencies
from outdraft.options.errors import ModelLoadError
from outdraft.weights.safetensors import TensorStore

ARCHITECTURES = ("llama", "qwen2", "qwen3")  # what is written here; more are read
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4  # tokenizer.ggml.token_type


def write_gguf(directory: Path, path: Path) -> None:
    """The model in `directory` as the file `path`.

    Raises:
        ModelLoadError: no `gguf` package, or a model that the format's common subset does not hold.
    """
    raw = read_json(directory / "config.json")
    config = find_architecture(raw).read(raw, strict=True)
    rope = config.rope
    if config.architecture not in ARCHITECTURES or config.windows or raw.get("quantization_config") or rope is None:
        raise ModelLoadError(
            f"{directory}: model_type={raw.get('model_type')!r} cannot be written as GGUF here "
            f"(unquantized {', '.join(ARCHITECTURES)} without windows can): use llama.cpp's convert_hf_to_gguf.py"
        )
    if rope != replace(rope, attention_factor=None, mscale=None, mscale_all_dim=None, truncate=True):
        raise ModelLoadError(
            f"{directory}: attention_factor, mscale and truncate of its rotary positions cannot be written as "
            "GGUF here: use "
            "llama.cpp's convert_hf_to_gguf.py"
        )
    try:
        gguf: Any = importlib.import_module("gguf")
    except ImportError as error:
        raise ModelLoadError("GGUF files are written by the gguf package: `pip install 'outdraft[gguf]'`") from error
    writer = gguf.GGUFWriter(path, config.architecture)
    _add_shape(writer, config)
    extra = _add_rope(gguf, writer, rope, config.max_len)
    _add_vocabulary(writer, directory, raw, config.vocab_size)
    store = TensorStore(directory)
    for name in store:
        tensor = store[name]
        if config.architecture == "llama" and ".q_proj." in name:
            tensor = reorder_rows(tensor, config.num_heads)
        elif config.architecture == "llama" and ".k_proj." in name:
            tensor = reorder_rows(tensor, config.num_kv_heads)
        _add_tensor(gguf, writer, theirs_of(name), tensor)
    for name, tensor in extra.items():
        _add_tensor(gguf, writer, name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tensor(gguf: Any, writer: Any, name: str, tensor: Tensor) -> None:
    kinds = {torch.bfloat16: "BF16", torch.float16: "F16"}
    kind = kinds.get(tensor.dtype) if tensor.dim() == 2 else None
    array = tensor.float().contiguous().numpy()
    if kind is None:
        writer.add_tensor(name, array)
        return
    stored = gguf.GGMLQuantizationType[kind]
    writer.add_tensor(name, gguf.quants.quantize(array, stored), raw_dtype=stored)


def _add_shape(writer: Any, config: ModelConfig) -> None:
    writer.add_context_length(config.max_len)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_vocab_size(config.vocab_size)


def _add_rope(gguf: Any, writer: Any, rope: RopeConfig, max_len: int) -> dict[str, Tensor]:
    """The rotary settings; Llama 3's slowed pairs are a tensor of divisors instead."""
    writer.add_rope_dimension_count(rope.dim)
    writer.add_rope_freq_base(rope.theta)
    if rope.kind == "llama3":
        plain = frequencies(RopeConfig(dim=rope.dim, theta=rope.theta))
        return {"rope_freqs.weight": (plain / frequencies(rope)).float()}
    if rope.kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope.kind))
        writer.add_rope_scaling_factor(rope.factor)
        writer.add_rope_scaling_orig_ctx_len(rope.original_max_len or max_len)
        if rope.kind == "yarn":
            writer.add_rope_scaling_yarn_beta_fast(rope.beta_fast)
            writer.add_rope_scaling_yarn_beta_slow(rope.beta_slow)
    return {}


def _add_vocabulary(writer: Any, directory: Path, raw: dict[str, object], size: int) -> None:
    """Names, kinds and merges; llama.cpp refuses to run without any."""
    tokenizer, codec = read_tokenizer(directory / "tokenizer.json"), TextCodec.load(directory)
    model = json.loads(tokenizer.to_str())["model"]
    pre = pre_of(tokenizer)
    if model.get("type") != "BPE" or pre is None or not model["merges"]:
        raise ModelLoadError(
            f"{directory}/tokenizer.json is no byte-level BPE with merges and a way of cutting words that is written "
            "as GGUF here: use llama.cpp's convert_hf_to_gguf.py"
        )
    added = tokenizer.get_added_tokens_decoder()
    kinds = [_NORMAL if tokenizer.id_to_token(i) is not None else _CONTROL for i in range(size)]
    for i, one in added.items():
        kinds[i] = _CONTROL if one.special else _USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([tokenizer.id_to_token(i) or f"[unused{i}]" for i in range(size)])
    writer.add_token_types(kinds)
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]])
    writer.add_add_bos_token(codec.encode("") != [])
    for key, add in (("bos_token_id", writer.add_bos_token_id), ("eos_token_id", writer.add_eos_token_id)):
        token = raw.get(key)
        token = token[0] if isinstance(token, list) else token
        if isinstance(token, int):
            add(token)
