"""Trained models: the text that they are known to write."""

import json
import struct

import numpy as np
import pytest
import torch
from models.real_models import data_folder, greedy
from safetensors.numpy import save_file

from outdraft.models.load import load_model

KNOWN = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a "
    "big, red ball. She wanted to play with it, but it was too high.\nLily's mom said, \"Lily, let's go to"
)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tinystories_writes_what_transformers_writes(dtype):
    transformers = pytest.importorskip("transformers")
    folder = data_folder("tinystories-656k")
    ours = load_model(folder, dtype=dtype)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).to(ours.embedding.dtype).eval()
    generator = torch.Generator().manual_seed(0)
    for case in range(20 if dtype == "float32" else 3):
        prompt = [1, *torch.randint(3, 2048, (case,), generator=generator).tolist()]
        with torch.no_grad():
            expected = theirs.generate(
                torch.tensor([prompt]), max_new_tokens=200, do_sample=False, eos_token_id=None, pad_token_id=0
            )
        assert greedy(ours, prompt, 200) == expected[0, len(prompt) :].tolist(), prompt


@pytest.fixture(scope="module")
def stories260k(tmp_path_factory):
    """The llama2.c checkpoint as a Hugging Face directory, and its vocabulary."""
    folder = data_folder("stories260k")
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
        "model_type": "llama", "vocab_size": vocab, "hidden_size": dim, "intermediate_size": inner,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "max_position_embeddings": max_len, "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "bos_token_id": 1,
        "eos_token_id": 2, "hidden_act": "silu",
    }  # fmt: skip
    out = tmp_path_factory.mktemp("stories260k")
    (out / "config.json").write_text(json.dumps(config))
    save_file(tensors, out / "model.safetensors")

    pieces, book, at = [], (folder / "tok512.bin").read_bytes(), 4
    for _ in range(vocab):
        _, length = struct.unpack_from("fi", book, at)
        pieces.append(book[at + 8 : at + 8 + length])
        at += 8 + length
    assert at == len(book)
    return out, pieces


def test_stories260k_writes_its_known_text(stories260k):
    folder, pieces = stories260k
    model = load_model(folder)
    ids = greedy(model, [model.config.bos_id], 199)
    text = b"".join(bytes.fromhex(p[3:5].decode()) if p.startswith(b"<0x") else p for p in map(pieces.__getitem__, ids))
    assert text.decode().strip().startswith(KNOWN)
    assert len(text.decode().strip()) == 460
