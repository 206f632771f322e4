"""CLLM: a target learns to give its final answers from wrong guesses too, so that Jacobi iteration ends sooner.

Kou et al., "CLLMs: consistency large language models", 2024, https://arxiv.org/abs/2403.00835.

    text       ... x_a                         rows of the texts, read once
    window     w^0 = tokens of the text before, by chance;  w^(t+1)_i = the target's answer behind x_<=a, w^t_<i
    end        w*: no answer changes any more, which is the target's own greedy text, after N steps at most
    learned    q(. | x_<=a, w^t_<=i) from q(. | x_<=a, w*_<=i), without a gradient there; t: any step before the end
    beside     the target's own loss on the texts: its tokens (the paper's), or the divergence from the original

The paper writes the original's trajectories to files and learns from them; here the changed target iterates in every
step (without gradients), so that the guesses are those that it meets as it is now, and nothing is stored.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from outdraft.core.learner import OWN, Assessment, Beside, LearnMethod, Lesson, Outlook
from outdraft.drafters.shared.blocks.behind import BehindContext, KeptContext
from outdraft.drafters.shared.blocks.sees import PackedBlocks
from outdraft.drafters.shared.blocks.spots import chosen_rows, documents_of
from outdraft.finetune.shared import LowRankOptions, go_on, teach
from outdraft.models.networks.base import Decoder
from outdraft.models.remake.taught import TaughtTarget
from outdraft.options.errors import CapabilityError
from outdraft.options.ranges import MOST_NODES, check_range

_DICE = 3  # a purpose of a row's random numbers; of an exam, the seed


@dataclass(frozen=True, slots=True, kw_only=True)
class CllmLearning(LowRankOptions):
    """Raises `ConfigError` naming what is out of range."""

    window: int = 16  # tokens of a guess (n); the paper's: 16 to 64
    windows: int = 8  # of each row of texts, where they begin by chance
    own_weight: float = 10.0  # of the target's own loss beside that of consistency; the paper's code: 10
    distil: bool = True  # the own loss: divergence from the original; False: the text's own tokens

    def __post_init__(self) -> None:
        LowRankOptions.__post_init__(self)
        check_range(self, "window", least=1, most=MOST_NODES)
        check_range(self, "windows", least=1, most=1 << 20)
        check_range(self, "own_weight", least=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Windows:
    """Guesses behind texts."""

    anchors: Tensor  # [m] the rows that they stand behind
    positions: Tensor  # [m * N]
    first: Tensor  # [m] what the target says behind the text itself
    fill: Tensor  # [m, N]
    when: Tensor  # [m] in 0 .. 1: which of the steps before the end is learned from
    blocks: PackedBlocks  # what their rows see


class CllmLearner:
    """A changed copy of a target, whose own guesses become right sooner."""

    modifies_target = True
    taps: tuple[int, ...] = ()
    rates: Mapping[nn.Parameter, float] = {}

    def __init__(self, taught: TaughtTarget, options: CllmLearning) -> None:
        config = taught.original.config
        if config.score_cap is not None or any(config.window(layer) for layer in range(config.num_layers)):
            raise CapabilityError(
                "cllm reads windows of guesses behind a text, which layers with attention windows or capped scores do "
                "not bear in training: take a target without them"
            )
        self.module: nn.Module = taught.lora
        self._taught, self._options = taught, options

    def look(self, lesson: Lesson) -> Outlook:
        """It guesses nothing by itself: both losses, and the states of the changed target."""
        context = KeptContext(*lesson.shape, lesson.documents[:, :-1])
        states, options = self._taught.run(lesson, context).hidden, self._options
        if lesson.moment is None or not torch.is_grad_enabled():
            return Outlook(guesses=(), states=states)
        kept, tokens = lesson.counts.nonzero()[:, 0], lesson.ids[:, 1:].flatten()
        own = self._taught.losses(states[kept], lesson.states[kept], None if options.distil else tokens[kept])
        anchors = self._fitting(lesson, chosen_rows(lesson, options.windows))
        windows = self._windows(lesson, context, states, anchors)
        seen = self._trajectory(windows)
        step = (windows.when * (seen != seen[-1]).any(-1).sum(0)).long()  # [m]
        guessed = seen[step, torch.arange(len(step), device=step.device)]
        with torch.no_grad():
            said = self._read(windows, seen[-1])
        apart = self._taught.losses(self._read(windows, guessed), said, None)
        rows = windows.anchors.repeat_interleave(options.window)
        both = len(apart) + len(own)  # each loss is a mean of its own
        losses = (apart * (both / max(1, len(apart))), own * (options.own_weight * both / max(1, len(own))))
        beside = Beside(name=OWN, values=torch.cat(losses), rows=torch.cat((rows, kept)))
        return Outlook(guesses=(), states=states.detach(), beside=(beside,))

    @torch.no_grad()
    def assess(self, lessons: Iterable[Lesson]) -> Assessment:
        """Tokens that a pass of the iteration settles, window by window, behind texts that it has not seen."""
        size, passes, count = self._options.window, 0, 0
        for lesson in lessons:
            context = KeptContext(*lesson.shape, lesson.documents[:, :-1])
            states = self._taught.run(lesson, context).hidden
            anchors = self._fitting(lesson, lesson.counts.nonzero()[::size, 0])
            seen = self._trajectory(self._windows(lesson, context, states, anchors))
            passes += int((seen != seen[-1]).any(-1).sum()) + len(anchors)  # one more sees that nothing changes
            count += len(anchors)
        tau = size * count / max(1, passes)
        line = f"held-out: {tau:.3f} tokens a pass of Jacobi iteration, in windows of {size}"
        return Assessment(score=tau, line=line, numbers={"jacobi_tau": tau})

    def save(self, directory: Path) -> None:
        self._taught.save(directory)

    def _fitting(self, lesson: Lesson, anchors: Tensor) -> Tensor:
        """Those behind which the target can read a window."""
        most = self._taught.original.config.max_len - self._options.window
        return anchors[lesson.positions[anchors] < most]

    def _windows(self, lesson: Lesson, context: KeptContext, states: Tensor, anchors: Tensor) -> _Windows:
        size, device = self._options.window, anchors.device
        places = lesson.positions[anchors]  # of each anchor in its own text, which began so many rows before
        dice = _dice(lesson, anchors, size + 1)
        rows = anchors[:, None] - (dice[:, 1:] * (places + 1)[:, None]).long()
        return _Windows(
            anchors=anchors,
            positions=(places[:, None] + 1 + torch.arange(size, device=device)).flatten(),
            first=self._taught.best(states[anchors]),
            fill=lesson.ids[:, :-1].flatten()[rows],
            when=dice[:, 0],
            blocks=PackedBlocks(
                context.kept, documents_of(lesson, anchors, behind=1), size, lambda layer: (None, True)
            ),
        )

    def _read(self, windows: _Windows, guesses: Tensor) -> Tensor:
        """Guesses [m, N] -> the states of their rows [m * N, D]."""
        network, tokens = self._taught.network, guesses.flatten()
        if not len(tokens):
            return network.embed(tokens, windows.positions)
        context = BehindContext([windows.blocks], [len(tokens)])
        return network.run(network.embed(tokens, windows.positions), windows.positions, context).hidden

    @torch.no_grad()
    def _trajectory(self, windows: _Windows) -> Tensor:
        """The guesses of each step, the fixed point last: [S + 1, m, N]."""
        seen = [windows.fill]
        for _ in range(self._options.window):
            answers = self._taught.best(self._read(windows, seen[-1])).view_as(seen[-1])
            seen.append(torch.cat((windows.first[:, None], answers[:, :-1]), 1))
            if torch.equal(seen[-1], seen[-2]):
                break
        return torch.stack(seen)


def _dice(lesson: Lesson, anchors: Tensor, width: int) -> Tensor:
    """Random numbers of each window [m, width], which depend on its row of texts alone."""
    (batch, length), moment = lesson.shape, lesson.moment
    counts = torch.bincount(anchors // length, minlength=batch).tolist()
    dice = [
        torch.Generator().manual_seed(_DICE) if moment is None else moment.generator(b, _DICE) for b in range(batch)
    ]
    drawn = [torch.rand(count, width, generator=one) for count, one in zip(counts, dice, strict=True)]
    return torch.cat(drawn).to(anchors.device)


LEARN: LearnMethod[CllmLearning, Decoder] = LearnMethod(
    summary="the target, which learns to settle more of its own guesses a pass of Jacobi iteration (modifies_target)",
    options=CllmLearning,
    new=lambda options, target, seed: CllmLearner(teach(options, target, seed), options),
    load=lambda options, target, directory: CllmLearner(go_on(target, directory), options),
    drafter="jacobi",
    drafter_options=lambda directory: {},
    loss={},
)
