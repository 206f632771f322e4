"""AWQ checkpoints (`quant_method: awq`, `version: gemm`), as AutoAWQ writes them.

    qweight  int32 [in, out / 8]        a word holds 8 outputs of one input, from its lowest bits up
                                        outputs 0, 2, 4, 6, 1, 3, 5, 7 of the eight
    qzeros   int32 [in / group, out / 8]    in the same order
    scales   float [in / group, out]

Layout: AutoAWQ, awq/utils/packing_utils.py (https://github.com/casper-hansen/AutoAWQ). Lin et al., "AWQ:
activation-aware weight quantization for LLM compression and acceleration", 2023, https://arxiv.org/abs/2306.00978.
"""

import torch
from torch import Tensor

from outdraft.models.files.published.linear import (
    Affine,
    Found,
    StoredLinear,
    find_grid,
    neighbour_groups,
    require_part,
)
from outdraft.models.files.published.settings import Told, choose, group_size_of
from outdraft.models.files.published.words import per_word, unpack_words
from outdraft.options.errors import ModelLoadError
from outdraft.weights.source import TensorSource

_BITS = 4
_MANY = per_word(_BITS)
_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # which output each place of a word holds


def read_awq(source: TensorSource, told: Told) -> Found:
    """Raises `ModelLoadError` for settings that are not read and tensors that do not fit together."""
    choose(told, ("bits", "w_bit"), (_BITS,))
    choose(told, ("version",), ("gemm",), "gemm")
    choose(told, ("backend",), ("autoawq",), "autoawq")
    choose(told, ("zero_point",), (True,), True)
    group_size = group_size_of(told, ("group_size", "q_group_size"))
    stems = [name.removesuffix(".qweight") for name in source if name.endswith(".qweight")]
    return Found(name="awq", maps={stem: _linear(source, stem, group_size) for stem in stems})


def in_order(words: Tensor) -> Tensor:
    """words int32 [R, out / 8] -> uint8 [R, out]."""
    return unpack_words(words, _BITS)[:, :, torch.tensor(_ORDER).argsort()].flatten(1)


def _linear(source: TensorSource, stem: str, group_size: int) -> StoredLinear:
    names = {part: f"{stem}.{part}" for part in ("qweight", "qzeros", "scales")}
    packed = source.shape(names["qweight"])
    if len(packed) != 2:
        raise ModelLoadError(f"tensor '{names['qweight']}' in {source.origin} has shape {packed}, not [inputs, words]")
    num_in, num_out = packed[0], packed[1] * _MANY
    size = num_in if group_size == -1 else group_size
    num_groups = -(-num_in // size)
    require_part(source, names["qweight"], packed, ("I32",))
    require_part(source, names["qzeros"], (num_groups, packed[1]), ("I32",))
    require_part(source, names["scales"], (num_groups, num_out), ("F16", "BF16", "F32"))
    groups = neighbour_groups(num_in, size)
    zeros = in_order(source[names["qzeros"]]).short().t().contiguous()  # [out, groups]

    def read() -> Affine:
        codes = in_order(source[names["qweight"]]).t().contiguous()
        return Affine(codes=codes, zeros=zeros, scales=source[names["scales"]].t().contiguous(), groups=groups)

    found = find_grid(_BITS, num_in, zeros, 2 ** (_BITS - 1), groups)
    parts, scales = tuple(names.values()), names["scales"]
    return StoredLinear(shape=(num_out, num_in), parts=parts, bits=_BITS, read=read, grid=found, scales=scales)
