"""Models that AutoRound itself rounded and saved, and made whole again by its own layers on the unit matrix.

    python tests/peers/quantized/by_auto_round.py WORK_FOLDER tests/models/published/made

AutoRound (0.16.1, https://github.com/intel/auto-round) writes `quant_method` "gptq", "awq", or "auto-round" with a
`packing_format`: "auto_round:auto_gptq", "auto_round:auto_awq", or "auto_round" (zero points as they are).
"""

import sys
from pathlib import Path

import auto_round
import torch
from auto_round import AutoRound
from tiny import GROUP, record, save_plain, saved
from transformers import AutoModelForCausalLM, AutoTokenizer

WORK, OUT = Path(sys.argv[1]), Path(sys.argv[2])


def whole_of(folder, written, packed, kind):
    """By the layers that AutoRound's own loader puts in: torch ones for GPTQ's words, AutoAWQ's formula for AWQ's."""
    told, found = written["quantization_config"], {}
    for stem in {name.rpartition(".")[0] for name in packed if name.endswith(".qweight")}:
        parts = {name.rpartition(".")[2]: one for name, one in packed.items() if name.startswith(stem + ".")}
        if kind == "awq":
            from auto_round.export.export_to_awq.utils import dequantize_gemm

            weight = dequantize_gemm(parts["qweight"], parts["qzeros"], parts["scales"].float(), 4, GROUP)
            found[stem] = weight.t()
            continue
        num_out, num_in = parts["qweight"].shape[1], parts["qweight"].shape[0] * 32 // told["bits"]
        one = kind.QuantLinear(told["bits"], GROUP, num_in, num_out, False)
        one.load_state_dict({name: tensor for name, tensor in parts.items() if name != "g_idx"})
        one.scales = one.scales.float()
        found[stem] = one(torch.eye(num_in)).t()
    return found


def make(name, form, kind, **settings):
    plain = save_plain(WORK / "plain", torch.float32)
    made = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float32)
    rounder = AutoRound(
        made,
        AutoTokenizer.from_pretrained(plain),
        iters=0,
        disable_opt_rtn=True,
        device_map="cpu",
        group_size=GROUP,
        **settings,
    )
    rounder.quantize_and_save(str(WORK / name), format=form)
    written, packed = saved(WORK / name)
    record(OUT / name, f"auto-round {auto_round.__version__}", written, packed, whole_of(WORK, written, packed, kind))


if __name__ == "__main__":
    from auto_round_extension.torch import qlinear_torch, qlinear_torch_zp

    make("auto_round-gptq-4", "auto_gptq", qlinear_torch_zp, bits=4, sym=True)
    make("auto_round-gptq-4-zeros", "auto_gptq", qlinear_torch_zp, bits=4, sym=False)
    make("auto_round-awq-4-zeros", "auto_awq", "awq", bits=4, sym=False)
    make("auto_round-4", "auto_round", qlinear_torch_zp, bits=4, sym=True)
    make("auto_round-4-zeros", "auto_round", "awq", bits=4, sym=False)
    make("auto_round-8-zeros", "auto_round", qlinear_torch, bits=8, sym=False)
