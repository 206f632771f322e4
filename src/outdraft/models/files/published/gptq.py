"""GPTQ checkpoints (`quant_method: gptq`), as AutoGPTQ and GPTQModel write them.

    qweight  int32 [in * bits / 32, out]        a word holds 32 / bits neighbouring inputs of one output
    qzeros   int32 [groups, out * bits / 32]    a word holds 32 / bits neighbouring outputs of one group
    scales   float [groups, out]
    g_idx    int32 [in]                         each input's group; out of order with `desc_act`

`checkpoint_format` "gptq" (also where none is named) stores zero points minus one, "gptq_v2" as they are. The 1 is
subtracted and added in whole words, as GPTQModel does it: a zero point of 0 borrows from its neighbour. AutoGPTQ has no
way to store a zero point of 0.
Layout: AutoGPTQ, auto_gptq/nn_modules/qlinear/qlinear_cuda.py (https://github.com/AutoGPTQ/AutoGPTQ); the two formats:
GPTQModel, gptqmodel/utils/model.py (https://github.com/ModelCloud/GPTQModel). Frantar et al., "GPTQ", 2022,
https://arxiv.org/abs/2210.17323.
"""

from collections.abc import Mapping

from outdraft.models.files.published.linear import (
    Affine,
    Found,
    StoredLinear,
    find_grid,
    neighbour_groups,
    ordered_groups,
    require_part,
)
from outdraft.models.files.published.settings import Told, choose, group_size_of, refuse
from outdraft.models.files.published.words import PACKED_BITS, per_word, unpack_words
from outdraft.options.errors import ModelLoadError
from outdraft.weights.source import TensorSource

_FLOATS = ("F16", "BF16", "F32")


def read_gptq(source: TensorSource, told: Told) -> Found:
    """Raises `ModelLoadError` for settings that are not read and tensors that do not fit together."""
    bits = choose(told, ("bits",), PACKED_BITS)
    assert isinstance(bits, int)
    group_size = group_size_of(told, ("group_size",))
    stored_minus_one = choose(told, ("checkpoint_format", "format"), ("gptq", "gptq_v2"), "gptq") == "gptq"
    for key in ("is_marlin_format", "adapter"):
        if told.get(key):
            raise refuse(told, key, "which changes the layout or the arithmetic")
    if told.get("pack_dtype") not in (None, "int32"):
        raise refuse(told, "pack_dtype", "which outdraft does not read (it reads 'int32')")
    dynamic = told.get("dynamic") or {}
    if not isinstance(dynamic, Mapping) or not all(str(pattern).startswith("-:") for pattern in dynamic):
        raise refuse(told, "dynamic", "which gives some layers other bits")
    stems = [name.removesuffix(".qweight") for name in source if name.endswith(".qweight")]
    maps = {stem: _linear(source, stem, bits, group_size, stored_minus_one) for stem in stems}
    return Found(name="gptq", maps=maps)


def _linear(source: TensorSource, stem: str, bits: int, group_size: int, minus_one: bool) -> StoredLinear:
    names = {part: f"{stem}.{part}" for part in ("qweight", "qzeros", "scales", "g_idx")}
    packed = source.shape(names["qweight"])
    if len(packed) != 2:
        raise ModelLoadError(f"tensor '{names['qweight']}' in {source.origin} has shape {packed}, not [rows, outputs]")
    num_in, num_out, many = packed[0] * per_word(bits), packed[1], per_word(bits)
    size = num_in if group_size == -1 else group_size
    num_groups = -(-num_in // size)
    require_part(source, names["qweight"], packed, ("I32",))
    require_part(source, names["qzeros"], (num_groups, -(-num_out // many)), ("I32",))
    require_part(source, names["scales"], (num_groups, num_out), _FLOATS)
    groups = neighbour_groups(num_in, size)
    if names["g_idx"] in source:
        require_part(source, names["g_idx"], (num_in,), ("I32", "I64"))
        groups = ordered_groups(source[names["g_idx"]], num_groups, names["g_idx"], source)
    words_of_zeros = source[names["qzeros"]]
    if minus_one:
        words_of_zeros = words_of_zeros + _ones(bits)
    zeros = unpack_words(words_of_zeros, bits).flatten(1)[:, :num_out].t().short().contiguous()  # [out, groups]

    def read() -> Affine:
        words = unpack_words(source[names["qweight"]], bits)  # [in / many, out, many]
        codes = words.permute(1, 0, 2).reshape(num_out, num_in)
        return Affine(codes=codes, zeros=zeros, scales=source[names["scales"]].t().contiguous(), groups=groups)

    found = find_grid(bits, num_in, zeros, 2 ** (bits - 1), groups)
    parts = tuple(name for name in names.values() if name in source)
    scales = names["scales"]
    return StoredLinear(shape=(num_out, num_in), parts=parts, bits=bits, read=read, grid=found, scales=scales)


def _ones(bits: int) -> int:
    """A word that holds a 1 for each integer."""
    return sum(1 << (bits * place) for place in range(per_word(bits)))
