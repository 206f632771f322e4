"""The tables that a draft may borrow from its target, where the target is a network, or stands behind a port."""

import torch
from torch import Tensor

from outdraft.models.files.borrowed import TargetTables
from outdraft.models.files.load import open_weights, tensors_of
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ModelLoadError


def tables_of(target: Decoder | TargetPort) -> TargetTables:
    """Read when they are asked for: a decoder's own, or those in the files that the target came from.

    Raises `ModelLoadError` then for a target without files, and for tables that are rounded.
    """
    if isinstance(target, Decoder):
        own = tensors_of(target)
        return TargetTables(name=lambda: "this target", read=lambda name: _found(own.get(name), name, "this target"))

    def read(name: str) -> Tensor:
        source = target.origin.source
        if source is None:
            raise ModelLoadError("the target came from no files, from which a draft could borrow its tables")
        config = (stored := open_weights(source)).config
        name = "embedding" if config.tie_embeddings else name
        if name not in {entry.ours for entry in stored.entries}:
            return _found(None, name, str(source))
        table = torch.empty(config.vocab_size, config.hidden_size, dtype=stored.dtype)
        stored.fill({name: table})
        return table

    return TargetTables(name=lambda: str(target.origin.source), read=read)


def _found(table: Tensor | None, name: str, target: str) -> Tensor:
    if table is None:
        raise ModelLoadError(f"{target} has its {name} rounded, which no draft can borrow: load it beside the original")
    return table
