"""Train an EAGLE-3 network on a frozen target, on its own outputs too (training-time test).

Li et al., "EAGLE-3", 2025, https://arxiv.org/abs/2503.01840: seven steps, each 0.8 of the one before, no distance of
features. The distribution that is learned is the target's, renormalised inside the draft's vocabulary. What is saved is
a directory in the published layout (`files.py`).
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from outdraft.drafters.eagle3.config import Eagle3Config
from outdraft.drafters.eagle3.files import MODEL_TYPE
from outdraft.drafters.eagle3.formats import FORMATS, load_eagle3, save_eagle3
from outdraft.drafters.eagle3.net import Eagle3Net, lent_by
from outdraft.drafters.shared.features.learn import (
    FeatureLearner,
    LayerLearning,
    begin,
    falling,
    learn_features,
    target_taps,
    widen_layer,
    wider,
)
from outdraft.drafters.shared.learning.inflate import layers_after, widen
from outdraft.drafters.shared.learning.vocab import frequent
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import facts_of
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3Learning(LayerLearning):
    """The network's shape, and how deep it is unrolled. A size of 0 is the target's own."""

    taps: tuple[int, ...] = ()  # the states after so many layers; (): 2, half, and three before the last
    num_layers: int = 1
    draft_vocab_size: int = 0  # of the target's tokens the most frequent in the texts; the paper's: 32,000
    qk_norm: bool = False  # norms on queries and keys, as in Qwen3
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False  # a norm for each tap; with norm_output EAGLE-3.1
    norm_output: bool = False
    num_steps: int = 4  # unrolled steps; the paper's: 7
    decay: float = 0.8  # weight of a step against the one before

    def __post_init__(self) -> None:
        LayerLearning.__post_init__(self)
        check_range(self, "draft_vocab_size", least=0)
        check_range(self, "num_steps", "num_layers", least=1, most=32)
        check_range(self, "decay", least=0.0, most=1.0)
        if self.norm_before_fc and self.fc_norm:
            raise ConfigError("norm_before_fc=True, fc_norm=True: they exclude each other, take one")


class Eagle3Learner(FeatureLearner):
    """A network under a frozen target, whose vocabulary is chosen when the texts are known."""

    @torch.no_grad()
    def choose(self, counts: Tensor) -> None:
        """Draft with the most frequent of the target's tokens [V]; the head's rows become the target's own of these."""
        net = cast(Eagle3Net, self.module)
        if net.vocab is not None and net.lm_head is not None:
            net.vocab = frequent(counts, net.config.draft_vocab_size).to(net.vocab.device)
            net.lm_head.weight.copy_(self.target.head_matrix()[net.vocab])


def _new(options: Eagle3Learning, target: Decoder, seed: int) -> Eagle3Net:
    """A fresh network: its last norm and its head start as the target's.

    Until the texts are known a smaller vocabulary is that of the lowest ids.
    """
    known = target.config
    size = options.draft_vocab_size or known.vocab_size
    if size > known.vocab_size:
        raise ConfigError(f"draft_vocab_size={size}: the target has {known.vocab_size} tokens")
    config = Eagle3Config(
        layers=options.layers(known, num_layers=options.num_layers, qk_norm=options.qk_norm),
        taps=target_taps(options.taps, known.num_layers),
        draft_vocab_size=size,
        target_hidden_size=known.hidden_size,
        norm_before_residual=options.norm_before_residual,
        norm_before_fc=options.norm_before_fc,
        fc_norm=options.fc_norm,
        norm_output=options.norm_output,
    )
    vocab = torch.arange(size) if size < known.vocab_size else None
    net = Eagle3Net(config, torch.float32, target.device, vocab)
    begin(net, seed)
    with torch.no_grad():
        net.norm.weight.copy_(target.final_norm.weight)  # type: ignore[arg-type]
        assert net.lm_head is not None
        net.lm_head.weight.copy_(target.head_matrix()[:size])
    return net


def _load(directory: Path, target: Decoder) -> Eagle3Net:
    """A network that was trained before, here or elsewhere."""
    net = load_eagle3(directory, facts_of(target), torch.float32, lent=lent_by(target)).train().requires_grad_(True)
    if net.embedding is not None:
        net.embedding.requires_grad_(net.config.train_embedding)
    return net


@torch.no_grad()
def inflate(head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
    """Write to `out_dir` the network in `head_dir` for `target`, inflated by `width` and `depth`."""
    net = load_eagle3(head_dir, facts_of(target))
    old = net.config
    config = replace(
        old,
        layers=wider(old.layers, width),
        taps=tuple(layers_after(tap, target.config.num_layers, depth) for tap in old.taps),
        target_hidden_size=old.target_hidden_size * width,
    )
    big = Eagle3Net(config, net.dtype, net.norm.weight.device, net.vocab)
    for name, parameter in big.named_parameters():
        small = net.get_parameter(name)
        if name == "embedding":
            parameter.copy_(small.repeat(1, width))
        elif name == "lm_head.weight":
            parameter.copy_(small.repeat(1, width) / width)
        elif name == "input_norm.weight":
            parameter.copy_(torch.cat([part.repeat(width) for part in small.chunk(len(old.taps))]))
        elif name == "fc.weight":
            parameter.copy_(widen(small, width, len(old.taps)))
        else:
            parameter.copy_(widen_layer(name, small, old.layers, width, states=2 if name == "first.qkv.weight" else 1))
    save_eagle3(big, out_dir)


LEARN = learn_features(
    Eagle3Learning,
    _new,
    _load,
    save_eagle3,
    lambda options: falling(options.num_steps, options.decay),
    learner=Eagle3Learner,
    summary="the published EAGLE-3 and 3.1: own head, perhaps of fewer tokens, unrolled on its own outputs",
    model_type=MODEL_TYPE,
    formats=FORMATS,
    choose_vocab=lambda learner, counts: cast(Eagle3Learner, learner).choose(counts),
    inflate=inflate,
)
