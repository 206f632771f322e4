"""Write a decoder as llama.cpp's converter would: its names, its order of rows, its metadata."""

import json
from pathlib import Path

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer

from outdraft.models.files.load import tensors_of
from outdraft.models.networks.base import Decoder

F32 = gguf.GGMLQuantizationType.F32


def reordered(rows: np.ndarray, heads: int) -> np.ndarray:
    """Channels half a head apart become neighbours, as llama.cpp turns them."""
    return rows.reshape(heads, 2, len(rows) // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def llama_cpp_tensors(decoder: Decoder) -> dict[str, np.ndarray]:
    """Our fused tensors, taken apart under llama.cpp's names."""
    c = decoder.config
    ours = {name: tensor.detach().float().numpy() for name, tensor in tensors_of(decoder).items()}
    made = {"token_embd.weight": ours["embedding"], "output_norm.weight": ours["final_norm.weight"]}
    if not c.tie_embeddings:
        made["output.weight"] = ours["lm_head.weight"]
    q, kv = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    cuts = {"qkv": ([q, q + kv], ("attn_q", "attn_k", "attn_v")), "up": ([c.intermediate_size], ("ffn_gate", "ffn_up"))}
    plain = {"out": "attn_output", "down": "ffn_down", "mlp_norm": "ffn_norm", "attn_norm": "attn_norm"}
    plain |= {"q_norm": "attn_q_norm", "k_norm": "attn_k_norm"}
    for name, array in ours.items():
        if not name.startswith("layers."):
            continue
        _, layer, part, kind = name.split(".")
        if part not in cuts:
            made[f"blk.{layer}.{plain[part]}.{kind}"] = array
            continue
        for piece, theirs in zip(np.split(array, cuts[part][0]), cuts[part][1], strict=True):
            if c.architecture == "llama" and theirs in ("attn_q", "attn_k"):
                piece = reordered(piece, c.num_heads if theirs == "attn_q" else c.num_kv_heads)
            made[f"blk.{layer}.{theirs}.{kind}"] = piece
    return made


def write_gguf(
    decoder: Decoder,
    path: Path,
    kind=F32,
    tokenizer: Tokenizer | None = None,
    metadata=lambda writer: None,
    blocks=None,
    split_max_tensors: int = 0,
    small_first_shard: bool = False,
    **extra,
) -> Path:
    """A GGUF file with matrices of type `kind`, or of `kind(name)`, the rest in float32; `extra`: tensors to add;
    `metadata`: is given the writer to add more; `blocks`: name -> bytes and their type, in place of a matrix.
    `split_max_tensors`: of a part, if it is split."""
    c = decoder.config
    parts = {"split_max_tensors": split_max_tensors, "small_first_shard": small_first_shard}
    writer = gguf.GGUFWriter(path, c.architecture, **parts)
    writer.add_context_length(c.max_len)
    writer.add_embedding_length(c.hidden_size)
    writer.add_block_count(c.num_layers)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_heads)
    writer.add_head_count_kv(c.num_kv_heads)
    writer.add_key_length(c.head_dim)
    writer.add_value_length(c.head_dim)
    writer.add_rope_freq_base(c.rope.theta)
    writer.add_rope_dimension_count(c.head_dim)
    writer.add_layer_norm_rms_eps(c.norm_eps)
    if c.rope.kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(c.rope.kind))
        writer.add_rope_scaling_factor(c.rope.factor)
        writer.add_rope_scaling_orig_ctx_len(c.rope.original_max_len)
    if tokenizer is not None:
        add_tokenizer(writer, tokenizer)
    metadata(writer)
    for name, array in (llama_cpp_tensors(decoder) | extra).items():
        if blocks and name in blocks:
            writer.add_tensor(name, blocks[name][0], raw_dtype=blocks[name][1])
            continue
        own = kind(name) if callable(kind) else kind
        matrix = array.ndim == 2 and own != F32
        data = gguf.quants.quantize(np.ascontiguousarray(array), own) if matrix else np.ascontiguousarray(array)
        writer.add_tensor(name, data, raw_dtype=own if matrix else None)
    finish(writer)
    return path


def write_tensor(path: Path, name: str, data: np.ndarray, kind=None) -> Path:
    """A file with one tensor and no metadata but the architecture."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor(name, data, raw_dtype=kind)
    finish(writer)
    return path


def finish(writer: gguf.GGUFWriter) -> None:
    """Write what was added."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Tokenizer, pre: str = "gpt-2") -> None:
    """The vocabulary and merges of a byte-level BPE; special tokens are its control tokens, the first starts a text."""
    described = json.loads(tokenizer.to_str())
    special = {token["id"] for token in described["added_tokens"] if token["special"]}
    names = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(names)
    writer.add_token_types([3 if i in special else 1 for i in range(len(names))])
    merges = described["model"]["merges"]
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in merges])
    writer.add_bos_token_id(min(special))
    writer.add_eos_token_id(min(special))
    writer.add_add_bos_token(True)


def as_tensor(array: np.ndarray) -> torch.Tensor:
    """For comparisons."""
    return torch.from_numpy(np.ascontiguousarray(array))
