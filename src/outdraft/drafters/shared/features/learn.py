"""Train a network at feature level on a frozen target, on its own outputs too.

    step 0   pair i reads the true feature f_i                      token i + 1     guesses token i + 2
    step s   pair i reads what pair i - 1 of step s - 1 carries     the same        the same

so step s sees what the network sees when it drafts the (s + 1)-th token: true features up to i - s, its own after.
"Training-time test" of EAGLE-3, Li et al., 2025, https://arxiv.org/abs/2503.01840; the "aligned forwards" of HASS,
Zhang et al., 2024, https://arxiv.org/abs/2408.15766. Tokens are the text's in every step. Where a distance of features
counts too, it is between pair i's output and the true feature of position i + 1 (EAGLE, Li et al., 2024,
https://arxiv.org/abs/2401.15077).
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from outdraft.core.learner import Guess, LearnMethod, Lesson, Outlook
from outdraft.core.method import IsDataclass
from outdraft.drafters.shared.features.network import FeatureNet
from outdraft.drafters.shared.learning.states import states_beside, with_noise
from outdraft.drafters.shared.learning.unrolled import UnrolledContext
from outdraft.drafters.shared.learning.vocab import choose_vocab, first_vocab
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.config import ModelConfig, check_heads
from outdraft.nn.rope import RopeConfig
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range

Options = TypeVar("Options", bound=IsDataclass)
Net = TypeVar("Net", bound=FeatureNet)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerLearning:
    """The sizes of a network's layers, as all that learn have them. A size of 0 is the target's own."""

    num_heads: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    intermediate_size: int = 0
    draft_vocab_size: int = 0  # of the target's tokens the most frequent in the texts; 0: all

    def __post_init__(self) -> None:
        sizes = ("num_heads", "num_kv_heads", "head_dim", "intermediate_size", "draft_vocab_size")
        check_range(self, *sizes, least=0)

    def vocab(self, target: Decoder) -> Tensor | None:
        """The target's tokens that a new network says [V'], until texts choose them; None: all."""
        return first_vocab(self.draft_vocab_size, target.config.vocab_size, target.device)

    def layers(self, target: ModelConfig, *, num_layers: int = 1, qk_norm: bool = False) -> ModelConfig:
        """Llama's layers (Qwen3's with `qk_norm`) of these sizes and the target's width.

        Positions turn as the target's do, if its whole heads are turned and every text alike; else plainly. Raises as
        `check_heads` does.
        """
        size, heads = self.head_dim or target.head_dim, self.num_heads or target.num_heads
        kv_heads = self.num_kv_heads or (target.num_kv_heads if heads % target.num_kv_heads == 0 else heads)
        rope = target.rope if target.rope is not None and target.rope.dim == size else RopeConfig(dim=size)
        if rope.kind == "longrope" or rope.query_growth:
            rope = RopeConfig(dim=size, theta=rope.theta)
        config = ModelConfig(
            architecture="qwen3" if qk_norm else "llama",
            vocab_size=target.vocab_size,
            hidden_size=target.hidden_size,
            num_layers=num_layers,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=size,
            intermediate_size=self.intermediate_size or target.intermediate_size,
            max_len=target.max_len,
            norm_eps=target.norm_eps,
            rope=rope,
            qk_norm=qk_norm,
        )
        return check_heads(config)


class FeatureLearner:
    """A network under a frozen target. `weights`: of each step in the loss; there is a step for each.

    An exam takes as many steps as it is deep, also more than were trained.
    extrapolates: outputs are to be the features of the next position, for losses over states.
    noise: width of the uniform noise on true features while it learns, in a text of 512 tokens; in shorter ones more.
    """

    def __init__(
        self,
        net: FeatureNet,
        target: Decoder,
        save: Callable[[Path], None],
        *,
        weights: Seq[float],
        extrapolates: bool = False,
        noise: float = 0.0,
    ) -> None:
        self.module: nn.Module = net
        self.taps = net.taps
        self.target, self.net, self._save = target, net, save
        self._weights = tuple(weights)
        self._extrapolates, self._noise = extrapolates, noise

    def look(self, lesson: Lesson) -> Outlook:
        """One guess for each unrolled step."""
        batch, length = lesson.shape
        net, pairs = self.net, length - 1

        def of_pairs(x: Tensor, first: int) -> Tensor:  # rows first..first + pairs of each sequence
            return x.view(batch, length, -1)[:, first : first + pairs].flatten(0, 1)

        places = lesson.positions.view(batch, length)[:, :pairs]
        documents = lesson.documents[:, :pairs]
        ids = lesson.ids[:, 1:length].flatten()
        embeds = (net.embed or self.target.embed)(ids, of_pairs(lesson.positions, 1)[:, 0])
        if net.embed is None:
            embeds = embeds.detach()
        f = net.fuse([of_pairs(lesson.taps[tap], 0) for tap in self.taps])
        if self._noise:
            f = f + (with_noise(torch.zeros_like(f), lesson, self._noise / 2) * _shortness(lesson)).to(f)
        after = None  # [N, D] the true features that the outputs are to be
        if torch.is_grad_enabled() and self._extrapolates:
            after = net.fuse([of_pairs(lesson.taps[tap], 1) for tap in self.taps]).detach()
        true, context = f.view(batch, pairs, -1), UnrolledContext(documents, places)
        whole = (documents == lesson.documents[:, 1:length]).flatten()  # the pair's token is of the same document
        rows = of_pairs(torch.arange(batch * length, device=ids.device), 1)[:, 0]
        guesses, beside = [], []
        for step in range(max(len(self._weights), lesson.depth if lesson.moment is None else 0)):
            g = net.run(embeds, f, places.flatten(), context)
            kept = (whole & (places.flatten() >= step)).nonzero()[:, 0]
            weight = self._weights[step] if step < len(self._weights) else 0.0
            guess = Guess(states=g[kept], head=net.logits, rows=rows[kept], weight=weight, vocab=net.vocab)
            guesses.append(guess)
            if after is not None:
                beside.append(states_beside(guess, after[kept]))
            f = torch.cat((true[:, :1], net.carry(g).view(batch, pairs, -1)[:, :-1]), 1).flatten(0, 1)
        return Outlook(guesses=guesses, beside=beside)

    def save(self, directory: Path) -> None:
        self._save(directory)


def _shortness(lesson: Lesson) -> Tensor:
    """512 / T for each pair [N, 1], T its document's length in the row: noise is the wider, the shorter the text."""
    documents = lesson.documents[:, : lesson.shape[1]]
    lengths = (documents[:, :, None] == documents[:, None, :]).sum(-1)  # [B, T]
    return 512 / lengths[:, :-1].reshape(-1, 1)


