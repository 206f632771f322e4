"""An EAGLE-3 network from and to a directory."""

from pathlib import Path

import torch

from outdraft.drafters.eagle3.net import Eagle3Net, Lent, entries_of
from outdraft.drafters.eagle3.spellings import read_eagle3, written
from outdraft.drafters.shared.learning.vocab import differences, membership
from outdraft.models.files.foreign_heads import fill, tensors_of_net, write_directory
from outdraft.models.networks.port import TargetFacts


def save_eagle3(net: Eagle3Net, directory: Path, dtype: torch.dtype | None = None) -> None:
    """config.json and model.safetensors, in speculators' layout. `dtype`: of the numbers; their own by default."""
    tensors = tensors_of_net(net, entries_of(net.config), dtype)
    if net.vocab is not None:
        tensors["d2t"] = differences(net.vocab)
        tensors["t2d"] = membership(net.vocab, net.config.layers.vocab_size)
    write_directory(directory, written(net.config, dtype or net.dtype), tensors)


def load_eagle3(
    directory: Path, facts: TargetFacts, dtype: torch.dtype | None = None, *, lent: Lent | None = None
) -> Eagle3Net:
    """The network in `directory`, in whatever spelling, for this target; in the target's type unless `dtype` is given.

    lent: the target's norm and head; without them a network that has no head of its own cannot draft.

    Raises `ModelLoadError` for damaged or contradictory files, `CapabilityError` for another target's network.
    """
    files = read_eagle3(directory, facts.num_layers)
    files.config.require(facts)
    vocab = files.vocab

    def make(device: torch.device | None) -> Eagle3Net:
        own = vocab if device is None else None
        return Eagle3Net(files.config, dtype or facts.dtype, device or facts.device, own, lent)

    return fill(make, entries_of(files.config), files.tensors, f"EAGLE-3 network in {directory}", beside=("d2t", "t2d"))
