"""A llama2.c checkpoint and its vocabulary as a Hugging Face directory."""

import json
import struct
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers


def write_stories260k(folder: Path, out: Path) -> list[bytes]:
    """Weights, config and tokenizer from `folder` to `out`; returns what each token spells."""
    raw = (folder / "stories260K.bin").read_bytes()
    dim, inner, layers, heads, kv_heads, vocab, max_len = struct.unpack("7i", raw[:28])
    data = np.frombuffer(raw, dtype=np.float32, offset=28)
    width = dim // heads
    kv_dim = kv_heads * width
    place = 0

    def take(*shape):
        nonlocal place
        size = int(np.prod(shape))
        place += size
        return data[place - size : place].reshape(shape)

    def half_split(rows):  # pairs (2i, 2i + 1) of a head become (i, i + width / 2)
        return rows.reshape(-1, width // 2, 2, dim).transpose(0, 2, 1, 3).reshape(-1, dim)

    table = take(vocab, dim)
    stacks = {
        "input_layernorm": take(layers, dim),
        "self_attn.q_proj": take(layers, dim, dim),
        "self_attn.k_proj": take(layers, kv_dim, dim),
        "self_attn.v_proj": take(layers, kv_dim, dim),
        "self_attn.o_proj": take(layers, dim, dim),
        "post_attention_layernorm": take(layers, dim),
        "mlp.gate_proj": take(layers, inner, dim),
        "mlp.down_proj": take(layers, dim, inner),
        "mlp.up_proj": take(layers, inner, dim),
    }
    tensors = {"model.embed_tokens.weight": table, "model.norm.weight": take(dim)}
    for name, stack in stacks.items():
        for i, rows in enumerate(stack):
            turned = name.endswith(("q_proj", "k_proj"))
            tensors[f"model.layers.{i}.{name}.weight"] = np.ascontiguousarray(half_split(rows) if turned else rows)
    config = {
        "model_type": "llama",
        "vocab_size": vocab,
        "hidden_size": dim,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": max_len,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
    }
    (out / "config.json").write_text(json.dumps(config))
    save_file(tensors, out / "model.safetensors")

    pieces, book, at = [], (folder / "tok512.bin").read_bytes(), 4
    for _ in range(vocab):
        _, length = struct.unpack_from("fi", book, at)
        pieces.append(book[at + 8 : at + 8 + length])
        at += 8 + length
    assert at == len(book)
    return pieces


def write_tokenizer(folder: Path, out: Path) -> None:
    """`tok512.bin` as a tokenizer.json: a pair is merged the sooner, the higher its piece scores."""
    book, at, pieces = (folder / "tok512.bin").read_bytes(), 4, []
    while at < len(book):
        score, length = struct.unpack_from("fi", book, at)
        pieces.append((book[at + 8 : at + 8 + length].decode(), score))
        at += 8 + length
    specials = ["<unk>", "<s>", "</s>"]
    names = specials + [piece.replace(" ", "\u2581") for piece, _ in pieces[3:]]
    known = {name: i for i, name in enumerate(names)}
    order = sorted(range(3, len(names)), key=lambda i: -pieces[i][1])
    merges = [
        (names[i][:cut], names[i][cut:])
        for i in order
        for cut in range(1, len(names[i]))
        if not names[i].startswith("<0x") and names[i][:cut] in known and names[i][cut:] in known
    ]
    tokenizer = Tokenizer(models.BPE(vocab=known, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in specials])
    tokenizer.save(str(out / "tokenizer.json"))
    (out / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True})
    )
