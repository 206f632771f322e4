"""What is not read of other programs' checkpoints is refused by name, with the cure: settings, and damaged tensors."""

import json

import pytest
import torch
from models.published import writers
from models.published.writers import change_tensors, publish

from outdraft.models.files.load import load_model
from outdraft.options.errors import ModelLoadError

UNREAD = ("bitsandbytes", "mxfp4", "nvfp4", "exl2", "exl3", "hqq", "quanto", "torchao", "aqlm")


def change(directory, **changes):
    path = directory / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] = {**config["quantization_config"], **changes}
    path.write_text(json.dumps(config))


def of_scheme(form="pack-quantized", kind="int", bits=4, **settings):
    return {"config_groups": writers.scheme(form, kind, bits, **settings)["config_groups"]}


@pytest.mark.parametrize(
    ("made", "changes", "words"),
    [
        *((writers.gptq(), {"quant_method": method}, (method, "outdraft quantize", "GGUF")) for method in UNREAD),
        (writers.gptq(), {"quant_method": None, "load_in_4bit": True}, ("bitsandbytes",)),
        (writers.gptq(), {"quant_method": "gtpq"}, ("gtpq", "did you mean 'gptq'")),
        (writers.gptq(), {"quant_method": 4}, ("quant_method=4",)),
        (writers.gptq(), {"bits": 3}, ("bits=3", "4, 8")),
        (writers.gptq(), {"bits": "4"}, ("bits='4'",)),
        (writers.gptq(), {"bits": 8}, ("quantization_config", "shape")),
        (writers.gptq(), {"group_size": 64}, ("qzeros", "shape")),
        (writers.gptq(), {"group_size": 0}, ("group_size=0",)),
        (writers.gptq(), {"group_size": None}, ("group_size=None",)),
        (writers.gptq(), {"checkpoint_format": "marlin"}, ("checkpoint_format='marlin'",)),
        (writers.gptq(), {"is_marlin_format": True}, ("is_marlin_format",)),
        (writers.gptq(), {"pack_dtype": "int8"}, ("pack_dtype",)),
        (writers.gptq(), {"dynamic": {"+:.*down.*": {"bits": 8}}}, ("dynamic",)),
        (writers.awq(), {"version": "gemv"}, ("version='gemv'", "gemm")),
        (writers.awq(), {"backend": "llm-awq"}, ("backend='llm-awq'",)),
        (writers.awq(), {"zero_point": False}, ("zero_point=False",)),
        (writers.awq(), {"bits": 8}, ("bits=8",)),
        (writers.awq(), {"group_size": 32}, ("qzeros", "shape")),
        (writers.awq(), {"quant_method": "compressed-tensors", "config_groups": {}}, ("no tensor there",)),
        (writers.packed(), {"sparsity_config": {"format": "sparse-24-bitmask"}}, ("sparsity_config",)),
        (writers.packed(), {"transform_config": {"config_groups": {"u": {}}}}, ("transform_config",)),
        (writers.packed(), {"format": "marlin-24"}, ("marlin-24", "pack-quantized")),
        (writers.packed(), {"quantization_status": "frozen"}, ("quantization_status='frozen'",)),
        (writers.packed(), {"config_groups": None}, ("config_groups=None",)),
        (writers.packed(), writers.scheme("pack-quantized", "int", 2), ("group_0", "'num_bits': 2")),
        (writers.packed(), writers.scheme("float-quantized", "float", 6), ("group_0", "'type': 'float'")),
        (writers.packed(), writers.scheme("float-quantized", "float", 4), ("weight_scale", "no int of 4 bits")),
        (writers.fours(), of_scheme(group_size=16), ("weight_scale", "no float of 4 bits")),
        (writers.fours("mxfp4"), of_scheme(kind="float", group_size=16), ("weight_scale", "group_size=16")),
        (writers.modelopt(), {"quant_algo": "NVFP4_AWQ"}, ("quant_algo='NVFP4_AWQ'", "nvfp4")),
        (writers.packed(), of_scheme(bits=8), ("weight_scale", "no int of 4 bits")),
        (writers.packed(), of_scheme(strategy="group", group_size=64), ("weight_scale", "group_size=64", "(128, 4)")),
        (writers.packed(), of_scheme(group_size=-1), ("weight_scale", "'channel'", "(128, 1)")),
        (writers.packed(), of_scheme(strategy="token"), ("weight_scale", "strategy='token'", "not read")),
        (writers.packed(group=-1), of_scheme(strategy="tensor"), ("weight_scale", "'tensor'", "()")),
        (writers.bytes_of(), of_scheme("int-quantized", bits=8, group_size=32), ("weight_scale", "group_size=32")),
        (
            writers.floats(writers.scheme("float-quantized", "float", 8), (1, 0), "weight_scale"),
            {},
            ("weight_scale", "'tensor'"),
        ),
        (
            writers.floats(writers.scheme("float-quantized", "float", 8), (64, 64), "weight_scale"),
            of_scheme("float-quantized", "float", 8, strategy="block", block_structure=[64, 32]),
            ("weight_scale", "(64, 32)"),
        ),
        (writers.auto_round(), {"packing_format": "auto_round:marlin"}, ("auto_round:marlin", "auto_awq")),
        (writers.auto_round(), {"packing_format": None}, ("packing_format=None",)),
        (writers.auto_round(), {"data_type": "mx_fp"}, ("data_type='mx_fp'",)),
        (writers.auto_round(), {"extra_config": {"layers.0.mlp": {"bits": 8}}}, ("extra_config", "other")),
        (writers.auto_round(), {"spinquant_config": {"r1": True}}, ("spinquant_config", "turns")),
        (writers.fp8(), {"fmt": "e5m2"}, ("fmt='e5m2'",)),
        (writers.fp8(), {"weight_block_size": [128]}, ("weight_block_size=[128]",)),
        (writers.fp8((64, 64)), {"weight_block_size": [32, 32]}, ("weight_scale_inv", "(32, 32)")),
    ],
    ids=lambda value: "-".join(f"{key}={one}" for key, one in value.items()) if isinstance(value, dict) else "",
)
def test_what_is_not_read_is_refused_by_name(made, changes, words, tmp_path):
    published, _ = publish(tmp_path, *made)
    change(published, **changes)
    with pytest.raises(ModelLoadError) as caught:
        load_model(published)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda t, x: t.pop(f"{x}.scales"), ("lacks", "scales")),
        (lambda t, x: t.update({f"{x}.scales": t[f"{x}.scales"][:, :8]}), ("scales", "shape")),
        (lambda t, x: t.update({f"{x}.qweight": t[f"{x}.qweight"].float()}), ("qweight", "F32")),
        (lambda t, x: t[f"{x}.g_idx"].fill_(7), ("g_idx", "group 7 of 4")),
        (lambda t, x: t[f"{x}.g_idx"][5:6].fill_(-2), ("g_idx", "group -2 of 4")),
        (lambda t, x: t[f"{x}.scales"].fill_(float("nan")), ("NaN",)),
        (lambda t, x: t.update({f"{x}.qweight": t[f"{x}.qweight"].flatten()}), ("qweight", "shape")),
    ],
)
def test_damaged_tensors_are_named(edit, words, tmp_path):
    published, _ = publish(tmp_path, *writers.gptq())
    change_tensors(published, lambda tensors: edit(tensors, "model.layers.1.mlp.up_proj"))
    with pytest.raises(ModelLoadError) as caught:
        load_model(published)
    for word in words:
        assert word in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    ("made", "edit", "words"),
    [
        (writers.packed(), lambda t, x: t.pop(f"{x}.weight_shape"), ("lacks", "weight_shape")),
        (writers.packed(), lambda t, x: t.pop(f"{x}.weight_scale"), ("lacks", "weight_scale")),
        (writers.packed(), lambda t, x: t[f"{x}.weight_shape"].fill_(9), ("weight_packed", "(9, 9)")),
        (writers.packed(symmetric=False), lambda t, x: t[f"{x}.weight_zero_point"].resize_(3, 2), ("zero_point",)),
        (writers.fp8(), lambda t, x: t.pop(f"{x}.weight_scale_inv"), ("without a factor",)),
        (writers.fp8(), lambda t, x: t.update({f"{x}.weight_scale_inv": t[f"{x}.weight_scale_inv"].long()}), ("I64",)),
        (writers.fp8(), lambda t, x: t.update({f"{x}.weight": t[f"{x}.weight"].to(torch.float8_e5m2)}), ("F8_E5M2",)),
    ],
)
def test_damaged_tensors_of_other_formats_are_named(made, edit, words, tmp_path):
    published, _ = publish(tmp_path, *made)
    change_tensors(published, lambda tensors: edit(tensors, "model.layers.1.mlp.up_proj"))
    with pytest.raises(ModelLoadError) as caught:
        load_model(published)
    for word in words:
        assert word in str(caught.value), str(caught.value)
