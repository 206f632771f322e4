"""Tiny models of every family as GGUF files, by llama.cpp's own converter: run once, where that can be imported.

    python tests/peers/gguf_by_llama_cpp.py CHECKOUT_OF_ggml-org/llama.cpp tests/models/converted

Writes NAME.gguf for each family, and logits.safetensors: what transformers says of 48 ids, [48, V] each. The vocabulary
is a stand-in: a tiny model has no tokenizer that the converter would know.
"""

import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file

VOCAB, LENGTH = 64, 48
SMALL = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=32,
    num_hidden_layers=4,
    num_attention_heads=2,
    num_key_value_heads=1,
    max_position_embeddings=128,
    pad_token_id=None,
    bos_token_id=1,
    eos_token_id=2,
)
PLAIN = {"rope_type": "default", "rope_theta": 1e4}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "original_max_position_embeddings": 64,
    "short_factor": [1 + i / 9 for i in range(8)],
    "long_factor": [2.0 + i for i in range(8)],
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}
MISTRAL = {"original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.4}
LINEAR = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}
GEMMA = dict(head_dim=16, sliding_window=9, query_pre_attn_scalar=16)
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "gemma2": ("gemma2", GEMMA | dict(attn_logit_softcapping=3.0, final_logit_softcapping=3.0)),
    "gemma3": (
        "gemma3_text",
        GEMMA
        | dict(
            num_hidden_layers=7,
            rope_parameters={"full_attention": LINEAR, "sliding_attention": PLAIN | {"rope_theta": 300.0}},
        ),
    ),
    "phi3": (
        "phi3",
        dict(
            sliding_window=9,
            original_max_position_embeddings=128,
            rope_parameters=PLAIN | {"partial_rotary_factor": 0.5},
        ),
    ),
    "phi3-long": ("phi3", dict(sliding_window=None, original_max_position_embeddings=64, rope_parameters=LONG)),
    "mistral3": (
        "ministral3",
        dict(head_dim=16, rope_parameters=YARN | MISTRAL | {"beta_fast": 32.0, "beta_slow": 1.0}),
    ),
    "granite": (
        "granite",
        dict(embedding_multiplier=3.0, attention_multiplier=0.3, residual_multiplier=0.6, logits_scaling=1.7),
    ),
    "olmo2": ("olmo2", {}),
    "olmo3": ("olmo3", dict(sliding_window=9, rope_parameters={"full_attention": YARN, "sliding_attention": PLAIN})),
    "smollm3": ("smollm3", dict(num_hidden_layers=5)),
    "glm4": ("glm4", dict(head_dim=16)),
    "starcoder2": ("starcoder2", dict(sliding_window=None)),
    "cohere2": ("cohere2", dict(sliding_window=9, logit_scale=0.8)),
    "exaone4": ("exaone4", dict(sliding_window=9)),
}


@torch.no_grad()
def make(kind: str, options: dict[str, Any], folder: Path) -> torch.Tensor:
    """A model with matrices that float16 holds exactly, saved in `folder`; its logits."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **(SMALL | options))
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * (0.2 if parameter.dim() == 2 else 0.1))
        if parameter.dim() == 2:
            parameter.copy_(parameter.half().float())
    model.save_pretrained(folder)
    told = json.loads((folder / "config.json").read_text())
    if kind == "cohere2":
        told["rotary_pct"] = 1.0  # the converter wants it, published files have it
    (folder / "config.json").write_text(json.dumps(told))
    words = {f"t{i}": i for i in range(VOCAB)}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": words}, "added_tokens": []}))
    ids = torch.randint(VOCAB, (1, LENGTH), generator=torch.Generator().manual_seed(1))
    return model(ids).logits[0].contiguous()


def add_words(self: Any) -> None:
    """In place of the converter's reading of a tokenizer."""
    writer = self.gguf_writer
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"t{i}".encode() for i in range(VOCAB)])
    writer.add_token_types([1] * VOCAB)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def main(checkout: Path, out: Path) -> None:
    sys.path[:0] = [str(checkout), str(checkout / "gguf-py")]
    conversion, gguf = importlib.import_module("conversion"), importlib.import_module("gguf")
    logits = {}
    for name, (kind, options) in FAMILIES.items():
        with tempfile.TemporaryDirectory() as folder:
            logits[name] = make(kind, options, Path(folder))
            told = json.loads((Path(folder) / "config.json").read_text())
            converter = conversion.get_model_class(told["architectures"][0])
            for one in (converter, getattr(converter, "Ministral3Model", converter)):
                one.set_vocab = add_words
            converter(Path(folder), gguf.LlamaFileType.MOSTLY_F16, out / f"{name}.gguf").write()
    save_file(logits, out / "logits.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
