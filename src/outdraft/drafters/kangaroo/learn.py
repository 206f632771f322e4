"""Train Kangaroo's adapter on a frozen target: cross-entropy to the target's own distribution.

Liu et al., "Kangaroo", 2024, https://arxiv.org/abs/2404.18911. Drafted rows pass the same first layers as the text, so
one depth stands for all. `--loss soft_cross_entropy=1` is the paper's and the default; it has the gradient of the
forward divergence.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from outdraft.core.learner import Guess, LearnMethod, Lesson, Outlook
from outdraft.drafters.kangaroo.net import MODEL_TYPE, KangarooAdapter, KangarooConfig, load_adapter, save_adapter
from outdraft.drafters.shared.features.learn import begin
from outdraft.drafters.shared.learning.inflate import layers_after, widen_layer
from outdraft.drafters.shared.learning.vocab import choose_vocab, first_vocab
from outdraft.models.networks.base import Decoder
from outdraft.nn.packed import PackedContext
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class KangarooLearning:
    """Where it exits, and the sizes of the attention. A size of 0 is the target's own."""

    exit_layer: int = 0  # the adapter reads the state after so many layers; 0: 2, or 1 of fewer than 6; the paper's: 2
    num_heads: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    draft_vocab_size: int = 0  # of the target's tokens the most frequent in the texts; 0: all

    def __post_init__(self) -> None:
        check_range(self, "exit_layer", "num_heads", "num_kv_heads", "head_dim", "draft_vocab_size", least=0)


class KangarooLearner:
    """An adapter under a frozen target."""

    def __init__(self, adapter: KangarooAdapter, target: Decoder) -> None:
        adapter.borrow(target)
        self.module, self.target = adapter, target
        self.taps = (adapter.config.exit_layer,)

    def look(self, lesson: Lesson) -> Outlook:
        """The first layers read their own guesses as they would the text, so one depth stands for all."""
        batch, length = lesson.shape
        context = PackedContext(batch, length, lesson.documents[:, :-1])
        states = self.module(lesson.taps[self.taps[0]], lesson.positions, context)
        rows = torch.arange(batch * length, device=states.device)
        guess = Guess(states=states, head=self.module.logits, rows=rows, vocab=self.module.vocab)
        return Outlook(guesses=[guess], recurs=True)

    def save(self, directory: Path) -> None:
        save_adapter(self.module, directory, self.target.config.vocab_size, self.target.dtype)


def new(options: KangarooLearning, target: Decoder, seed: int) -> KangarooLearner:
    """A fresh adapter; what it adds is nothing at first, and its last norm begins as the target's."""
    known = target.config
    layer = options.exit_layer or (2 if known.num_layers > 5 else 1)
    if layer >= known.num_layers:
        raise ConfigError(f"exit_layer={layer} leaves nothing to verify with: the target has {known.num_layers} layers")
    heads = options.num_heads or known.num_heads
    kv_heads = options.num_kv_heads or (known.num_kv_heads if heads % known.num_kv_heads == 0 else heads)
    vocab = first_vocab(options.draft_vocab_size, known.vocab_size, target.device)
    config = KangarooConfig(
        exit_layer=layer,
        hidden_size=known.hidden_size,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=options.head_dim or known.head_dim,
        norm_eps=known.norm_eps,
        rope_theta=10000.0 if known.rope is None else known.rope.theta,
        draft_vocab_size=0 if vocab is None else len(vocab),
    )
    adapter = KangarooAdapter(config, torch.float32, target.device, vocab)
    begin(adapter, seed)
    with torch.no_grad():
        adapter.attention.out.weight.zero_()  # type: ignore[operator]
        adapter.norm.weight.copy_(target.final_norm.weight)  # type: ignore[arg-type]
    return KangarooLearner(adapter, target)


def load(options: KangarooLearning, target: Decoder, directory: Path) -> KangarooLearner:
    """An adapter that was trained before. Raises `ConfigError` for one of another target."""
    known = target.config
    adapter = load_adapter(directory, known.vocab_size, torch.float32, target.device)
    if adapter.config.hidden_size != known.hidden_size or not 0 < adapter.config.exit_layer < known.num_layers:
        raise ConfigError(
            f"{directory} holds an adapter of width {adapter.config.hidden_size} after {adapter.config.exit_layer} "
            f"layers; the target has width {known.hidden_size} and {known.num_layers} layers: name its own"
        )
    return KangarooLearner(adapter.train().requires_grad_(True), target)


@torch.no_grad()
def inflate(head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
    """Write to `out_dir` the adapter in `head_dir` for `target`, inflated by `width` and `depth`."""
    small = load_adapter(head_dir, target.config.vocab_size, target.dtype, torch.device("cpu"))
    old = small.config
    config = replace(
        old,
        exit_layer=layers_after(old.exit_layer, target.config.num_layers, depth),
        hidden_size=old.hidden_size * width,
        num_heads=old.num_heads * width,
        num_kv_heads=old.num_kv_heads * width,
    )
    big = KangarooAdapter(config, small.norm.weight.dtype, vocab=small.vocab)
    for name, parameter in big.named_parameters():
        parameter.copy_(widen_layer(name, small.get_parameter(name), old.layers, width))
    save_adapter(big, out_dir, target.config.vocab_size)


LEARN = LearnMethod(
    summary="a small attention behind the target's first layers",
    options=KangarooLearning,
    new=new,
    load=load,
    loss={"soft_cross_entropy": 1.0},
    model_type=MODEL_TYPE,
    inflate=inflate,
    choose_vocab=lambda learner, counts: choose_vocab(learner.module, learner.target, counts),
)
