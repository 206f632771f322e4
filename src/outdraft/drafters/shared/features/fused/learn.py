"""What learners of networks on several states share: their shape, how they begin, how they grow with their target."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from outdraft.drafters.shared.features.fused.files import FusedKind
from outdraft.drafters.shared.features.fused.net import FusedConfig, FusedNet
from outdraft.drafters.shared.features.fused.store import load_fused, save_fused
from outdraft.drafters.shared.features.learn import LayerLearning, begin, target_taps
from outdraft.drafters.shared.learning.inflate import layers_after, widen, widen_layer, wider
from outdraft.drafters.shared.learning.vocab import first_vocab
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import facts_of
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedLearning(LayerLearning):
    """The network's shape. A size of 0 is the target's own."""

    taps: tuple[int, ...] = ()  # the states after so many layers; (): 2, half, and three before the last
    num_layers: int = 1
    qk_norm: bool = False  # norms on queries and keys, as in Qwen3
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False  # a norm for each tap; with norm_output EAGLE-3.1

    def __post_init__(self) -> None:
        LayerLearning.__post_init__(self)
        check_range(self, "num_layers", least=1, most=32)
        if self.norm_before_fc and self.fc_norm:
            raise ConfigError("norm_before_fc=True, fc_norm=True: they exclude each other, take one")

    def config(self, target: Decoder, **more: Any) -> FusedConfig:
        """Of a new network for this target. `more`: other fields."""
        known = target.config
        vocab = self.vocab(target)
        return FusedConfig(
            layers=self.layers(known, num_layers=self.num_layers, qk_norm=self.qk_norm),
            taps=target_taps(self.taps, known.num_layers),
            draft_vocab_size=known.vocab_size if vocab is None else len(vocab),
            target_hidden_size=known.hidden_size,
            norm_before_residual=self.norm_before_residual,
            norm_before_fc=self.norm_before_fc,
            fc_norm=self.fc_norm,
            **more,
        )


@torch.no_grad()
def new_fused(config: FusedConfig, target: Decoder, seed: int) -> FusedNet:
    """A fresh network, whose last norm, head and embeddings of its own begin as the target's."""
    size = config.draft_vocab_size
    net = FusedNet(config, torch.float32, target.device, first_vocab(size, config.layers.vocab_size, target.device))
    begin(net, seed)
    net.norm.weight.copy_(target.final_norm.weight)  # type: ignore[arg-type]
    assert net.lm_head is not None
    net.lm_head.weight.copy_(target.head_matrix()[:size])
    if net.embedding is not None:
        ids = torch.arange(len(net.embedding), device=target.device)
        net.embedding.copy_(target.embed(ids, torch.zeros_like(ids)))
    return net


def trained_before(kind: FusedKind, directory: Path, target: Decoder) -> FusedNet:
    """A network that learns on, from here or elsewhere; its embeddings learn if its file says so."""
    net = load_fused(kind, directory, facts_of(target), torch.float32, lent=target)
    net.train().requires_grad_(True)
    if net.embedding is not None:
        net.embedding.requires_grad_(net.config.train_embedding)
    return net


@torch.no_grad()
def inflate_fused(kind: FusedKind, head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
    """Write to `out_dir` the network in `head_dir` for `target`, inflated by `width` and `depth`."""
    net = load_fused(kind, head_dir, facts_of(target))
    old = net.config
    config = replace(
        old,
        layers=wider(old.layers, width),
        taps=tuple(layers_after(tap, target.config.num_layers, depth) for tap in old.taps),
        target_hidden_size=old.target_hidden_size * width,
    )
    big, count = FusedNet(config, net.dtype, net.norm.weight.device, net.vocab), len(old.taps)
    for name, parameter in big.named_parameters():
        small = net.get_parameter(name)
        if name == "embedding":
            parameter.copy_(small.repeat(1, width))
        elif name == "lm_head.weight":
            parameter.copy_(small.repeat(1, width) / width)
        elif name in ("input_norm.weight", "mask_hidden"):
            parameter.copy_(torch.cat([part.repeat(width) for part in small.flatten().chunk(count)]).view_as(parameter))
        elif name == "fc.weight":
            parameter.copy_(widen(small, width, count))
        else:
            parameter.copy_(widen_layer(name, small, old.layers, width, states=2 if name == "first.qkv.weight" else 1))
    save_fused(kind, big, out_dir)
