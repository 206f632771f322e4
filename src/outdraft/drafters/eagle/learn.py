"""Train EAGLE's network on a frozen target, on its own outputs too (training-time test).

Li et al., "EAGLE-3", 2025, https://arxiv.org/abs/2503.01840. How it is unrolled: `shared/features/learn.py`.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from outdraft.drafters.eagle.net import MODEL_TYPE, EagleConfig, EagleNet, load_eagle, save_eagle
from outdraft.drafters.shared.features.learn import LayerLearning, begin, falling, learn_features, target_taps
from outdraft.drafters.shared.learning.inflate import layers_after, widen_layer
from outdraft.models.networks.base import Decoder
from outdraft.models.remake.inflate import inflate_decoder
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class EagleLearning(LayerLearning):
    """The network's shape, and how deep it is unrolled. A size of 0 is the target's own."""

    taps: tuple[int, ...] = ()  # the states after so many layers; (): 2, half, and three before the last
    num_steps: int = 4  # unrolled steps
    decay: float = 0.8  # weight of a step against the one before

    def __post_init__(self) -> None:
        LayerLearning.__post_init__(self)
        check_range(self, "num_steps", least=1, most=32)
        check_range(self, "decay", least=0.0, most=1.0)


def _new(options: EagleLearning, target: Decoder, seed: int) -> EagleNet:
    """A fresh network; its last norm starts as the target's."""
    known, layers, vocab = target.config, options.layers(target.config), options.vocab(target)
    config = EagleConfig(
        taps=target_taps(options.taps, known.num_layers),
        hidden_size=known.hidden_size,
        vocab_size=known.vocab_size,
        num_heads=layers.num_heads,
        num_kv_heads=layers.num_kv_heads,
        head_dim=layers.head_dim,
        intermediate_size=layers.intermediate_size,
        max_len=known.max_len,
        draft_vocab_size=0 if vocab is None else len(vocab),
        norm_eps=known.norm_eps,
    )
    net = EagleNet(config, target, vocab=vocab)
    begin(net, seed)
    with torch.no_grad():
        net.norm.weight.copy_(target.final_norm.weight)  # type: ignore[arg-type]
    return net


def _load(directory: Path, target: Decoder) -> EagleNet:
    return load_eagle(directory, target, torch.float32).train().requires_grad_(True)


@torch.no_grad()
def inflate(head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
    """Write to `out_dir` the network in `head_dir` for `target`, inflated by `width` and `depth`."""
    net = load_eagle(head_dir, target)
    old = net.config
    config = replace(
        old,
        taps=tuple(layers_after(tap, target.config.num_layers, depth) for tap in old.taps),
        hidden_size=old.hidden_size * width,
        num_heads=old.num_heads * width,
        num_kv_heads=old.num_kv_heads * width,
        intermediate_size=old.intermediate_size * width,
    )
    big = EagleNet(config, inflate_decoder(target, width=width), net.join.dtype, vocab=net.vocab)
    states = {"fusion.weight": len(old.taps), "join.weight": 2}
    for name, parameter in big.named_parameters():
        wide = widen_layer(name, net.get_parameter(name), net.shape, width, states=states.get(name, 1))
        if name == "norm.weight" and target.config.tie_embeddings:
            wide = wide / width  # the head is the embedding, which is repeated and not divided
        parameter.copy_(wide)
    save_eagle(big, out_dir)


LEARN = learn_features(
    EagleLearning,
    _new,
    _load,
    save_eagle,
    lambda options: falling(options.num_steps, options.decay),
    summary="a one-layer network on the target's states, unrolled on its own outputs",
    model_type=MODEL_TYPE,
    inflate=inflate,
)
