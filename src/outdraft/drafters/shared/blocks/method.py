"""How networks of one kind are trained: the registration, and the same guesses for an inflated target."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from outdraft.core.learner import LearnMethod
from outdraft.drafters.shared.blocks.formats import block_formats
from outdraft.drafters.shared.blocks.kind import BlockKind, Own
from outdraft.drafters.shared.blocks.learn import BlockLearner, BlockLearning, begin_blocks, block_config
from outdraft.drafters.shared.blocks.net import BlockNet
from outdraft.drafters.shared.learning.inflate import layers_after, widen, wider
from outdraft.drafters.shared.learning.vocab import choose_vocab
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import facts_of
from outdraft.options.errors import ConfigError

Options = TypeVar("Options", bound=BlockLearning)


def learn_blocks(
    kind: BlockKind[Own],
    options: type[Options],
    own: Callable[[Options], Own],
    *,
    summary: str,
    teaches: type[BlockLearner] = BlockLearner,
    **more: Any,
) -> LearnMethod[Options, Decoder]:
    """`own`: the sizes of the kind's own parts. `more`: other fields of the method."""

    def learner(net: BlockNet, target: Decoder, chosen: Options) -> BlockLearner:
        return teaches(net, target, lambda place: kind.save(net, place, target.dtype), chosen)

    def new(chosen: Options, target: Decoder, seed: int) -> BlockLearner:
        config = replace(block_config(chosen, target), slot_masks=kind.slot_masks)
        vocab = torch.arange(config.draft_vocab_size) if config.own_head else None
        net = kind.net(config, own(chosen), torch.float32, target.device, vocab)
        begin_blocks(net, target, seed)
        kind.begin(net)
        return learner(net, target, chosen)

    def load(chosen: Options, target: Decoder, directory: Path) -> BlockLearner:
        net = kind.load(directory, facts_of(target), torch.float32)
        net.config = replace(net.config, runtime_block_size=None)  # it learns, and promises, whole blocks
        return learner(net.train().requires_grad_(True), target, chosen)

    def inflate(head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
        """Write to `out_dir` the network in `head_dir` for `target`, inflated by `width` and `depth`."""
        kind.save(_inflated(kind, kind.load(head_dir, facts_of(target)), target, width, depth), out_dir)

    return LearnMethod(
        summary=summary,
        options=options,
        new=new,
        load=load,
        drafts={"width": 1, "sample": "match"},
        choose_vocab=lambda one, counts: choose_vocab(one.net, one.target, counts),
        model_type=kind.name,
        formats=block_formats(kind),
        inflate=inflate,
        **more,
    )


@torch.no_grad()
def _inflated(kind: BlockKind[Own], net: BlockNet, target: Decoder, width: int, depth: int) -> BlockNet:
    """The network for what `models.remake.inflate` makes of `target`, the small one.

    Raises `ConfigError` for a head behind the network's whose sizes follow the network's.
    """
    old, layers = net.config, net.config.layers
    config = replace(
        old,
        layers=wider(layers, width),
        taps=tuple(layers_after(tap, target.config.num_layers, depth) for tap in old.taps),
        target_hidden_size=old.target_hidden_size * width,
    )
    big = kind.net(config, net.own, net.dtype, target.device, net.vocab)
    normed = 1 if target.config.tie_embeddings and net.lm_head is None else width  # a tied head does not divide
    heights = {"kv": [layers.num_kv_heads * layers.head_dim] * 2, "up": [layers.intermediate_size] * 2}
    for name, parameter in big.named_parameters():
        small, stem = net.get_parameter(name), name.removesuffix(".weight").removesuffix(".bias")
        part = stem.rpartition(".")[2]
        if net.correction is not None and name.startswith("correction."):
            part = name.removeprefix("correction.")
            columns, share = net.correction.reads.get(part), width if part in net.correction.embeds else normed
            made = small if columns is None else _wider_columns(small, columns, width, share)
            if made.shape != parameter.shape:
                raise ConfigError(
                    f"inflate: {name} is as wide as the network, and a head is enlarged only where it has a width of "
                    "its own: take width=1"
                )
            parameter.copy_(made)
        elif name == "norm.weight":
            parameter.copy_(small.repeat(width) / (width / normed))
        elif part in ("embedding", "mask"):
            parameter.copy_(small.repeat(*(1,) * (small.dim() - 1), width))
        elif part == "base_kernel":
            parameter.copy_(small.repeat(1, 1, width))
        elif part == "kernel_projection":
            kernels = net.get_parameter(f"{stem.removesuffix(part)}base_kernel").shape[:2].numel()
            parameter.copy_(widen(small, width, 1, [len(small) // kernels] * kernels))
        elif part == "lm_head":
            parameter.copy_(small.repeat(1, width) / width)
        elif part in ("q_norm", "k_norm"):  # over one head, whose width stays
            parameter.copy_(small)
        else:
            parameter.copy_(widen(small, width, len(old.taps) if part == "fc" else 1, heights.get(part)))
    return big


def _wider_columns(small: Tensor, columns: slice, width: int, normed: int) -> Tensor:
    """A map [r, E] of which these columns read states, which are `width / normed` times smaller than they were."""
    states = small[:, columns].repeat(1, width) / normed
    return torch.cat((small[:, : columns.start], states, small[:, columns.stop :]), 1)
