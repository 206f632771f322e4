"""What computing a float16 checkpoint in bfloat16 changes: the figures of docs/files_of_others.md.

    python -m lab.zoo.float16 [MODEL]

The zoo is stored in bfloat16, whose numbers float16 has too. So the gain of each norm is first folded into the matrix
behind it: the same function, whose products fill the eleven bits of float16.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outdraft import zoo
from outdraft.cache.static import StaticCache
from outdraft.codecs.text import TextCodec
from outdraft.models.files.load import load_model, save_model
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.network import Network
from outdraft.models.target.open_network import load_network
from outdraft.nn.cached import CachedContext
from outdraft.nn.segment import Segment
from outdraft.weights.hub import resolve


@torch.no_grad()
def fold_gains(decoder: Decoder) -> Decoder:
    """Norms of gain 1, and matrices that have the gains instead."""
    for layer in decoder.layers:
        pairs: Any = ((layer.attn_norm, layer.qkv), (layer.mlp_norm, layer.up))
        for norm, linear in pairs:
            linear.unpack()
            linear.weight.mul_(norm.weight)
            norm.weight.fill_(1)
    return decoder


@torch.inference_mode()
def logits_of(network: Network, ids: Tensor) -> Tensor:
    """ids [T] -> logits [T, V] float32, read from an empty past."""
    config, count = network.config, len(ids)
    cache = StaticCache(config.num_layers, config.num_kv_heads, config.head_dim, network.dtype, network.device, count)
    cache.add(0)
    cache.reserve(0, count)
    context = CachedContext(cache, [Segment(seq=0, start=0, stop=count, base=0, bulk=count)])
    places = torch.arange(count)
    return network.logits(network.run(network.embed(ids, places), places, context).hidden).float()


def main(model: str) -> None:
    """Print how many numbers change, and by how much the logits of held-out texts do."""
    place = Path(tempfile.mkdtemp())
    save_model(fold_gains(load_model(resolve(model), "float32")), place, torch.float16)
    stored = [one for one in load_model(place).layers.parameters() if one.dim() > 1]
    changed = sum(int((one.bfloat16().float() != one.float()).sum()) for one in stored)
    total = sum(one.numel() for one in stored)
    half, brain = load_network(place, "float16"), load_network(place)
    codec = TextCodec.load(resolve(model))
    texts = [torch.tensor(codec.encode(text)) for text in zoo.heldout_prompts().values()]
    changes, same, spread = [], [], []
    for ids in texts:
        one, other = logits_of(half, ids), logits_of(brain, ids)
        changes.append((one - other).abs().flatten())
        same.append((one.argmax(1) == other.argmax(1)).float())
        spread.append(one.std(1))
    change: Tensor = torch.cat(changes)
    sys.stdout.write(
        f"{100 * changed / total:.1f} % of {total} numbers of the layers' matrices are rounded; {half.kernels} against "
        f"{brain.kernels}\n"
    )
    sys.stdout.write(
        f"logits of {len(torch.cat(same))} positions: largest change {change.max():.3f}, mean {change.mean():.4f}\n"
    )
    sys.stdout.write(f"standard deviation of a position's logits {torch.cat(spread).mean():.2f}\n")
    sys.stdout.write(f"the same best token at {100 * torch.cat(same).mean():.2f} % of the positions\n")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["zoo:target"])
