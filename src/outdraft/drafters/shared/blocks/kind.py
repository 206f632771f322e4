"""A kind of block network, as data: what stands around and behind the backbone, and how files say so.

    BlockKind   parts(config, own, ...) -> convolution, correction      read, write: `own` in config.json
                entries(config, own)    -> tensors of these parts       begin: their first weights

From it come the registration of the drafter (`drafter.py`) and of its training (`method.py`).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from outdraft.drafters.shared.blocks.correction import Correction
from outdraft.drafters.shared.blocks.files import BESIDE, entries_of, own_tensors, read_blocks
from outdraft.drafters.shared.blocks.keys import NAMED, Absent, whole_number
from outdraft.drafters.shared.blocks.net import BlockConfig, BlockNet
from outdraft.drafters.shared.blocks.written import written
from outdraft.drafters.shared.learning.vocab import stored
from outdraft.models.families.shared.naming import Entry
from outdraft.models.files.foreign_heads import fill, instead, read_config, tensors_of_net, write_directory
from outdraft.models.files.load import read_json
from outdraft.models.networks.port import TargetFacts
from outdraft.options.errors import ModelLoadError
from outdraft.options.shown import shown
from outdraft.weights.source import TensorSource

Own = TypeVar("Own")  # the sizes of its own parts


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockParts:
    """What a kind adds to the backbone."""

    convolution: Callable[[], nn.Module] | None = None  # around a sublayer
    correction: Correction | None = None


def sizes(kind: type[Own], said: Mapping[str, Any], directory: Path, *, least: int = 1) -> Own:
    """A dataclass of whole numbers, all of them keys of config.json. Raises `ModelLoadError` where one is none."""
    names = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: whole_number(said, name, directory, least=least) for name in names})


def correction_entries(names: Mapping[str, str]) -> Callable[[BlockConfig, Any], Iterable[Entry]]:
    """Of a correction whose parameters are each one tensor: ours -> theirs."""
    table = [Entry(ours=f"correction.{ours}", theirs=(theirs,)) for ours, theirs in names.items()]
    return lambda config, own: table


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockKind(Generic[Own]):
    """`read`: raises `ModelLoadError` for keys that are damaged."""

    name: str  # of the method, and speculators_model_type
    architecture: str  # as config.json names it
    flat_architecture: str | None  # in z-lab's layout; None: it is not written so
    read: Callable[[Mapping[str, Any], TensorSource, Path], Own]
    write: Callable[[Own], Mapping[str, Any]]
    parts: Callable[[BlockConfig, Own, torch.dtype, torch.device], BlockParts] = lambda *_: BlockParts()
    entries: Callable[[BlockConfig, Own], Iterable[Entry]] = lambda config, own: ()
    begin: Callable[[BlockNet], None] = lambda net: None  # its own parts' first weights
    slot_masks: bool = False  # each slot behind the anchor's has a row of its own for the mask
    keys: tuple[str, ...] = ()  # of config.json, that `read` reads
    mark: str | None = None  # a tensor by which its directories are known; None: it has none beside the backbone's
    also: Mapping[str, str] = field(default_factory=dict)  # other names of its tensors -> ours
    absent: Absent = field(default_factory=Absent)  # what keys mean that are not there
    served: Mapping[str, str] = field(default_factory=dict)  # server -> the line that serves speculators' layout
    served_flat: Mapping[str, str] = field(default_factory=dict)  # and z-lab's

    def lies_in(self, directory: Path) -> bool:
        """Whether a directory holds such a network, in speculators' layout."""
        return read_config(directory).get(NAMED) == self.name

    def lies_flat_in(self, directory: Path) -> bool:
        """Whether a directory, or a GGUF file, holds such a network in another layout."""
        if read_config(directory).get(NAMED) is not None:
            return False
        own = own_tensors(directory, self.also)
        return own is not None and self._is_of(own)

    def _is_of(self, own: Collection[str]) -> bool:
        return not own if self.mark is None else self.mark in own

    def net(
        self, config: BlockConfig, own: Own, dtype: torch.dtype, device: torch.device, vocab: Tensor | None
    ) -> BlockNet:
        parts = self.parts(config, own, dtype, device)
        return BlockNet(
            config, dtype, device, vocab, convolution=parts.convolution, correction=parts.correction, own=own
        )

    def load(self, directory: Path, facts: TargetFacts, dtype: torch.dtype | None = None) -> BlockNet:
        """The network in `directory` for this target; in the target's type unless `dtype` is given.

        Raises `ModelLoadError` for damaged or contradictory files, `CapabilityError` for another target's network.
        """
        is_file = directory.is_file()
        told = None if is_file else read_json(directory / "config.json").get(NAMED)
        own_names = own_tensors(directory, self.also)
        if told is None and own_names is None and not is_file:
            raise ModelLoadError(f"{directory} holds no block network{instead(directory)}")
        if told not in (None, self.name):
            raise ModelLoadError(f"{directory} holds a {shown(told)}, no {self.name} network{instead(directory)}")
        if told is None and own_names is not None and not self._is_of(own_names):
            raise ModelLoadError(f"{directory} holds no {self.name} network by its tensors{instead(directory)}")
        files = read_blocks(directory, facts, self.absent, self.keys, self.also)
        files.config.require(facts)
        if (head := files.said.get("projector_type")) not in (None, "dflash", self.name):
            raise ModelLoadError(
                f"{directory}: config.json says projector_type={shown(head)}, its tensors are those of {self.name}: "
                "take both from one place, or download them again"
            )
        config, own = files.config, self.read(files.said, files.tensors, directory)

        def make(device: torch.device | None) -> BlockNet:
            vocab = files.vocab if device is None else None
            return self.net(config, own, dtype or facts.dtype, device or facts.device, vocab)

        table = [*entries_of(config), *self.entries(config, own)]
        return fill(make, table, files.tensors, f"{self.name} network in {directory}", beside=BESIDE)

    def save(self, net: BlockNet, directory: Path, dtype: torch.dtype | None = None) -> None:
        """config.json and model.safetensors in speculators' layout."""
        config = net.config
        tensors = tensors_of_net(net, [*entries_of(config), *self.entries(config, net.own)], dtype or net.dtype)
        tensors |= stored(net.vocab, config.layers.vocab_size)
        told = {**written(config, self.name, self.architecture, dtype or net.dtype), **self.write(net.own)}
        write_directory(directory, told, tensors)
