"""Train Hydra's heads on a frozen target: head i reads the state of row r and the text's tokens r + 1 to r + i + 1.

Ankner et al., "Hydra", 2024, https://arxiv.org/abs/2402.05109; the teacher's whole distribution is the loss of its
Hydra++, whose further layer is not here. A head weighs `decay` of the one before.
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from outdraft.core.errors import ConfigError
from outdraft.core.learner import Guess, LearnMethod, Lesson, Outlook
from outdraft.core.ranges import check_range
from outdraft.drafters.hydra.net import MODEL_TYPE, HydraConfig, HydraNet, load_hydra, save_hydra
from outdraft.drafters.shared.learning.inflate import widen
from outdraft.models.base import Decoder
from outdraft.nn.linear import Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class HydraLearning:
    """How many heads."""

    num_heads: int = 4  # tokens that are guessed
    decay: float = 0.8  # weight of a head against the one before

    def __post_init__(self) -> None:
        check_range(self, "num_heads", least=1, most=64)
        check_range(self, "decay", least=0.0, most=1.0)


class HydraLearner:
    """Heads under a frozen target."""

    def __init__(self, net: HydraNet, target: Decoder, options: HydraLearning) -> None:
        self.module, self._target, self._options = net, target, options
        self.taps = (net.config.tap,)

    def look(self, lesson: Lesson) -> Outlook:
        """Head i guesses what the target's row r + i + 1 distributes."""
        batch, length = lesson.shape
        h, documents = lesson.taps[self.taps[0]], lesson.documents[:, :-1]
        row = torch.arange(batch * length, device=h.device).view(batch, length)
        ids = lesson.ids[:, :-1].flatten()
        embeds = self._target.embed(ids, lesson.positions).detach()
        guesses = []
        for head in range(self.module.config.num_heads):
            ahead = head + 1
            same = documents[:, ahead:] == documents[:, :-ahead]
            source, rows = row[:, :-ahead][same], row[:, ahead:][same]
            since = [embeds[source + i] for i in range(1, ahead + 1)]
            states, says = self.module.states(h[source], since), partial(self.module.logits, head=head)
            guesses.append(Guess(states=states, head=says, rows=rows, weight=self._options.decay**head))
        return Outlook(guesses=guesses)

    def save(self, directory: Path) -> None:
        save_hydra(self.module, directory, self._target.dtype)


@torch.no_grad()
def new(options: HydraLearning, target: Decoder, seed: int) -> HydraLearner:
    """Fresh heads: mixing matrices of zeros, projections and norm as the target's."""
    known = target.config
    config = HydraConfig(
        tap=known.num_layers, hidden_size=known.hidden_size, vocab_size=known.vocab_size, num_heads=options.num_heads,
        norm_eps=known.norm_eps,
    )  # fmt: skip
    net = HydraNet(config, torch.float32, target.device)
    for parameter in net.mixers.parameters():
        parameter.zero_()
    net.norm.weight.copy_(target.final_norm.weight)  # type: ignore[arg-type]
    for projection in net.projections:
        if isinstance(projection, Linear):
            projection.weight.copy_(target.lm_head.matrix())
    return HydraLearner(net, target, options)


def load(options: HydraLearning, target: Decoder, directory: Path) -> HydraLearner:
    """Heads that were trained before. Raises `ConfigError` for those of another target."""
    net, known = load_hydra(directory, torch.float32, target.device), target.config
    own = (net.config.tap, net.config.hidden_size, net.config.vocab_size)
    if own != (known.num_layers, known.hidden_size, known.vocab_size):
        raise ConfigError(f"{directory} holds heads of another target (layers, width, vocabulary {own}): name its own")
    return HydraLearner(net.train().requires_grad_(True), target, options)


@torch.no_grad()
def inflate(head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
    """The heads of `target` inflated by `width` and `depth`, which guess the same."""
    net = load_hydra(head_dir, target.dtype)
    big = HydraNet(replace(net.config, tap=depth, hidden_size=net.config.hidden_size * width), target.dtype)
    for name, parameter in big.named_parameters():
        small = net.get_parameter(name)
        if name.startswith("projections"):
            parameter.copy_(small.repeat(1, width) / width)
        else:
            states = small.shape[1] // net.config.hidden_size if small.dim() == 2 else 1
            parameter.copy_(widen(small, width, states))
    save_hydra(big, out_dir)


LEARN = LearnMethod(
    summary="heads on the target's last state, each of which knows the tokens before", options=HydraLearning, new=new,
    load=load, drafts={"width": 1, "sample": "match"}, model_type=MODEL_TYPE, inflate=inflate,
)  # fmt: skip
