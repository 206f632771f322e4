"""AutoRound checkpoints in its own name (`quant_method: auto-round`): tensors of GPTQ or AWQ, as `packing_format` says.

    auto_round:auto_gptq                GPTQ, zero points minus one
    auto_round, auto_round:gptqmodel    GPTQ, zero points as they are
    auto_round:auto_awq                 AWQ

Its "auto_gptq" and "auto_awq" exports say gptq and awq. Layout: AutoRound, auto_round/inference/backend.py and
auto_round_extension/torch/qlinear_torch.py (https://github.com/intel/auto-round). Cheng et al., "Optimize weight
rounding via signed gradient descent for the quantization of LLMs", 2023, https://arxiv.org/abs/2309.05516.
"""

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from outdraft.models.files.published.awq import read_awq
from outdraft.models.files.published.gptq import read_gptq
from outdraft.models.files.published.linear import Found
from outdraft.models.files.published.settings import Told, choose, refuse
from outdraft.weights.source import TensorSource

_GPTQ = {"auto_round:auto_gptq": "gptq", "auto_round": "gptq_v2", "auto_round:gptqmodel": "gptq_v2"}
_AWQ = "auto_round:auto_awq"
_FLOATS_FROM = 16  # so many bits and more mean that a layer was left alone


def read_auto_round(source: TensorSource, told: Told) -> Found:
    """Raises `ModelLoadError` for packings and settings that are not read and tensors that do not fit together."""
    packing = choose(told, ("packing_format",), (*_GPTQ, _AWQ))
    choose(told, ("data_type",), ("int",), "int")
    for key in [one for one in told if one.endswith("_config") and one != "extra_config"]:
        if told[key]:
            raise refuse(told, key, "which turns activations while the model runs")
    own = told.get("extra_config") or {}
    if not isinstance(own, Mapping) or not all(_is_left_alone(one) for one in own.values()):
        raise refuse(told, "extra_config", "which gives some layers other settings")
    if packing == _AWQ:
        found = read_awq(source, ChainMap({"version": "gemm", "zero_point": True}, cast(dict[str, object], told)))
    else:
        found = read_gptq(source, ChainMap({"checkpoint_format": _GPTQ[str(packing)]}, cast(dict[str, object], told)))
    rounds = told.get("act_bits") is not None
    notes = ("activations are not rounded, as act_bits would have it",) if rounds else ()
    return replace(found, name="auto-round", notes=notes)


def _is_left_alone(settings: object) -> bool:
    bits = settings.get("bits") if isinstance(settings, Mapping) else None
    return isinstance(bits, int) and bits >= _FLOATS_FROM
