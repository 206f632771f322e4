"""Train Medusa's heads on a frozen target (Medusa-1): head i learns what the target says i + 1 tokens further on.

Cai et al., "Medusa", 2024, https://arxiv.org/abs/2401.10774: a head weighs 0.8 of the one before. The paper's loss is
the cross-entropy of the text's own tokens (`--loss cross_entropy=1`); ours by default the target's whole distribution.
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from outdraft.core.errors import ConfigError
from outdraft.core.learner import Guess, LearnMethod, Lesson, Outlook
from outdraft.core.ranges import check_range
from outdraft.drafters.medusa.net import MODEL_TYPE, MedusaConfig, MedusaNet, load_medusa, save_medusa
from outdraft.drafters.shared.learning.inflate import widen
from outdraft.models.base import Decoder
from outdraft.nn.linear import Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class MedusaLearning:
    """How many heads of which size."""

    num_heads: int = 4  # tokens that are guessed; the paper's: 5
    num_layers: int = 1  # residual layers of a head
    decay: float = 0.8  # weight of a head against the one before

    def __post_init__(self) -> None:
        check_range(self, "num_heads", least=1, most=64)
        check_range(self, "num_layers", least=1, most=16)
        check_range(self, "decay", least=0.0, most=1.0)


class MedusaLearner:
    """Heads under a frozen target."""

    def __init__(self, net: MedusaNet, target: Decoder, options: MedusaLearning) -> None:
        self.module, self._target, self._options = net, target, options
        self.taps = (net.config.tap,)

    def look(self, lesson: Lesson) -> Outlook:
        """Head i reads the state of row r and guesses what the target's row r + i + 1 distributes."""
        batch, length = lesson.shape
        h = lesson.taps[self.taps[0]]
        documents = lesson.documents[:, :-1]
        row = torch.arange(batch * length, device=h.device).view(batch, length)
        guesses = []
        for head in range(self.module.config.num_heads):
            ahead = head + 1
            same = documents[:, ahead:] == documents[:, :-ahead]
            source, rows = row[:, :-ahead][same], row[:, ahead:][same]
            states, says = self.module.states(h[source], head), partial(self.module.logits, head=head)
            guesses.append(Guess(states=states, head=says, rows=rows, weight=self._options.decay**head))
        return Outlook(guesses=guesses)

    def save(self, directory: Path) -> None:
        save_medusa(self.module, directory, self._target.dtype)


@torch.no_grad()
def new(options: MedusaLearning, target: Decoder, seed: int) -> MedusaLearner:
    """Fresh heads: residual layers of zeros, projections and norm as the target's."""
    known = target.config
    config = MedusaConfig(
        tap=known.num_layers, hidden_size=known.hidden_size, vocab_size=known.vocab_size, num_heads=options.num_heads,
        num_layers=options.num_layers, norm_eps=known.norm_eps,
    )  # fmt: skip
    net = MedusaNet(config, torch.float32, target.device)
    for parameter in net.layers.parameters():
        parameter.zero_()
    net.norm.weight.copy_(target.final_norm.weight)  # type: ignore[arg-type]
    for projection in net.projections:
        if isinstance(projection, Linear):
            projection.weight.copy_(target.lm_head.matrix())
    return MedusaLearner(net, target, options)


def load(options: MedusaLearning, target: Decoder, directory: Path) -> MedusaLearner:
    """Heads that were trained before. Raises `ConfigError` for those of another target."""
    net, known = load_medusa(directory, torch.float32, target.device), target.config
    own = (net.config.tap, net.config.hidden_size, net.config.vocab_size)
    if own != (known.num_layers, known.hidden_size, known.vocab_size):
        raise ConfigError(f"{directory} holds heads of another target (layers, width, vocabulary {own}): name its own")
    return MedusaLearner(net.train().requires_grad_(True), target, options)


@torch.no_grad()
def inflate(head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
    """The heads of `target` inflated by `width` and `depth`, which guess the same."""
    net = load_medusa(head_dir, target.dtype)
    big = MedusaNet(replace(net.config, tap=depth, hidden_size=net.config.hidden_size * width), target.dtype)
    for name, parameter in big.named_parameters():
        small = net.get_parameter(name)
        if name.startswith("projections"):
            parameter.copy_(small.repeat(1, width) / width)
        else:
            parameter.copy_(widen(small, width))
    save_medusa(big, out_dir)


LEARN = LearnMethod(
    summary="heads on the target's last state, one for each of the next tokens", options=MedusaLearning, new=new,
    load=load, drafts={"width": 1, "sample": "match"}, model_type=MODEL_TYPE, inflate=inflate,
)  # fmt: skip
