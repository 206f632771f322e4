"""Tiny EAGLE-1 and EAGLE-3 networks and what they say while they draft, by the authors' own modules: run once.

    python tests/peers/eagle_by_its_authors.py CHECKOUT_OF_SafeAILab/EAGLE tests/drafters/published

Writes eagle1/ and eagle3/: config.json and pytorch_model.bin as the authors' trainer does, and said.safetensors: states
and ids of a text, and the logits of the pass over it and of each step that follows on the network's own outputs.
"""

import ast
import json
import math
import sys
import types
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

HIDDEN, VOCAB, DRAFT, ROWS, STEPS = 16, 23, 11, 6, 3
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "hidden_act": "silu",
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "pretraining_tp": 1,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "pad_token_id": 0,
}


def authors_module(checkout: Path, name: str) -> types.ModuleType:
    """The classes and functions of eagle/model/NAME.py, without what it imports from the rest of their repository."""
    tree = ast.parse((checkout / f"eagle/model/{name}.py").read_text())
    tree.body = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    module = types.ModuleType(name)
    module.__dict__.update(vars(math), torch=torch, nn=nn, F=nn.functional, math=math, ACT2FN={"silu": nn.SiLU()})
    module.__dict__.update(
        {word: getattr(__import__("typing"), word) for word in ("List", "Optional", "Tuple", "Union")}
    )
    exec(compile(tree, name, "exec"), module.__dict__)
    return module


@torch.no_grad()
def drafting(model: nn.Module, states: torch.Tensor, ids: torch.Tensor, head: Any) -> list[torch.Tensor]:
    """Logits of the last row over the text, and then of each step: the best token so far, and the state before it."""
    hidden, cache = model(states[None], input_ids=ids[None, 1:], use_cache=True)
    said, target_ids = [], []
    for step in range(STEPS):
        said.append(head(hidden[:, -1])[0])
        target_ids.append(int(said[-1].argmax()))
        token = torch.tensor([[target_ids[-1]]])
        place = torch.tensor([[ROWS + step]])
        hidden, cache = model(
            hidden[:, -1:], input_ids=token, past_key_values=cache, position_ids=place, use_cache=True
        )
    said.append(head(hidden[:, -1])[0])
    return said


def write(model: nn.Module, told: dict[str, Any], width: int, head: Any, out: Path, more: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        scale = 0.2 if parameter.dim() == 1 else parameter.shape[-1] ** -0.5
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * scale + (parameter.dim() == 1))
    states, ids = torch.randn(ROWS, width, generator=generator), torch.randint(VOCAB, (ROWS + 1,), generator=generator)
    said = drafting(model.eval(), states, ids, head)
    out.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor for name, tensor in model.state_dict().items() if not name.endswith(("cached", "inv_freq"))}
    torch.save(tensors, out / "pytorch_model.bin")
    (out / "config.json").write_text(json.dumps(told, indent=2) + "\n")
    save_file({"states": states, "ids": ids, "logits": torch.stack(said), **more}, out / "said.safetensors")


def main(checkout: Path, out: Path) -> None:
    config = types.SimpleNamespace(**SHAPE)
    head = torch.randn(VOCAB, HIDDEN, generator=torch.Generator().manual_seed(2))
    first = authors_module(checkout, "cnets1").Model(config, bias=True)
    told = {**SHAPE, "model_type": "llama", "architectures": ["LlamaForCausalLM"], "bias": True}
    write(first, told, HIDDEN, lambda hidden: hidden @ head.t(), out / "eagle1", {"head": head})
    third = types.SimpleNamespace(**SHAPE, draft_vocab_size=DRAFT)
    model = authors_module(checkout, "cnets").Model(third)
    kept = torch.arange(DRAFT) * 2
    model.d2t, model.t2d = kept - torch.arange(DRAFT), torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, kept, True)

    def third_head(hidden: torch.Tensor) -> torch.Tensor:
        whole = torch.full((len(hidden), VOCAB), -math.inf)
        whole[:, kept] = model.lm_head(model.norm(hidden))
        return whole

    told = {**told, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": DRAFT, "bias": False}
    write(model, told, 3 * HIDDEN, third_head, out / "eagle3", {})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
