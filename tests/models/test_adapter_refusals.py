"""What the adapter for models of transformers refuses, and the faults that its trial at load must find."""

import json
import sys

import pytest
import torch
from models import foreign

from outdraft.models.adapter import attention
from outdraft.models.target.open_network import load_network
from outdraft.nn.segment import Segment
from outdraft.options.errors import ModelLoadError

transformers = pytest.importorskip("transformers")

REFUSED = {
    "remote code": (
        {"model_type": "qwen3_moe", "auto_map": {"AutoModelForCausalLM": "modeling_x.XForCausalLM"}},
        r"auto_map names code in the model's repository \(modeling_x.XForCausalLM\).*delete auto_map",
    ),
    "a custom packing": (
        {"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}},
        r"quantization_config \('mxfp4'\).*load an unquantized copy",
    ),
    "a recurrent layer": (
        {"model_type": "qwen3_moe", "layer_types": ["full_attention", "linear_attention"]},
        "recurrent layers .*layer_types names 'linear_attention'.*cannot be rolled back",
    ),
    "a recurrent family": ({"model_type": "mamba2"}, "'mamba2' cannot be run: it has recurrent layers"),
    "a recurrent class": ({"model_type": "zaya"}, "'zaya' cannot be run: it has recurrent layers .ZayaForCausalLM"),
    "a short convolution": ({"model_type": "lfm2"}, "'lfm2' cannot be run: it has recurrent layers"),
    "a chunk": (
        {"model_type": "qwen3_moe", "attention_chunk_size": 64},
        "attention_chunk_size names '64', and outdraft's cache knows only full_attention, sliding_attention",
    ),
    "a clock of its own": ({"model_type": "llama4_text"}, "temperature counts positions by transformers' own cache"),
    **{
        f"attention of its own, {name}": (
            {"model_type": kind},
            f"{name}.* of transformers does not call the attention interface.*; take a model of another family",
        )
        for kind, name in {"falcon": "Falcon", "mpt": "Mpt", "bloom": "Bloom", "gptj": "GPTJ"}.items()
    },
    "a wrong value": (
        {"model_type": "mixtral", "hidden_size": "x"},
        "config.json: .*mixtral.* is not read by transf.*hidden_size",
    ),
    "no language model": ({"model_type": "t5"}, "'t5' is not a causal language model that transformers"),
    "unknown": ({"model_type": "no_such_model"}, "'no_such_model' is not a causal language model that transformers"),
}


@pytest.mark.parametrize(("config", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_by_name_before_weights_are_read(config, message, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config))  # and no weights
    with pytest.raises(ModelLoadError, match=message):
        load_network(tmp_path)


def test_without_the_package_the_cure_is_named(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mixtral"}))
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModelLoadError, match=r"model_type='mixtral'.*pip install 'outdraft\[transformers\]'"):
        load_network(tmp_path)


def test_a_tensor_that_lacks_is_no_random_one(tmp_path):
    from safetensors.torch import load_file, save_file

    foreign.write_model("qwen3_moe", tmp_path)
    file = tmp_path / "model.safetensors"
    held = load_file(file)
    gone = next(name for name in held if name.endswith("layers.2.self_attn.o_proj.weight"))
    save_file({name: one for name, one in held.items() if name != gone}, file, {"format": "pt"})
    with pytest.raises(ModelLoadError, match=r"lacks 1 tensors, e.g. model.layers.2.self_attn.o_proj.weight"):
        load_network(tmp_path)
    save_file(held | {"model.strange.weight": torch.zeros(2)}, file, {"format": "pt"})
    with pytest.raises(ModelLoadError, match=r"1 tensors that its config.json does not explain, e.g. model.strange"):
        load_network(tmp_path)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_wrong_mask_is_found_when_a_model_is_loaded(dtype, tmp_path, monkeypatch):
    foreign.write_model("qwen3_moe", tmp_path)
    monkeypatch.setattr(Segment, "visible", lambda self: torch.ones(self.num_rows, self.num_rows).tril().bool())
    with pytest.raises(ModelLoadError, match=r"'qwen3_moe' cannot be run .*a tree of guesses gives other logits"):
        load_network(tmp_path, dtype)


def test_positions_that_a_model_counts_itself_are_found(tmp_path, monkeypatch):
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeRotaryEmbedding as Rotary

    foreign.write_model("qwen3_moe", tmp_path)
    told = Rotary.forward

    def counted(self, x, position_ids):
        return told(self, x, torch.arange(x.shape[1])[None])

    monkeypatch.setattr(Rotary, "forward", counted)
    with pytest.raises(ModelLoadError, match="gives other logits than each alone"):
        load_network(tmp_path)


@pytest.mark.parametrize("lost", ["sliding_window", "s_aux", "scaling"])
def test_an_argument_of_attention_that_gets_lost_is_found(lost, tmp_path, monkeypatch):
    foreign.write_model("gpt_oss", tmp_path)
    told = attention.ContextAttention.attend

    def forgetful(self, module, q, k, v, mask, options):
        kept = {name: value for name, value in options.items() if name != lost}
        return told(self, module, q, k, v, mask, kept | ({"scaling": 0.5} if lost == "scaling" else {}))

    monkeypatch.setattr(attention.ContextAttention, "attend", forgetful)
    with pytest.raises(ModelLoadError, match="a text in one pass gives other logits"):
        load_network(tmp_path)


def test_an_unknown_argument_of_attention_is_refused(tmp_path, monkeypatch):
    foreign.write_model("gpt_oss", tmp_path)
    monkeypatch.setattr("outdraft.models.adapter.anatomy.KNOWN", attention.KNOWN - {"s_aux"})
    with pytest.raises(ModelLoadError, match="layer 0 of GptOssForCausalLM passes s_aux to its attention"):
        load_network(tmp_path)
