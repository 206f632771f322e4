"""Write a block network's directory as llama.cpp's converter would: its names, its metadata (`blocks_by_llama_cpp.py`
in `tests/peers` runs the converter itself)."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from outdraft.weights.safetensors import read_tensors

TOP = {"fc": "fc", "hidden_norm": "enc.output_norm", "norm": "output_norm", "embed_tokens": "token_embd"}
TOP |= {"lm_head": "output", "markov_head.markov_w1": "markov_w1", "markov_head.markov_w2": "markov_w2"}
TOP |= {"confidence_head.proj": "conf_proj", "candidate_selector.hidden_projection": "selector_hidden"}
TOP |= {f"candidate_selector.{part}_codebook": f"selector_{part}" for part in ("predecessor", "successor")}
LAYER = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
LAYER |= {f"self_attn.{part}_proj": f"attn_{part}" for part in "qkv"} | {"self_attn.o_proj": "attn_output"}
LAYER |= {f"self_attn.{part}_norm": f"attn_{part}_norm" for part in "qk"}
LAYER |= {f"mlp.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")}
LAYER |= {"attention_conv.base_kernel": "attn_conv_base", "attention_conv.kernel_projection": "attn_conv_proj"}
LAYER |= {"self_attn.attention_sink_bias": "attn_sinks.weight"}
LAYER |= {"mlp_conv.base_kernel": "ffn_conv_base", "mlp_conv.kernel_projection": "ffn_conv_proj"}
MARK = {"conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"}


def theirs(name: str) -> str:
    """Hugging Face's tensor name to llama.cpp's."""
    stem, suffix = (
        (name.removesuffix(end), end) if (end := f".{name.rpartition('.')[2]}") in (".weight", ".bias") else (name, "")
    )
    if not stem.startswith("layers."):
        return TOP[stem] + (suffix or ".weight")
    _, layer, part = stem.split(".", 2)
    return f"blk.{layer}.{LAYER[part]}{suffix}"


def write_blocks(place: Path, path: Path, *, kind: str = "F32", arch: str = "dflash", **metadata: Any) -> Path:
    """The directory `place`, in either layout, as the file `path`. `kind`: of matrices whose rows divide into blocks of
    it; `metadata`: more keys under the architecture's name, dots as two underscores."""
    told = json.loads((place / "config.json").read_text())
    told = {**told, **told.get("transformer_layer_config", {}), **told.get("dflash_config", {})}
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(told["max_position_embeddings"])
    writer.add_embedding_length(told["hidden_size"])
    writer.add_block_count(told["num_hidden_layers"])
    writer.add_feed_forward_length(told["intermediate_size"])
    writer.add_head_count(told["num_attention_heads"])
    writer.add_head_count_kv(told["num_key_value_heads"])
    writer.add_key_length(told["head_dim"])
    writer.add_value_length(told["head_dim"])
    writer.add_layer_norm_rms_eps(told["rms_norm_eps"])
    writer.add_rope_freq_base(told["rope_parameters"]["rope_theta"])
    writer.add_uint32("tokenizer.ggml.mask_token_id", told["mask_token_id"])
    writer.add_token_list([f"t{i}" for i in range(told["vocab_size"])])
    writer.add_uint32(f"{arch}.block_size", told["block_size"])
    taps = [n + 1 for n in told["target_layer_ids"]] if "target_layer_ids" in told else None
    if taps := taps or told.get("aux_hidden_state_layer_ids"):
        writer.add_array(f"{arch}.target_layers", taps)
    if "sample_from_anchor" in told and "markov_rank" in told:
        writer.add_bool(f"{arch}.sample_from_anchor", told["sample_from_anchor"])
        writer.add_bool(f"{arch}.has_confidence_head", True)
    if told.get("use_sliding_window"):
        writer.add_sliding_window(told["sliding_window"])
        slides = [one == "sliding_attention" for one in told["layer_types"]]
        writer.add_array(f"{arch}.attention.sliding_window_pattern", slides)
    if "is_causal" in told:
        writer.add_causal_attention(told["is_causal"])
    for key, name in {"output_multiplier": "logit_scale", "input_embedding_scale": "embedding_scale"}.items():
        if key in told:
            writer.add_float32(f"{arch}.{name}", told[key])
    if "final_logit_softcapping" in told:
        writer.add_final_logit_softcapping(told["final_logit_softcapping"])
    for key in MARK & told.keys():
        writer.add_uint32(f"{arch}.{key}", told[key])
    for key, value in metadata.items():
        writer.add_key_value(f"{arch}.{key.replace('__', '.')}", value, gguf.GGUFValueType.get_type(value))
    wanted = gguf.GGMLQuantizationType[kind]
    for name, tensor in read_tensors(place / "model.safetensors").items():
        if name == "t2d":
            continue
        if name == "d2t":
            ids = tensor.long().numpy() + np.arange(len(tensor))
            writer.add_tensor("d2t", ids, raw_dtype=gguf.GGMLQuantizationType.I64)
            continue
        array, own = tensor.float().numpy(), kind != "F32" and tensor.dim() == 2 and tensor.shape[1] % 32 == 0
        data = gguf.quants.quantize(array, wanted) if own else array
        writer.add_tensor(theirs(name), np.ascontiguousarray(data), raw_dtype=wanted if own else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
