"""Models that LLM Compressor rounded and saved, and made whole again by compressed-tensors' own compressors.

    python tests/peers/quantized/by_llmcompressor.py WORK_FOLDER tests/models/published/made

LLM Compressor 0.14.0.1 (https://github.com/vllm-project/llm-compressor) writes what compressed-tensors 0.20.0
(https://github.com/vllm-project/compressed-tensors) packs.
"""

import sys
from importlib.metadata import version
from pathlib import Path

import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.modifiers.quantization import GPTQModifier, QuantizationModifier
from tiny import GROUP, record, save_plain, saved, texts

WORK, OUT = Path(sys.argv[1]), Path(sys.argv[2])
FLOATS = dict(num_bits=8, type="float", symmetric=True)
FOUR, EIGHT = dict(num_bits=4, type="int"), dict(num_bits=8, type="int")
BY_GROUP = dict(strategy="group", group_size=GROUP)
INPUTS = QuantizationArgs(num_bits=8, type="int", symmetric=True, dynamic=True, strategy="token")
CASES = {
    "compressed-W4A16": (FOUR | BY_GROUP | dict(symmetric=True), {}),
    "compressed-W4A16-zeros": (FOUR | BY_GROUP | dict(symmetric=False), {}),
    "compressed-W4A16-channel-zeros": (FOUR | dict(strategy="channel", symmetric=False), {}),
    "compressed-W4A16-actorder": (FOUR | BY_GROUP | dict(symmetric=False, actorder="weight"), {}),
    "compressed-W8A16-group": (EIGHT | BY_GROUP | dict(symmetric=True), {}),
    "compressed-W8A16-channel": (EIGHT | dict(strategy="channel", symmetric=True), {}),
    "compressed-W8A16-channel-zeros": (EIGHT | dict(strategy="channel", symmetric=False), {}),
    "compressed-W8A8-channel": (EIGHT | dict(strategy="channel", symmetric=True), dict(input_activations=INPUTS)),
    "compressed-W8A8-channel-zeros": (
        EIGHT | dict(strategy="channel", symmetric=False),
        dict(input_activations=INPUTS),
    ),
    "compressed-W8A8-map": (EIGHT | dict(strategy="tensor", symmetric=True), dict(input_activations=INPUTS)),
    "compressed-FP8-channel": (FLOATS | dict(strategy="channel"), {}),
    "compressed-FP8-map": (FLOATS | dict(strategy="tensor"), {}),
    "compressed-FP8-block": (FLOATS | dict(strategy="block", block_structure=[32, 16]), {}),
}


def whole_of(written, packed):
    """By compressed-tensors' compressor of the format that config.json names, map by map, with scales in float32."""
    group = written["quantization_config"]["config_groups"]["group_0"]
    compressor = BaseCompressor.get_value_from_registry(group["format"])
    scheme, found = QuantizationScheme.model_validate(group), {}
    for stem in {name.rpartition(".")[0] for name in packed if name.endswith("weight_scale")}:
        parts = {name.rpartition(".")[2]: one for name, one in packed.items() if name.startswith(stem + ".")}
        parts["weight_scale"] = parts["weight_scale"].float()
        found[stem] = compressor.decompress(parts, scheme)["weight"]
    return found


def make(name, weights, others):
    plain = save_plain(WORK / "plain")
    made = transformers.AutoModelForCausalLM.from_pretrained(plain, dtype=torch.bfloat16)
    ordered = "actorder" in weights
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights), **others)
    kind = GPTQModifier if ordered else QuantizationModifier
    rows = [{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in texts()]
    how = {"dataset": Dataset.from_list(rows), "num_calibration_samples": len(rows), "max_seq_length": len(rows[0])}
    recipe = kind(config_groups={"group_0": scheme}, ignore=["lm_head"])
    oneshot(model=made, recipe=recipe, tokenizer=None, processor=None, **(how if ordered else {"pipeline": "datafree"}))
    made.save_pretrained(WORK / name, save_compressed=True)
    written, packed = saved(WORK / name)
    about = f"llmcompressor {version('llmcompressor')}, compressed-tensors {version('compressed-tensors')}"
    record(OUT / name, about, written, packed, whole_of(written, packed))


for case in sys.argv[3:] or CASES:
    make(case, *CASES[case])
