"""compressed-tensors checkpoints (`quant_method: compressed-tensors`), as LLM Compressor writes them.

    pack-quantized   weight_packed int32 [out, ceil(in * bits / 32)], neighbouring inputs from the lowest bits up, each
                     plus 2^(bits - 1); weight_shape [2]; weight_scale [out, groups]; weight_zero_point int32
                     [ceil(out * bits / 32), groups], neighbouring outputs in a word (or int8 [out, groups]), if it is
                     not symmetric; weight_g_idx [in], if activation order moved inputs between groups
    int-quantized    weight int8 [out, in], weight_scale and weight_zero_point [out, groups], [out, 1] or one number
    float-quantized  weight e4m3 [out, in] with weight_scale (`fp8.py`)
    nvfp4-pack-quantized, mxfp4-pack-quantized    weight_packed uint8 [out, in / 2] (`fp4.py`)

    strategy   scales of a weight [out, in]
    tensor     one number
    channel    [out, 1]
    group      [out, in / group_size]; so tensor_group, which has a factor of the whole weight besides
    block      [ceil(out / b0), ceil(in / b1)] for block_structure [b0, b1]

Which maps are quantized, and on how many bits, is read off the tensors, so that `ignore` and `targets` need not be
matched. Layout: compressed-tensors, compressors/quantized_compressors/pack_quantized.py, quantization/quant_args.py and
quantization/lifecycle/forward.py (https://github.com/vllm-project/compressed-tensors).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from outdraft.models.files.published.fp4 import four_bit_linear
from outdraft.models.files.published.fp8 import ACTIVATION_PARTS, block_of, float_linear, require_cover
from outdraft.models.files.published.linear import Affine, Found, StoredLinear, find_grid, ordered_groups, require_part
from outdraft.models.files.published.settings import CURE, Told, choose, refuse
from outdraft.models.files.published.words import PACKED_BITS, per_word, unpack_words
from outdraft.options.errors import ModelLoadError
from outdraft.options.shown import shown
from outdraft.weights.source import TensorSource

_FLOATS = ("F16", "BF16", "F32")
_BYTES = ("int-quantized", "float-quantized", "naive-quantized")
_FORMATS = ("pack-quantized", *_BYTES, "nvfp4-pack-quantized", "mxfp4-pack-quantized", "dense")


def read_compressed(source: TensorSource, told: Told) -> Found:
    """Raises `ModelLoadError` for settings that are not read and tensors that do not fit together."""
    schemes = _schemes(told)
    block = next((block for scheme in schemes if (block := block_of(scheme, "block_structure")) is not None), None)
    maps: dict[str, StoredLinear] = {}
    for name in source:
        stem, _, kind = name.rpartition(".")
        if kind == "weight_packed":
            if source.dtype_name(name) != "U8":
                maps[stem] = _packed(source, stem, schemes)
                continue
            maps[stem] = _with_zeros(source, stem, four_bit_linear(source, stem, kind))
            _require_strategy(source, f"{stem}.weight_scale", maps[stem].shape, ("float", 4), schemes)
        elif kind == "weight" and f"{stem}.weight_scale" in source:
            if source.dtype_name(name) == "I8":
                maps[stem] = _bytes(source, stem, schemes)
            else:
                maps[stem] = _with_zeros(source, stem, float_linear(source, stem, block))
                _require_strategy(source, f"{stem}.weight_scale", maps[stem].shape, ("float", 8), schemes)
    notes = []
    groups = told.get("config_groups")
    assert isinstance(groups, Mapping)
    if any(group.get("input_activations") or group.get("output_activations") for group in groups.values()):
        notes.append("activations are not rounded, as its config_groups would have it")
    if told.get("kv_cache_scheme"):
        notes.append("kv_cache_scheme is not used (kv_cache_dtype is outdraft's own)")
    return Found(name="compressed-tensors", maps=maps, unread=ACTIVATION_PARTS, notes=tuple(notes))


def _schemes(told: Told) -> list[Told]:
    """How each group of layers has its weights rounded. Raises `ModelLoadError` for what is not read."""
    groups = told.get("config_groups")
    if not isinstance(groups, Mapping) or not all(isinstance(group, Mapping) for group in groups.values()):
        raise refuse(told, "config_groups", "which is no table of layers")
    if told.get("format") != "mixed-precision":  # then each group names its own
        choose(told, ("format",), _FORMATS, "dense")
    choose(told, ("quantization_status",), ("compressed",), "compressed")
    sparsity = told.get("sparsity_config")
    if isinstance(sparsity, Mapping) and sparsity and sparsity.get("format") != "dense":
        raise refuse(told, "sparsity_config", "which is not read")
    transform = told.get("transform_config")
    if transform and not (isinstance(transform, Mapping) and not transform.get("config_groups")):
        raise refuse(told, "transform_config", "which turns activations while the model runs")
    schemes: list[Told] = []
    for name, group in groups.items():
        weights = group.get("weights")
        if weights is None:
            continue
        kind = (weights.get("type", "int"), weights.get("num_bits")) if isinstance(weights, Mapping) else None
        own = group.get("format")
        if kind not in (("int", 4), ("int", 8), ("float", 4), ("float", 8)) or own not in (None, *_FORMATS):
            raise ModelLoadError(
                f"config.json: quantization_config of quant_method='compressed-tensors' has config_groups.{name} with "
                f"weights={shown(weights)}, format={shown(own)}, which outdraft does not read (it reads int of 4 and 8 "
                f"bits and float of these): {CURE}"
            )
        schemes.append({"quant_method": "compressed-tensors", **weights})
    return schemes


def _packed(source: TensorSource, stem: str, schemes: list[Told]) -> StoredLinear:
    names = {
        part: f"{stem}.weight_{part}"
        for part in ("packed", "scale", "shape", "zero_point", "g_idx")
        if f"{stem}.weight_{part}" in source
    }
    packed = source.shape(names["packed"])
    require_part(source, f"{stem}.weight_shape", (2,), ("I64", "I32"))
    num_out, num_in = (int(size) for size in source[names["shape"]])
    bits = next((bits for bits in PACKED_BITS if packed == (num_out, -(-num_in // per_word(bits)))), None)
    if bits is None or source.dtype_name(names["packed"]) != "I32":
        raise ModelLoadError(
            f"tensor '{names['packed']}' in {source.origin} is {source.dtype_name(names['packed'])} of shape {packed}, "
            f"which is no weight of shape {(num_out, num_in)} on 4 or 8 bits: download it again"
        )
    num_groups = _groups_of(source, f"{stem}.weight_scale", num_out, num_in, "g_idx" in names)
    _require_strategy(source, f"{stem}.weight_scale", (num_out, num_in), ("int", bits), schemes)
    middle = 2 ** (bits - 1)
    zeros = torch.full((num_out, num_groups), middle, dtype=torch.int16)
    if "zero_point" in names:
        zeros = _zero_points(source, names["zero_point"], (num_out, num_groups), bits)
    groups = _order(source, names.get("g_idx"), num_in, num_groups)

    def read() -> Affine:
        codes = unpack_words(source[names["packed"]], bits).view(num_out, -1)[:, :num_in].contiguous()
        scales = source[names["scale"]].reshape(-1, num_groups).expand(num_out, num_groups)
        return Affine(codes=codes, zeros=zeros, scales=scales, groups=groups)

    found = find_grid(bits, num_in, zeros, middle, groups)
    parts, scales = tuple(names.values()), names["scale"]
    return StoredLinear(shape=(num_out, num_in), parts=parts, bits=bits, read=read, grid=found, scales=scales)


def _bytes(source: TensorSource, stem: str, schemes: list[Told]) -> StoredLinear:
    parts = ("", "_scale", "_zero_point", "_g_idx")
    names = {part: f"{stem}.weight{part}" for part in parts if f"{stem}.weight{part}" in source}
    num_out, num_in = source.shape(names[""])
    num_groups = _groups_of(source, names["_scale"], num_out, num_in, "_g_idx" in names)
    _require_strategy(source, names["_scale"], (num_out, num_in), ("int", 8), schemes)
    zeros = torch.zeros(num_out, num_groups, dtype=torch.int16)
    if "_zero_point" in names:
        require_part(source, names["_zero_point"], source.shape(names["_scale"]), ("I8",))
        zeros = source[names["_zero_point"]].short().reshape(-1, num_groups).expand(num_out, num_groups).contiguous()
    groups = _order(source, names.get("_g_idx"), num_in, num_groups)

    def read() -> Affine:
        scales = source[names["_scale"]].reshape(-1, num_groups).expand(num_out, num_groups)
        return Affine(codes=source[names[""]], zeros=zeros, scales=scales, groups=groups)

    found = find_grid(8, num_in, zeros, 0, groups)
    stored, scales = tuple(names.values()), names["_scale"]
    return StoredLinear(shape=(num_out, num_in), parts=stored, bits=8, read=read, grid=found, scales=scales)


def _order(source: TensorSource, name: str | None, num_in: int, num_groups: int) -> Tensor | None:
    """As `Affine.groups`, of the tensor weight_g_idx if there is one; -1 throughout means that nothing was moved."""
    if name is None:
        return None
    require_part(source, name, (num_in,), ("I32", "I64"))
    index = source[name]
    return ordered_groups(index, num_groups, name, source) if int(index[0]) >= 0 else None


def _groups_of(source: TensorSource, name: str, num_out: int, num_in: int, moved: bool) -> int:
    """How many groups of inputs have a scale. Raises `ModelLoadError` for scales that do not cover the weight."""
    if name not in source or source.dtype_name(name) not in _FLOATS:
        require_part(source, name, (num_out, 1), _FLOATS)
    found = source.shape(name)
    if not (moved and len(found) == 2 and found[0] == num_out and found[1] > 0):
        require_cover(source, name, (num_out, num_in), None)
    return found[1] if len(found) == 2 and found[0] == num_out else 1


def _zero_points(source: TensorSource, name: str, shape: tuple[int, int], bits: int) -> Tensor:
    """Zero points as the codes count: int16 [out, groups]."""
    middle = 2 ** (bits - 1)
    if source.dtype_name(name) == "I8":  # not packed: as signed numbers
        found = source.shape(name)
        require_part(source, name, found if found in ((), (1,)) else shape, ("I8",))
        signed: Tensor = source[name].short().reshape(-1, shape[1]).expand(shape)
        return torch.add(signed, middle)
    require_part(source, name, (-(-shape[0] // per_word(bits)), shape[1]), ("I32",))
    words = unpack_words(source[name].t(), bits)  # [groups, words, outputs of a word]
    zeros: Tensor = words.flatten(1)[:, : shape[0]].t().contiguous().short()
    return zeros


def _with_zeros(source: TensorSource, stem: str, linear: StoredLinear) -> StoredLinear:
    """The zero points that a map of floats may be stored with, which are zero."""
    name = f"{stem}.weight_zero_point"
    return replace(linear, parts=(*linear.parts, name)) if name in source else linear


def _require_strategy(
    source: TensorSource, name: str, shape: tuple[int, int], kind: tuple[str, int], schemes: Iterable[Told]
) -> None:
    """Raise `ModelLoadError` where the scales `name` of a weight of this shape are not those of any scheme.

    kind: type and bits of the map, as ("int", 4). Which of several groups of layers a map belongs to is not resolved:
    its scales must be right for one that has the map's own type and bits.
    """
    own = [scheme for scheme in schemes if (scheme.get("type", "int"), scheme.get("num_bits")) == kind]
    found = source.shape(name)
    if not any(found in _shapes(scheme, shape) for scheme in own):
        asked = " or ".join(sorted({_words(scheme, shape) for scheme in own})) or f"no {kind[0]} of {kind[1]} bits"
        raise ModelLoadError(
            f"tensor '{name}' in {source.origin} has shape {found} for a weight of shape {shape}, config_groups of "
            f"config.json ask for {asked}: download config.json and weights again, of one revision"
        )


def _strategy(scheme: Told) -> object:
    """The strategy of a scheme; where none is named, what its group_size says."""
    size = scheme.get("group_size")
    implied = "tensor" if size is None else "channel" if size == -1 else "group"
    return scheme.get("strategy") or implied


def _shapes(scheme: Told, shape: tuple[int, int]) -> tuple[tuple[int, ...], ...]:
    """The shapes that the scales may have."""
    match _strategy(scheme):
        case "tensor":
            return (), (1,), (1, 1)
        case "channel":
            return (shape[0], 1), (shape[0],)
        case "group" | "tensor_group" if isinstance(size := scheme.get("group_size"), int) and size > 0:
            return ((shape[0], -(-shape[1] // size)),)
        case "block" if (block := block_of(scheme, "block_structure")) is not None:
            return ((-(-shape[0] // block[0]), -(-shape[1] // block[1])),)
    return ()


def _words(scheme: Told, shape: tuple[int, int]) -> str:
    key = {"group": "group_size", "tensor_group": "group_size", "block": "block_structure"}.get(str(_strategy(scheme)))
    more = f" with {key}={shown(scheme.get(key))}" if key else ""
    found = _shapes(scheme, shape)
    return f"strategy={shown(_strategy(scheme))}{more}" + (f", shape {found[0]}" if found else ", which is not read")
