"""Weights that are stored as float16 are computed in bfloat16, where the native kernels can and no type was asked for.

bfloat16 has the range of float32 and eight bits of precision, float16 eleven: nothing overflows, and most numbers are
rounded once more (docs/files_of_others.md says by how much). Through PyTorch a CPU takes about three times as long.
"""

import logging
from dataclasses import replace

import torch

from outdraft.models.files.load import StoredWeights, named_dtype
from outdraft.models.networks.native import can_pack

_log = logging.getLogger(__name__)


def in_kernels_type(stored: StoredWeights, asked: str | torch.dtype | None, device: torch.device) -> StoredWeights:
    """The same weights, to be read as bfloat16 where they are float16 and the kernels compute that; one line says so.

    asked: the number format that the caller gave; None and "auto" are none.
    """
    as_stored = named_dtype(asked) is None and stored.dtype == torch.float16
    if not (as_stored and can_pack(stored.config, torch.bfloat16, device)):
        return stored
    _log.warning(
        "%s is stored as float16 and computed as bfloat16, which the native kernels know: its numbers are rounded once "
        "more (dtype='float16' keeps them, and runs through PyTorch, more slowly)",
        stored.source.origin.name,
    )
    return replace(stored, dtype=torch.bfloat16)
