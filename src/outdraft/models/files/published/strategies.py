"""Whether the scales of a compressed-tensors map have the shape that its `config_groups` ask for.

    strategy   scales of a weight [out, in]
    tensor     one number
    channel    [out, 1]
    group      [out, in / group_size]; so tensor_group, which has a factor of the whole weight besides
    block      [ceil(out / b0), ceil(in / b1)] for block_structure [b0, b1]

Which of several groups of layers a map belongs to is not resolved: its scales must be right for one that has the map's
own type and bits. Layout: compressed-tensors, quantization/quant_args.py
(https://github.com/vllm-project/compressed-tensors).
"""

from collections.abc import Iterable

from outdraft.models.files.published.fp8 import block_of
from outdraft.models.files.published.settings import Told
from outdraft.options.errors import ModelLoadError
from outdraft.options.shown import shown
from outdraft.weights.source import TensorSource

Shape = tuple[int, ...]


def require_strategy(
    source: TensorSource, name: str, shape: tuple[int, int], kind: tuple[str, int], schemes: Iterable[Told]
) -> None:
    """Raise `ModelLoadError` where the scales `name` of a weight of this shape are not those of any scheme.

    kind: type and bits of the map, as ("int", 4).
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


def _shapes(scheme: Told, shape: tuple[int, int]) -> tuple[Shape, ...]:
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
