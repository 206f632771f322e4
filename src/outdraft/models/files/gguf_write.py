"""Write a Hugging Face directory as one GGUF file, llama.cpp's container: the inverse of `models.gguf`.

Every matrix is stored as it is (BF16, F16 or F32) and every vector as F32, as llama.cpp's own converter does;
`remake/gguf_round.py` rounds what comes of it. Rows of q and k of Llama models are put into llama.cpp's order, and the
vocabulary and the chat template go along. One tensor is in memory at a time.
"""

import importlib
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import fields
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from outdraft.models.files.gguf import reorder_rows, theirs_of
from outdraft.models.files.gguf_families import FAMILIES, GgufFamily
from outdraft.models.files.gguf_vocabulary import add_vocabulary
from outdraft.models.files.load import find_architecture, open_weights, read_json
from outdraft.models.networks.config import ModelConfig
from outdraft.nn.rope import RopeConfig, frequencies
from outdraft.options.errors import ModelLoadError
from outdraft.weights.safetensors import TensorStore

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")  # what is written here; more are read
_CURE = "use llama.cpp's convert_hf_to_gguf.py"
_ENDS = ("bos_id", "eos_ids")  # a GGUF file has more ends of a text: those whose text says so


def write_gguf(directory: Path, path: Path) -> None:
    """The model in `directory` as the file `path`.

    Raises:
        ModelLoadError: no `gguf` package, or a model that the format's common subset does not hold.
    """
    raw = read_json(directory / "config.json")
    architecture = find_architecture(raw)
    config = architecture.read(raw, strict=True)
    arch = next((name for name in ARCHITECTURES if FAMILIES[name].model_type == config.architecture), None)
    if arch is None or raw.get("quantization_config"):
        raise ModelLoadError(
            f"{directory}: model_type={raw.get('model_type')!r} cannot be written as GGUF here "
            f"(unquantized {', '.join(ARCHITECTURES)} can): {_CURE}"
        )
    try:
        gguf: Any = importlib.import_module("gguf")
    except ImportError as error:
        raise ModelLoadError("GGUF files are written by the gguf package: `pip install gguf`") from error
    writer = gguf.GGUFWriter(path, arch)
    _add_shape(writer, config)
    store = TensorStore(directory)
    names = [name for name in store if not name.endswith(architecture.ignored)]
    tensors = _tensors(store, names, FAMILIES[arch], config)
    tensors |= _add_rope(gguf, writer, config)
    add_vocabulary(writer, directory, raw, config.vocab_size)
    for name, (shape, kind, _) in tensors.items():
        size = prod(shape) * (4 if kind == "F32" else 2)
        writer.add_tensor_info(name, shape, np.dtype(np.float32), size, gguf.GGMLQuantizationType[kind])
    whole = (read() if kind != "F32" else read().float() for _, kind, read in tensors.values())
    write_file(writer, (tensor.contiguous().view(torch.uint8).numpy() for tensor in whole))
    _require_same(directory, path, config)


def write_file(writer: Any, tensors: Iterable[np.ndarray[Any, Any]]) -> None:
    """Write the file: the metadata that its writer holds, and the tensors one by one."""
    with closing(writer):
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in tensors:
            writer.write_tensor_data(tensor)
            del tensor  # before the next one is made


def _require_same(directory: Path, path: Path, config: ModelConfig) -> None:
    """Raise `ModelLoadError`, and leave no file, where the file is another model than the directory."""
    written = open_weights(path).config
    names = [one.name for one in fields(config) if one.name not in _ENDS]
    if other := [name for name in names if getattr(written, name) != getattr(config, name)]:
        path.unlink()
        raise ModelLoadError(
            f"{directory}: {', '.join(other)} of its config.json cannot be written as GGUF here ("
            f"{other[0]}={getattr(config, other[0])!r} would be read as {getattr(written, other[0])!r}): {_CURE}"
        )


Written = tuple[tuple[int, ...], str, Callable[[], Tensor]]  # shape, type, how to read it


def _tensors(store: TensorStore, names: list[str], family: GgufFamily, config: ModelConfig) -> dict[str, Written]:
    """Those of these names, by llama.cpp's."""
    heads = {"q_proj": config.num_heads, "k_proj": config.num_kv_heads} if family.is_permuted else {}

    def read(name: str) -> Tensor:
        tensor = store[name]
        part = name.split(".")[-2]
        if part in heads:
            return reorder_rows(tensor, heads[part])
        return tensor.float() + family.norm_offset if name.endswith("norm.weight") else tensor

    def kind(name: str) -> str:
        stored = store.dtype_name(name)
        return stored if len(store.shape(name)) == 2 and stored in ("BF16", "F16") else "F32"

    return {theirs_of(name, family): (store.shape(name), kind(name), partial(read, name)) for name in names}


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
    if config.logit_cap is not None:
        writer.add_final_logit_softcapping(config.logit_cap)
    if windows := {window for window in config.windows if window is not None}:
        writer.add_sliding_window(max(windows))
        writer.add_array(f"{writer.arch}.attention.sliding_window_pattern", [one is not None for one in config.windows])


def _add_rope(gguf: Any, writer: Any, config: ModelConfig) -> dict[str, Written]:
    """The rotary settings; Llama 3's slowed pairs are a tensor of divisors instead."""
    rope = config.rope
    assert rope is not None, "all of ARCHITECTURES have it"
    writer.add_rope_dimension_count(rope.dim)
    writer.add_rope_freq_base(rope.theta)
    for near in {one.theta for one in config.rope_kinds() if one != rope}:
        writer.add_float32(f"{writer.arch}.rope.freq_base_swa", near)
    if rope.kind == "llama3":
        plain = frequencies(RopeConfig(dim=rope.dim, theta=rope.theta))
        divisors = (plain / frequencies(rope)).float()
        return {"rope_freqs.weight": (tuple(divisors.shape), "F32", lambda: divisors)}
    if rope.kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope.kind))
        writer.add_rope_scaling_factor(rope.factor)
        writer.add_rope_scaling_orig_ctx_len(rope.original_max_len or config.max_len)
        if rope.kind == "yarn":
            writer.add_rope_scaling_yarn_beta_fast(rope.beta_fast)
            writer.add_rope_scaling_yarn_beta_slow(rope.beta_slow)
    return {}
