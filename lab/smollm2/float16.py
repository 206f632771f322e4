"""What float16 weights lose where they are computed in bfloat16, and by which rounding (docs/quantization.md).

    python -m lab.smollm2.float16 MODEL TEXT [TEXT ...]

MODEL's weights are rounded to float16, the truth here, whose distribution float32 arithmetic gives. Beside it: weights
or the inputs of linear maps in other formats, each alone, and the native kernels. 500 tokens of each text.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from outdraft.models.files.load import load_model, save_model
from outdraft.models.files.load_codec import load_codec
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.divergence import compare_distributions
from outdraft.models.networks.network import Network
from outdraft.models.target.open_network import load_network
from outdraft.nn.linear import Linear, LinearMap
from outdraft.weights.hub import resolve

FORMATS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
WINDOW, EACH = 250, 500  # tokens


@torch.no_grad()
def computed(place: Path, weights: str, inputs: str) -> Decoder:
    """The model in float32, its matrices rounded to one format and what they multiply to another."""
    decoder = load_model(place, "float32")
    for module in decoder.modules():
        if isinstance(module, Linear):
            module.unpack()
            module.weight.copy_(module.weight.to(FORMATS[weights]))
        if isinstance(module, LinearMap):
            module.register_forward_pre_hook(lambda _, given: (given[0].to(FORMATS[inputs]).float(), *given[1:]))
    return decoder


def main(model: str, *texts: str) -> None:
    """A line for each way to compute."""
    place = Path(tempfile.mkdtemp())
    save_model(load_model(resolve(model), "float32"), place, torch.float16)
    codec: Any = load_codec(resolve(model))
    ids = [torch.tensor(codec.encode(Path(text).read_text())[:EACH]) for text in texts]
    windows = torch.cat(ids).view(-1, WINDOW)
    truth = load_model(place, "float32")
    matrices = [one.weight.half() for one in truth.modules() if isinstance(one, nn.Module) and isinstance(one, Linear)]
    changed = sum(int((one.bfloat16().float() != one.float()).sum()) for one in matrices)
    total = sum(one.numel() for one in matrices)
    sys.stdout.write(f"{100 * changed / total:.1f} % of {total} weights are no numbers of bfloat16\n")
    ways: dict[str, Network] = {"native kernels, bfloat16": load_network(place)}
    for way in ("bfloat16 float32", "float16 bfloat16", "bfloat16 bfloat16", "float16 float16"):
        ways[f"weights and inputs {way}"] = computed(place, *way.split())
    for name, network in ways.items():
        found = compare_distributions(truth, network, windows)
        sys.stdout.write(f"{name}: KL {found.kl:.6f}, top 1 {100 * found.top1:.2f} %, {found.num_tokens} positions\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
