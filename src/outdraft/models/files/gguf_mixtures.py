"""Which type each tensor of a GGUF file gets in the mixtures that llama.cpp publishes under a name: q4_k_m, q8_0, ...

Maps whose errors cost most get more bits: values, the feed-forward network's second map and the attention's output, in
some layers or in all; the head, or the embedding that is the head, is on 6 or 8. Facts of its rules for dense models
without an importance matrix (https://github.com/ggml-org/llama.cpp, src/llama-quant.cpp, 2026).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from outdraft.kernels.decoder.blocks import SPANS

_LAYER = re.compile(r"blk\.(\d+)\.")
_NARROWER = {"IQ4_XS": "IQ4_NL", "Q2_K": "Q4_0", "Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What the rules ask of a model. `shared`: query heads to a head of keys; `is_largest`: of 70 billion weights."""

    num_layers: int
    shared: int = 1
    is_largest: bool = False


When = Callable[[int, int, Model], bool]  # (which layer, of how many, the model)
Rules = tuple[tuple[When, str], ...]


def _always(layer: int, count: int, model: Model) -> bool:
    return True


def _has_shared_heads(layer: int, count: int, model: Model) -> bool:
    return model.shared >= 4


def _outer_and_every_third(layer: int, count: int, model: Model) -> bool:
    return layer < count // 8 or layer >= 7 * count // 8 or (layer - count // 8) % 3 == 2


def _first(layers: int) -> When:
    return lambda layer, count, model: layer < layers


def _first_part(of: int) -> When:
    return lambda layer, count, model: layer < count // of


@dataclass(frozen=True, slots=True)
class Mixture:
    """`base` for every matrix, and the first rule that holds for values, down maps and the attention's output."""

    base: str
    value: Rules = ()
    down: Rules = ()
    out: Rules = ()


_MORE: Rules = ((_outer_and_every_third, "Q6_K"),)
_SHARED: Rules = ((_has_shared_heads, "Q5_K"),)
_START: Rules = ((_first_part(8), "Q5_K"),)
_ALL: dict[str, Rules] = {kind: ((_always, kind),) for kind in ("Q3_K", "Q4_K", "Q5_K")}
MIXTURES: Mapping[str, Mixture] = {
    "q4_0": Mixture("Q4_0"),
    "q4_1": Mixture("Q4_1"),
    "q5_0": Mixture("Q5_0"),
    "q5_1": Mixture("Q5_1"),
    "q8_0": Mixture("Q8_0"),
    "q2_k": Mixture("Q2_K", ((_has_shared_heads, "Q4_K"), (_always, "Q3_K")), _ALL["Q3_K"], _ALL["Q3_K"]),
    "q3_k_s": Mixture("Q3_K"),
    "q3_k_m": Mixture(
        "Q3_K", ((_first(2), "Q5_K"), (_always, "Q4_K")), ((_first_part(16), "Q5_K"), (_always, "Q4_K")), _ALL["Q4_K"]
    ),
    "q3_k_l": Mixture("Q3_K", _ALL["Q5_K"], _ALL["Q5_K"], _ALL["Q5_K"]),
    "q4_k_s": Mixture("Q4_K", ((_first(4), "Q5_K"),), _START),
    "q4_k_m": Mixture("Q4_K", _MORE, _MORE),
    "q5_k_s": Mixture("Q5_K"),
    "q5_k_m": Mixture("Q5_K", _MORE, _MORE),
    "q6_k": Mixture("Q6_K"),
    "iq4_nl": Mixture("IQ4_NL", _SHARED, _START),
    "iq4_xs": Mixture("IQ4_XS", _SHARED, _START),
}


def types_of(shapes: Mapping[str, tuple[int, ...]], mixture: Mixture, model: Model) -> dict[str, str]:
    """The types of the tensors that are rounded: matrices that are no norms. `shapes`: by llama.cpp's names."""
    names = [name for name, shape in shapes.items() if len(shape) == 2 and _is_rounded(name)]
    values = sorted(_layer_of(name) for name in names if _is_value(name))
    kinds = {}
    for name in names:
        if name == "output.weight" or (name == "token_embd.weight" and "output.weight" not in shapes):
            fits = shapes[name][-1] % SPANS[mixture.base][0] == 0
            kind = "Q6_K" if fits and mixture.base != "Q8_0" else "Q8_0"
        elif _is_value(name):
            kind = _chosen(mixture.value, values.index(_layer_of(name)), len(values), model) or mixture.base
            if model.is_largest and kind in ("Q3_K", "Q4_K"):
                kind = "Q5_K"
        else:
            rules = mixture.down if "ffn_down" in name else mixture.out if "attn_output.weight" in name else ()
            kind = _chosen(rules, _layer_of(name), model.num_layers, model) or mixture.base
        kinds[name] = fitting(kind, shapes[name][-1])
    return kinds


def fitting(kind: str, width: int) -> str:
    """The type for rows of this width: another where its blocks do not divide them, F16 where none do."""
    if width % SPANS[kind][0]:
        kind = _NARROWER.get(kind, kind)
    return "F16" if width % SPANS[kind][0] else kind


def _is_rounded(name: str) -> bool:
    return name.endswith("weight") and not name.endswith("_norm.weight")


def _is_value(name: str) -> bool:
    return "attn_v.weight" in name or "attn_qkv.weight" in name


def _layer_of(name: str) -> int:
    found = _LAYER.match(name)
    return int(found[1]) if found else 0


def _chosen(rules: Rules, layer: int, count: int, model: Model) -> str:
    return next((kind for holds, kind in rules if holds(layer, count, model)), "")