def target_taps(taps: Seq[int], num_layers: int) -> tuple[int, ...]:
    """The taps as asked; where nothing is asked 2, half, and three before the last. All are "after n layers".

    Raises `ConfigError` for one that the target does not have.
    """
    chosen = tuple(taps) or tuple(sorted({min(2, num_layers), num_layers // 2, max(0, num_layers - 3)}))
    if not all(0 <= tap <= num_layers for tap in chosen):
        raise ConfigError(f"taps={chosen}: the target has {num_layers} layers, so a tap is from 0 to {num_layers}")
    return chosen


def falling(num_steps: int, decay: float) -> list[float]:
    """Weights of steps, each `decay` of the one before."""
    return [decay**step for step in range(num_steps)]


def learn_features(
    options: type[Options],
    new: Callable[[Options, Decoder, int], Net],
    load: Callable[[Path, Decoder], Net],
    save: Callable[[Net, Path, torch.dtype], None],
    weights: Callable[[Options], Seq[float]],
    *,
    learner: type[FeatureLearner] = FeatureLearner,
    extrapolates: bool = False,
    **more: Any,
) -> LearnMethod[Options, Decoder]:
    """How networks of one kind are trained. `more`: other fields of the method.

    new, load: a network that is to be trained, from a seed, or from a directory. save: the network, whereto, and the
    type of its numbers. weights: of the steps that it is unrolled.
    """

    def learn(net: Net, target: Decoder, chosen: Options) -> FeatureLearner:
        return learner(
            net,
            target,
            lambda place: save(net, place, target.dtype),
            weights=weights(chosen),
            extrapolates=extrapolates,
            noise=getattr(chosen, "noise", 0.0),
        )

    return LearnMethod(
        options=options,
        hands_states=True,
        new=lambda chosen, target, seed: learn(new(chosen, target, seed), target, chosen),
        load=lambda chosen, target, directory: learn(load(directory, target), target, chosen),
        choose_vocab=lambda learner, counts: choose_vocab(learner.net, learner.target, counts),
        **{"drafts": {"width": 1, "sample": "match"}, **more},
    )


@torch.no_grad()
def begin(net: nn.Module, seed: int) -> None:
    """Norms of 1, matrices normal with 1 / sqrt(inputs), biases of 0: a function of the seed."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in net.named_parameters():
        if parameter.dim() == 1:
            parameter.fill_(0 if name.endswith("bias") else 1)
        else:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * parameter.shape[1] ** -0.5)
