"""What is rounded, and how coarsely: one frozen record, which goes into config.json and into every result.

Layers may differ: some stay as they are (`keep`), some have other bits than the rest (`layer_bits`). A quantized model
is another model with another distribution. `variant` names it. Layers may also keep the blocks of a GGUF file.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import isfinite

from outdraft.nn.quant.blocks import BLOCKS
from outdraft.options.checked import check_fields
from outdraft.options.errors import ConfigError, ModelLoadError

Parts = tuple[tuple[str, int], ...]  # of a map: the type of blocks and the outputs of each, in order
BITS = (8, 4)
GROUP_SIZES = (0, 32, 64, 128)
METHODS = ("rtn", "gptq")
QUANT_METHOD = "outdraft"  # `quant_method` in config.json
VERSION, BLOCKS_VERSION = 1, 2  # of the record; the second has blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantConfig:
    """`keep` and `layer_bits` name layers by our names; `*` stands for anything ("lm_head", "layers.0.*", "*.down").

    Raises:
        ConfigError: bits, group_size, method or layer_bits out of range.
    """

    bits: int = 4
    group_size: int = 32  # inputs that share a scale; 0: all inputs of an output
    method: str = "rtn"  # how the integers were chosen; the layout is the same
    keep: tuple[str, ...] = ("lm_head",)  # stay as they are
    layer_bits: tuple[tuple[str, int], ...] = ()  # (layers, their bits): the first that matches, before `bits`
    blocks: tuple[tuple[str, Parts], ...] = ()  # maps, or "embedding", that keep the blocks of a file
    factors: tuple[tuple[str, tuple[float, ...]], ...] = ()  # of a map's parts, beside their blocks: where one is not 1

    def __post_init__(self) -> None:
        check_fields(self)
        for name, value, known in (
            ("bits", self.bits, BITS),
            ("group_size", self.group_size, GROUP_SIZES),
            ("method", self.method, METHODS),
            *((f"layer_bits {pattern}", bits, BITS) for pattern, bits in self.layer_bits),
            *((f"blocks {name}", kind, tuple(BLOCKS)) for name, parts in self.blocks for kind, _ in parts),
        ):
            if isinstance(value, bool) or value not in known:
                raise ConfigError(f"{name}={value!r} is not supported: choose {' or '.join(map(str, known))}")

    @property
    def variant(self) -> str:
        """The name of the rounding, for results: "int4-g32", "int8", "int4-g32-gptq".

        "-mixed": layers differ, for more than the head.
        """
        group = f"-g{self.group_size}" if self.group_size else ""
        method = "" if self.method == "rtn" else f"-{self.method}"
        mixed = "-mixed" if self.layer_bits or set(self.keep) - {"lm_head"} else ""
        return f"int{self.bits}{group}{method}{mixed}"

    def covers(self, name: str) -> bool:
        """Whether the linear map `name` is on our grid of integers."""
        return not any(fnmatchcase(name, pattern) for pattern in self.keep)

    def parts_of(self, name: str, num_out: int) -> Parts:
        """The blocks of a linear map, or of "embedding"; () where it has none.

        One part has `num_out` outputs, whatever is stored here: what the model asks for, against which files are held.
        """
        parts = next((parts for map_name, parts in self.blocks if map_name == name), ())
        return parts if len(parts) != 1 else ((parts[0][0], num_out),)

    def factors_of(self, name: str) -> tuple[float, ...]:
        """What the parts of a linear map are multiplied by besides; () where that is 1."""
        return next((factors for map_name, factors in self.factors if map_name == name), ())

    def bits_at(self, name: str) -> int:
        """Bits of a weight of the linear map `name`, if it is rounded."""
        return next((bits for pattern, bits in self.layer_bits if fnmatchcase(name, pattern)), self.bits)

    @property
    def common_bits(self) -> int:
        """Bits of most of the rounded weights."""
        if not self.blocks:
            return self.bits
        rows: Counter[str] = Counter()
        for _, parts in self.blocks:
            for kind, count in parts:
                rows[kind] += count
        block = BLOCKS[rows.most_common(1)[0][0]]
        return 8 * block.size // block.weights

    def to_json(self) -> dict[str, object]:
        """The value of config.json's `quantization_config`."""
        return {
            "quant_method": QUANT_METHOD,
            "version": BLOCKS_VERSION if self.blocks else VERSION,
            "bits": self.bits,
            "group_size": self.group_size,
            "method": self.method,
            "keep": list(self.keep),
            **({"layer_bits": dict(self.layer_bits)} if self.layer_bits else {}),
            **({"blocks": dict(self.blocks)} if self.blocks else {}),
            **({"factors": dict(self.factors)} if self.factors else {}),
        }


def read_quant(raw: object) -> QuantConfig | None:
    """What config.json's `quantization_config` says; None where nothing is rounded.

    Raises:
        ModelLoadError: another program's format, a later version of ours, or a damaged record.
    """
    if not raw:
        return None
    if not isinstance(raw, Mapping):
        raise ModelLoadError(f"config.json: quantization_config={raw!r} is not a table: write the model again")
    method, version = raw.get("quant_method"), raw.get("version")
    if method != QUANT_METHOD:
        raise ModelLoadError(
            f"config.json: quantization_config has quant_method={method!r}, which outdraft does not read: "
            "take the unquantized model and run `outdraft quantize` on it, or take a GGUF file"
        )
    if version not in (VERSION, BLOCKS_VERSION):
        raise ModelLoadError(
            f"config.json: quantization_config has version={version!r}, this outdraft reads {BLOCKS_VERSION}: "
            "quantize the original again, or install the outdraft that wrote it"
        )
    keep = raw.get("keep", ())
    if not isinstance(keep, list | tuple) or not all(isinstance(name, str) for name in keep):
        raise ModelLoadError(f"config.json: quantization_config has keep={keep!r}, not a list of layer names")
    layer_bits = raw.get("layer_bits", {})
    if not isinstance(layer_bits, Mapping):
        raise ModelLoadError(f"config.json: quantization_config has layer_bits={layer_bits!r}, not a table")
    blocks = raw.get("blocks", {})
    if not isinstance(blocks, Mapping) or not all(isinstance(parts, list) for parts in blocks.values()):
        raise ModelLoadError(f"config.json: quantization_config has blocks={blocks!r}, not a table of lists")
    factors = raw.get("factors", {})
    if not isinstance(factors, Mapping) or not all(
        _is_one_each(one, blocks.get(name)) for name, one in factors.items()
    ):
        raise ModelLoadError(
            f"config.json: quantization_config has factors={factors!r}, not one for each of its blocks"
        )
    try:
        return QuantConfig(
            bits=raw.get("bits", 0),
            group_size=raw.get("group_size", -1),
            method=raw.get("method", "rtn"),
            keep=tuple(keep),
            layer_bits=tuple(layer_bits.items()),
            blocks=tuple((name, tuple(tuple(part) for part in parts)) for name, parts in blocks.items()),
            factors=tuple((name, tuple(own)) for name, own in factors.items()),
        )
    except (ConfigError, TypeError) as error:
        raise ModelLoadError(f"config.json: quantization_config: {error}") from error


def _is_one_each(factors: object, parts: object) -> bool:
    """Whether each of the parts of a map has a factor."""
    return (
        isinstance(factors, list)
        and isinstance(parts, list)
        and len(factors) == len(parts)
        and all(isinstance(one, float) and isfinite(one) for one in factors)
    )
