"""DFlash's directories: speculators' layout, which is ours too, and z-lab's."""

from pathlib import Path

import torch

from outdraft.drafters.shared.blocks.files import BESIDE, entries_of, read_blocks, written
from outdraft.drafters.shared.blocks.net import BlockNet
from outdraft.drafters.shared.learning.vocab import differences, membership
from outdraft.models.files.foreign_heads import fill, tensors_of_net, write_directory
from outdraft.models.networks.port import TargetFacts

MODEL_TYPE, ARCHITECTURE = "dflash", "DFlashDraftModel"


def load_dflash(directory: Path, facts: TargetFacts, dtype: torch.dtype | None = None) -> BlockNet:
    """The network in `directory` for this target; in the target's type unless `dtype` is given.

    Raises `ModelLoadError` for damaged or contradictory files, `CapabilityError` for another target's network.
    """
    files = read_blocks(directory, facts.hidden_size)
    files.config.require(facts)

    def make(device: torch.device | None) -> BlockNet:
        vocab = files.vocab if device is None else None
        return BlockNet(files.config, dtype or facts.dtype, device or facts.device, vocab)

    return fill(make, entries_of(files.config), files.tensors, f"DFlash network in {directory}", beside=BESIDE)


def save_dflash(net: BlockNet, directory: Path, dtype: torch.dtype | None = None) -> None:
    """config.json and model.safetensors in speculators' layout."""
    tensors = tensors_of_net(net, entries_of(net.config), dtype)
    if net.vocab is not None:
        tensors["d2t"] = differences(net.vocab)
        tensors["t2d"] = membership(net.vocab, net.config.layers.vocab_size)
    write_directory(directory, written(net.config, MODEL_TYPE, ARCHITECTURE, dtype or net.dtype), tensors)
