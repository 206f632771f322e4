"""Which reader a `quant_method` has, and what to do instead where it has none."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from outdraft.models.files.published.asked import AskedTable
from outdraft.models.files.published.auto_round import read_auto_round
from outdraft.models.files.published.awq import read_awq
from outdraft.models.files.published.compressed import read_compressed
from outdraft.models.files.published.fp8 import read_fp8
from outdraft.models.files.published.gptq import read_gptq
from outdraft.models.files.published.linear import Found
from outdraft.models.files.published.modelopt import read_modelopt
from outdraft.models.files.published.settings import CURE, Told
from outdraft.options.errors import ModelLoadError
from outdraft.options.near_miss import near_miss
from outdraft.options.shown import shown
from outdraft.weights.source import TensorSource

FORMATS: Mapping[str, Callable[[TensorSource, Told], Found]] = {
    "gptq": read_gptq,
    "awq": read_awq,
    "compressed-tensors": read_compressed,
    "fp8": read_fp8,
    "auto-round": read_auto_round,
    "modelopt": read_modelopt,
}
REFUSED = {  # quant_method -> what it is
    "bitsandbytes": "blocks of NF4, FP4 or LLM.int8() numbers of the bitsandbytes library",
    "mxfp4": "4-bit floats with a power of two for each 32",
    "nvfp4": "4-bit floats with an 8-bit float for each 16",
    "fbgemm_fp8": "8-bit floats of FBGEMM",
    "exl2": "ExLlamaV2's layers of mixed bits",
    "exl3": "ExLlamaV3's trellis codes",
    "hqq": "half-quadratic quantization",
    "quanto": "Optimum Quanto's tensors",
    "torchao": "torchao's tensors",
    "aqlm": "additive codebooks",
    "quip": "lattice codebooks",
    "vptq": "vector codebooks",
    "spqr": "sparse outliers beside small integers",
    "higgs": "grids of Hadamard-turned weights",
    "eetq": "EETQ's bytes",
    "bitnet": "ternary weights",
    "quark": "AMD Quark's tensors",
    "sinq": "two scales, of rows and of columns",
    "marlin": "weights in the order of one GPU kernel",
}


def find_maps(source: TensorSource, told: object) -> Found:
    """The quantized maps of a checkpoint whose config.json says `told` of its quantization.

    Raises:
        ModelLoadError: a format, a setting or a layout that is not read; it says what to take instead.
    """
    if not isinstance(told, Mapping):
        raise ModelLoadError(f"config.json: quantization_config={shown(told)} is not a table: download it again")
    method = told.get("quant_method")
    if method is None and (told.get("load_in_4bit") or told.get("load_in_8bit")):
        method = "bitsandbytes"
    read = FORMATS.get(method) if isinstance(method, str) else None
    if read is None:
        what = REFUSED.get(method, "") if isinstance(method, str) else ""
        close = "" if what else near_miss(str(method), FORMATS)
        what = f" ({what})" if what else close
        raise ModelLoadError(
            f"config.json: quantization_config has quant_method={shown(method)}{what}, which outdraft does not read "
            f"(it reads {', '.join(FORMATS)} and its own): {CURE}, or a checkpoint in one of those formats"
        )
    asked = AskedTable(told)
    found = read(source, asked)
    if not found.maps:
        raise ModelLoadError(
            f"config.json of {source.origin} says quant_method={shown(method)}, but no tensor there is quantized so: "
            "download config.json and weights again, of one revision"
        )
    unread = asked.unread
    note = f"quantization_config has keys that are not read: {', '.join(unread)}"
    return replace(found, notes=(*found.notes, note)) if unread else found
