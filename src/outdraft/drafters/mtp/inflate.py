"""The MTP layer of a bigger target that computes the same (`models/remake/inflate.py`)."""

from dataclasses import replace
from pathlib import Path

import torch

from outdraft.drafters.mtp.net import MtpNet, load_mtp, save_mtp
from outdraft.drafters.shared.features.inflate import widen_layer, wider
from outdraft.drafters.shared.learning.inflate import widen
from outdraft.models.networks.base import Decoder
from outdraft.models.remake.inflate import inflate_decoder


@torch.no_grad()
def inflate(head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
    """Write to `out_dir` the network in `head_dir` for `target`, inflated by `width` and `depth`."""
    net = load_mtp(head_dir, target)
    layers = net.config.layers
    config = replace(net.config, layers=wider(layers, width), tap=depth)
    big = MtpNet(config, inflate_decoder(target, width=width, depth=depth), net.fc.weight.dtype)
    for name, parameter in big.named_parameters():
        small = net.get_parameter(name)
        wide = widen_layer(name, small, layers, width, states=2 if name == "fc.weight" else 1)
        if name == "norm.weight" and target.config.tie_embeddings:
            wide = widen(small, width) / width  # the head is the embedding, which is repeated and not divided
        parameter.copy_(wide)
    save_mtp(big, out_dir)
