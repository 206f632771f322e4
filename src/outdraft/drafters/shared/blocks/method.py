"""How networks of one kind are trained: the registration."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from outdraft.core.learner import LearnMethod
from outdraft.drafters.shared.blocks.formats import block_formats
from outdraft.drafters.shared.blocks.inflate import inflate_blocks
from outdraft.drafters.shared.blocks.kind import BlockKind, Own
from outdraft.drafters.shared.blocks.learn import BlockLearner, BlockLearning, begin_blocks, block_config
from outdraft.drafters.shared.blocks.net import BlockNet
from outdraft.drafters.shared.learning.vocab import choose_vocab
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import facts_of

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
        net = kind.load(head_dir, facts_of(target))
        big = inflate_blocks(
            net, target, lambda config: kind.net(config, net.own, net.dtype, target.device, net.vocab), width, depth
        )
        kind.save(big, out_dir)

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
