"""Logits equal transformers' on every architecture, with every option that changes the arithmetic."""

import json
from dataclasses import replace

import pytest
import torch

from outdraft.models.load import load_model, save_model
from outdraft.nn.context import CausalContext
from outdraft.testing.tiny import random_decoder, tiny_config

transformers = pytest.importorskip("transformers")

LLAMA = dict(
    vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=128,
)  # fmt: skip
GPT2 = dict(vocab_size=61, n_embd=32, n_layer=2, n_head=4, n_positions=128)
NEOX = dict(
    vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=128,
)  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
CASES = {
    "llama": ("llama", LLAMA),
    "llama-tied": ("llama", LLAMA | {"tie_word_embeddings": True}),
    "llama-biases": ("llama", LLAMA | {"attention_bias": True, "mlp_bias": True}),
    "llama-no-gqa": ("llama", LLAMA | {"num_key_value_heads": 4}),
    "llama-one-kv-head": ("llama", LLAMA | {"num_key_value_heads": 1}),
    "llama-head-dim": ("llama", LLAMA | {"head_dim": 16}),
    "llama-gelu": ("llama", LLAMA | {"hidden_act": "gelu_pytorch_tanh"}),
    "llama-theta": ("llama", LLAMA | {"rope_theta": 500.0}),
    "llama-linear": ("llama", LLAMA | {"rope_scaling": {"rope_type": "linear", "factor": 3.0}}),
    "llama-dynamic": ("llama", LLAMA | {"rope_scaling": {"rope_type": "dynamic", "factor": 3.0}}),
    "llama-llama3": ("llama", LLAMA | {"rope_scaling": LLAMA3 | {"original_max_position_embeddings": 32}}),
    "llama-yarn": ("llama", LLAMA | {"rope_scaling": YARN}),
    "llama-yarn-factor": ("llama", LLAMA | {"rope_scaling": YARN | {"attention_factor": 0.8, "beta_fast": 8.0}}),
    "llama-yarn-mscale": ("llama", LLAMA | {"rope_scaling": YARN | {"mscale": 0.7, "mscale_all_dim": 1.3}}),
    "llama-yarn-exact": ("llama", LLAMA | {"head_dim": 32, "rope_scaling": YARN | {"truncate": False}}),
    "mistral": ("mistral", LLAMA | {"sliding_window": None}),
    "mistral-window": ("mistral", LLAMA | {"sliding_window": 9}),
    "qwen2": ("qwen2", LLAMA),
    "qwen2-window": ("qwen2", LLAMA | {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}),
    "qwen3": ("qwen3", LLAMA | {"head_dim": 16}),
    "qwen3-biases": ("qwen3", LLAMA | {"head_dim": 8, "attention_bias": True, "tie_word_embeddings": True}),
    "gpt_neox": ("gpt_neox", NEOX | {"rotary_pct": 0.5}),
    "gpt_neox-sequential": ("gpt_neox", NEOX | {"rotary_pct": 1.0, "use_parallel_residual": False}),
    "gpt_neox-quarter": ("gpt_neox", NEOX | {"rotary_pct": 0.25, "attention_bias": False}),
    "gpt_neox-tied": ("gpt_neox", NEOX | {"rotary_emb_base": 500, "tie_word_embeddings": True}),
    "gpt2": ("gpt2", GPT2),
    "gpt2-inner": ("gpt2", GPT2 | {"n_inner": 40, "activation_function": "relu"}),
}


def reference(case, seed=0):
    """A transformers model in which no parameter is at its boring initial value."""
    kind, options = CASES[case]
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(kind, **options)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.2 if parameter.dim() == 2 else 0.1))
    return model.eval()


@torch.no_grad()
def max_difference(model, ours):
    ids = torch.randint(61, (2, 60), generator=torch.Generator().manual_seed(0))
    theirs = model(ids).logits
    logits = ours(ids.flatten(), torch.arange(60).repeat(2), CausalContext(2, 60)).view_as(theirs)
    assert theirs.std() > 0.3
    return float((logits - theirs).abs().max())


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_transformers(case, tmp_path):
    model = reference(case)
    model.save_pretrained(tmp_path)
    assert max_difference(model, load_model(tmp_path)) < 1e-4


@pytest.mark.parametrize("case", CASES)
def test_transformers_reads_what_we_save(case, tmp_path):
    model = reference(case)
    model.save_pretrained(tmp_path / "theirs")
    ours = load_model(tmp_path / "theirs")
    save_model(ours, tmp_path / "ours")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours", attn_implementation="eager").eval()
    assert max_difference(again, ours) < 1e-4
    reloaded = load_model(tmp_path / "ours")
    assert reloaded.config == ours.config
    for name, parameter in ours.named_parameters():
        assert torch.equal(parameter, dict(reloaded.named_parameters())[name]), name


@pytest.mark.parametrize("architecture", ["mistral", "qwen2", "qwen3"])
def test_windows_of_some_layers_are_saved(architecture, tmp_path):
    ours = random_decoder(replace(tiny_config(architecture), windows=(None, 7)))
    save_model(ours, tmp_path)
    assert load_model(tmp_path).config.windows == (None, 7)


@pytest.mark.parametrize("case", ["llama-llama3", "llama-yarn", "llama-linear"])
def test_the_older_spelling_of_rotary_options_is_read_too(case, tmp_path):
    model = reference(case)
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    options = config.pop("rope_parameters")
    config["rope_theta"] = options.pop("rope_theta")
    options["type"] = options.pop("rope_type")  # older still
    config["rope_scaling"] = options
    path.write_text(json.dumps(config))
    assert max_difference(model, load_model(tmp_path)) < 1e-4


def test_sharded_files_are_read(tmp_path):
    model = reference("qwen2")
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert max_difference(model, load_model(tmp_path)) < 1e-4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_kept_or_converted(dtype, tmp_path):
    model = reference("llama").to(dtype)
    model.save_pretrained(tmp_path)
    assert load_model(tmp_path).embedding.dtype == dtype
    assert load_model(tmp_path, dtype="float32").embedding.dtype == torch.float32
    whole = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    assert max_difference(whole, load_model(tmp_path, dtype="float32")) < 1e-4
