"""Train EAGLE's network on a frozen target, on its own outputs too (training-time test).

Li et al., "EAGLE-3", 2025, https://arxiv.org/abs/2503.01840.

    step 0   pair i reads the true feature f_i                      token i + 1     guesses token i + 2
    step s   pair i reads g of pair i - 1 of step s - 1             the same        the same

so step s sees what the network sees when it drafts the (s + 1)-th token: true features up to i - s, its own after. A
step weighs `decay` of the one before.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from outdraft.core.errors import ConfigError
from outdraft.core.learner import Guess, LearnMethod, Lesson, Outlook
from outdraft.core.ranges import check_range
from outdraft.drafters.eagle.inflate import inflate
from outdraft.drafters.eagle.net import MODEL_TYPE, EagleConfig, EagleNet, load_eagle, save_eagle
from outdraft.drafters.shared.learning.unrolled import UnrolledContext
from outdraft.models.base import Decoder


@dataclass(frozen=True, slots=True, kw_only=True)
class EagleLearning:
    """The network's shape, and how deep it is unrolled. A size of 0 is the target's own."""

    taps: tuple[int, ...] = ()  # the states after so many layers; (): 2, half, and three before the last
    num_heads: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    intermediate_size: int = 0
    num_steps: int = 4  # unrolled steps
    decay: float = 0.8  # weight of a step against the one before

    def __post_init__(self) -> None:
        check_range(self, "num_heads", "num_kv_heads", "head_dim", "intermediate_size", least=0)
        check_range(self, "num_steps", least=1, most=32)
        check_range(self, "decay", least=0.0, most=1.0)


class EagleLearner:
    """An EAGLE network under a frozen target."""

    def __init__(self, net: EagleNet, target: Decoder, options: EagleLearning) -> None:
        self.module, self._target, self._options = net, target, options
        self.taps = tuple(net.config.taps)

    def look(self, lesson: Lesson) -> Outlook:
        """One guess for each unrolled step."""
        batch, length = lesson.shape
        net, pairs = self.module, length - 1

        def of_pairs(x: Tensor, first: int) -> Tensor:  # rows first..first + pairs of each sequence
            return x.view(batch, length, -1)[:, first : first + pairs].flatten(0, 1)

        places = lesson.positions.view(batch, length)[:, :pairs]
        documents = lesson.documents[:, :pairs]
        ids = lesson.ids[:, 1:length].flatten()
        tokens = self._target.embed(ids, of_pairs(lesson.positions, 1)[:, 0]).detach()
        f = net.fuse([of_pairs(lesson.taps[tap], 0) for tap in self.taps])
        true, context = f.view(batch, pairs, -1), UnrolledContext(documents, places)
        whole = (documents == lesson.documents[:, 1:length]).flatten()  # the pair's token is of the same document
        rows = of_pairs(torch.arange(batch * length, device=ids.device), 1)[:, 0]
        guesses = []
        for step in range(self._options.num_steps):
            g = net.run(tokens, f, places.flatten(), context)
            kept = (whole & (places.flatten() >= step)).nonzero()[:, 0]
            weight = self._options.decay**step
            guesses.append(Guess(states=g[kept], head=net.logits, rows=rows[kept], weight=weight))
            f = torch.cat((true[:, :1], g.view(batch, pairs, -1)[:, :-1]), 1).flatten(0, 1)
        return Outlook(guesses=guesses)

    def save(self, directory: Path) -> None:
        save_eagle(self.module, directory, self._target.dtype)


def new(options: EagleLearning, target: Decoder, seed: int) -> EagleLearner:
    """A fresh network; its last norm starts as the target's."""
    known = target.config
    layers = known.num_layers
    taps = options.taps or tuple(sorted({min(2, layers), layers // 2, max(0, layers - 3)}))
    if not all(0 <= tap <= layers for tap in taps):
        raise ConfigError(f"taps={taps}: the target has {layers} layers, so a tap is from 0 to {layers}")
    config = EagleConfig(
        taps=taps, hidden_size=known.hidden_size, vocab_size=known.vocab_size,
        num_heads=options.num_heads or known.num_heads, num_kv_heads=options.num_kv_heads or known.num_kv_heads,
        head_dim=options.head_dim or known.head_dim,
        intermediate_size=options.intermediate_size or known.intermediate_size,
        max_len=known.max_len, norm_eps=known.norm_eps,
    )  # fmt: skip
    net = EagleNet(config, target, torch.float32)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.dim() == 1:
                parameter.fill_(1)
            else:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * parameter.shape[1] ** -0.5)
        net.norm.weight.copy_(target.final_norm.weight)  # type: ignore[arg-type]
    return EagleLearner(net, target, options)


def load(options: EagleLearning, target: Decoder, directory: Path) -> EagleLearner:
    """A network that was trained before."""
    net = load_eagle(directory, target, torch.float32)
    return EagleLearner(net.train().requires_grad_(True), target, options)


LEARN = LearnMethod(
    summary="a one-layer network on the target's states, unrolled on its own outputs", options=EagleLearning, new=new,
    load=load, drafts={"width": 1, "sample": "match"}, model_type=MODEL_TYPE, inflate=inflate,
)  # fmt: skip
