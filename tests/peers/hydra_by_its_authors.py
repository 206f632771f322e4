"""Tiny Hydra heads and what they say, by the authors' own module: run once, where that can be imported.

    python tests/peers/hydra_by_its_authors.py CHECKOUT_OF_zankner/Hydra tests/drafters/published

Writes hydra/ and hydra_prefix/: hydra_lm_head.pt and config.json as the authors' trainer does, and said.safetensors:
states, ids, the table of embeddings, and logits. The prefix layer is transformers' `LlamaModel`, of which theirs is a
copy with another cache.
"""

import json
import sys
import types
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from torch import nn

HIDDEN, VOCAB, HEADS, ROWS = 16, 23, 3, 9


def authors_module(checkout: Path, name: str) -> types.ModuleType:
    """One file of hydra/model/hydra_heads, with transformers' `LlamaModel` for their own."""
    stand_in = types.ModuleType("hydra.model.modeling_llama_kv")
    stand_in.LlamaModel = transformers.LlamaModel
    for parent in ("hydra", "hydra.model"):
        sys.modules[parent] = types.ModuleType(parent)
    sys.modules["hydra.model.modeling_llama_kv"] = stand_in
    module = types.ModuleType(name)
    exec(compile((checkout / f"hydra/model/hydra_heads/{name}.py").read_text(), name, "exec"), module.__dict__)
    return module


def write(kind: type[nn.Module], arch: str, layers: int, out: Path, **more: float) -> None:
    torch.manual_seed(0)
    shape = transformers.LlamaConfig(
        hidden_size=HIDDEN,
        vocab_size=VOCAB,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=24,
        num_hidden_layers=2,
        rope_theta=10000.0,
        rms_norm_eps=1e-6,
    )
    embedding = nn.Embedding(VOCAB, HIDDEN)
    heads = kind(layers, HEADS, True, embedding, shape, **more).eval()
    for parameter in heads.parameters():
        nn.init.normal_(parameter, std=0.3)
    ids, states = torch.randint(0, VOCAB, (1, ROWS)), torch.randn(1, ROWS, HIDDEN)
    with torch.no_grad():
        logits, _ = heads(states, ids)
    out.mkdir(parents=True, exist_ok=True)
    torch.save(heads.state_dict(), out / "hydra_lm_head.pt")
    told = {
        "hydra_num_heads": HEADS,
        "hydra_num_layers": layers,
        "hydra_head_arch": arch,
        "grounded_heads": True,
        "hidden_state_offset": 0,
        "base_model_name_or_path": "a/target",
    }
    (out / "config.json").write_text(json.dumps(told, indent=2) + "\n")
    said = {"states": states[0], "ids": ids[0], "table": embedding.weight.detach(), "logits": torch.stack(logits)[:, 0]}
    save_file({name: tensor.contiguous() for name, tensor in said.items()}, out / "said.safetensors")


if __name__ == "__main__":
    where, to = Path(sys.argv[1]), Path(sys.argv[2])
    write(authors_module(where, "mlp_head").HydraMLP, "mlp", 1, to / "hydra")
    write(authors_module(where, "prefix_mlp_head").HydraPrefixMLP, "prefix-mlp", 2, to / "hydra_prefix")
