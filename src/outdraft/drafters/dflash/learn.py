"""Train DFlash's network on a frozen target.

Chen et al., 2026, https://arxiv.org/abs/2602.06036: random anchors, a loss on each masked slot. Ours compares with the
target's whole distribution (`--loss cross_entropy=1` is the paper's), and slots count as D-PACE says (`pace=False`: by
a fixed decay, as in the paper).
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from outdraft.core.learner import LearnMethod
from outdraft.drafters.dflash.formats import MODEL_TYPE, load_dflash, save_dflash
from outdraft.drafters.shared.blocks.config import BlockConfig
from outdraft.drafters.shared.blocks.inflate import inflate_blocks
from outdraft.drafters.shared.blocks.learn import BlockLearner, BlockLearning, begin_blocks, block_config, choose_vocab
from outdraft.drafters.shared.blocks.net import BlockNet
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import facts_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DflashLearning(BlockLearning):
    """The network's shape, and how its blocks are trained."""


def _new(options: DflashLearning, target: Decoder, seed: int) -> BlockLearner:
    config: BlockConfig = block_config(options, target)
    vocab = torch.arange(config.draft_vocab_size) if config.own_head else None
    net = BlockNet(config, torch.float32, target.device, vocab)
    begin_blocks(net, target, seed)
    return _learner(net, target, options)


def _learner(net: BlockNet, target: Decoder, options: DflashLearning) -> BlockLearner:
    return BlockLearner(net, target, lambda place: save_dflash(net, place, target.dtype), options)


def _load(options: DflashLearning, target: Decoder, directory: Path) -> BlockLearner:
    net = load_dflash(directory, facts_of(target), torch.float32)
    return _learner(net.train().requires_grad_(True), target, options)


def inflate(head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
    """Write to `out_dir` the network in `head_dir` for `target`, inflated by `width` and `depth`."""
    net = load_dflash(head_dir, facts_of(target))
    big = inflate_blocks(
        net, target, lambda config: BlockNet(config, net.dtype, target.device, net.vocab), width, depth
    )
    save_dflash(big, out_dir)


LEARN = LearnMethod(
    summary="a block of tokens in one pass, from the target's states of all committed rows",
    options=DflashLearning,
    new=_new,
    load=_load,
    drafts={"width": 1, "sample": "match"},
    choose_vocab=choose_vocab,
    model_type=MODEL_TYPE,
    inflate=inflate,
)
