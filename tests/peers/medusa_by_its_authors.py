"""Tiny Medusa heads and what they say, by the authors' own module: run once, where that can be imported.

    python tests/peers/medusa_by_its_authors.py CHECKOUT_OF_FasterDecoding/Medusa tests/drafters/published/medusa

Writes medusa_lm_head.pt and config.json as the authors' trainer does, and said.safetensors: states and logits. Only
their class of residual blocks is taken from the checkout, because the module around it imports a model hub.
"""

import ast
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

HIDDEN, VOCAB, HEADS, LAYERS = 16, 23, 3, 2


def authors_block(checkout: Path) -> type[nn.Module]:
    """The class `ResBlock` of medusa/model/medusa_model.py."""
    tree = ast.parse((checkout / "medusa/model/medusa_model.py").read_text())
    tree.body = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "ResBlock"]
    names = {"nn": nn, "torch": torch}
    exec(compile(tree, "medusa_model.py", "exec"), names)
    return names["ResBlock"]


def main(checkout: Path, out: Path) -> None:
    torch.manual_seed(0)
    block = authors_block(checkout)
    heads = nn.ModuleList(
        nn.Sequential(*(block(HIDDEN) for _ in range(LAYERS)), nn.Linear(HIDDEN, VOCAB, bias=False))
        for _ in range(HEADS)
    )
    for parameter in heads.parameters():
        nn.init.normal_(parameter, std=0.3)
    states = torch.randn(5, HIDDEN)
    out.mkdir(parents=True, exist_ok=True)
    torch.save(heads.state_dict(), out / "medusa_lm_head.pt")
    told = {"base_model_name_or_path": "a/target", "medusa_num_heads": 2, "medusa_num_layers": 1}  # as published: less
    (out / "config.json").write_text(json.dumps(told, indent=2) + "\n")
    with torch.no_grad():
        said = torch.stack([head(states) for head in heads])
    save_file({"states": states, "logits": said}, out / "said.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
