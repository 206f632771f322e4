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
from pathlib import Path

import torch
from torch import Tensor, nn

from outdraft.core.learner import Guess, Lesson, Outlook
from outdraft.drafters.shared.features.network import FeatureNet
from outdraft.drafters.shared.learning.noise import with_noise
from outdraft.drafters.shared.learning.smooth_l1 import states_beside
from outdraft.drafters.shared.learning.unrolled import UnrolledContext
from outdraft.models.networks.base import Decoder
from outdraft.options.errors import ConfigError


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
        assert isinstance(net, nn.Module)
        self.module: nn.Module = net
        self.taps = net.form.taps
        self._net, self._target, self._save = net, target, save
        self._weights = tuple(weights)
        self._extrapolates, self._noise = extrapolates, noise

    def look(self, lesson: Lesson) -> Outlook:
        """One guess for each unrolled step."""
        batch, length = lesson.shape
        net, pairs = self._net, length - 1

        def of_pairs(x: Tensor, first: int) -> Tensor:  # rows first..first + pairs of each sequence
            return x.view(batch, length, -1)[:, first : first + pairs].flatten(0, 1)

        places = lesson.positions.view(batch, length)[:, :pairs]
        documents = lesson.documents[:, :pairs]
        ids = lesson.ids[:, 1:length].flatten()
        embeds = (net.embed or self._target.embed)(ids, of_pairs(lesson.positions, 1)[:, 0])
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
