"""Logits equal transformers' on every architecture, with every option that changes the arithmetic."""

import json
from dataclasses import replace

import pytest
import torch

from outdraft.models.files.load import load_model, save_model
from outdraft.nn.context import CausalContext
from outdraft.testing.tiny import random_decoder, tiny_config

transformers = pytest.importorskip("transformers")

LLAMA = dict(
    vocab_size=61,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
)
GPT2 = dict(vocab_size=61, n_embd=32, n_layer=2, n_head=4, n_positions=128)
NEOX = dict(
    vocab_size=61,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=128,
)
SMALL = LLAMA | dict(hidden_size=64, intermediate_size=64, num_hidden_layers=4, pad_token_id=None)
GEMMA = SMALL | dict(head_dim=16, sliding_window=9, query_pre_attn_scalar=20)
FACTORS = {"short_factor": [1 + i / 9 for i in range(8)], "long_factor": [2.0 + i for i in range(8)]}
NEAR = {"rope_type": "default", "rope_theta": 300.0}
GRANITE = dict(embedding_multiplier=3.0, attention_multiplier=0.3, residual_multiplier=0.6, logits_scaling=1.7)
MINISTRAL_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.4,
}
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
WIDE = {"head_dim": 32, "tie_word_embeddings": True}
OTHER = LLAMA | {"head_dim": 16, "tie_word_embeddings": True}
UNTIED = {"attention_bias": True, "tie_word_embeddings": False}
UNBIASED = {"attention_bias": False, "tie_word_embeddings": True}
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
    "llama-yarn-factor": (
        "llama",
        LLAMA | {"rope_scaling": YARN | {"attention_factor": 0.8, "beta_fast": 8.0, "beta_slow": 2.0}},
    ),
    "llama-yarn-mscale": ("llama", LLAMA | {"rope_scaling": YARN | {"mscale": 0.7, "mscale_all_dim": 1.3}}),
    "llama-yarn-exact": ("llama", LLAMA | {"head_dim": 32, "rope_scaling": YARN | {"truncate": False}}),
    "mistral": ("mistral", LLAMA | {"sliding_window": None}),
    "mistral-window": ("mistral", OTHER | {"sliding_window": 9}),
    "qwen2": ("qwen2", LLAMA),
    "qwen2-window": ("qwen2", OTHER | {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}),
    "qwen3": ("qwen3", LLAMA | {"head_dim": 16}),
    "qwen3-biases": ("qwen3", LLAMA | {"head_dim": 8, "attention_bias": True, "tie_word_embeddings": True}),
    "qwen3-window": ("qwen3", LLAMA | {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}),
    "gpt_neox": ("gpt_neox", NEOX | {"rotary_pct": 0.5}),
    "gpt_neox-sequential": ("gpt_neox", NEOX | {"rotary_pct": 1.0, "use_parallel_residual": False}),
    "gpt_neox-quarter": ("gpt_neox", NEOX | {"rotary_pct": 0.25, "attention_bias": False}),
    "gpt_neox-tied": ("gpt_neox", NEOX | {"rotary_emb_base": 500, "tie_word_embeddings": True}),
    "gemma2": ("gemma2", GEMMA | {"attn_logit_softcapping": 1.5, "final_logit_softcapping": 3.0}),
    "gemma2-no-caps": ("gemma2", GEMMA | UNTIED | {"attn_logit_softcapping": None, "final_logit_softcapping": None}),
    "gemma3": ("gemma3_text", GEMMA | {"num_hidden_layers": 7}),
    "gemma3-scaled": (
        "gemma3_text",
        GEMMA
        | {
            "num_hidden_layers": 7,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": NEAR,
            },
        },
    ),
    "gemma3-types": ("gemma3_text", GEMMA | UNTIED | {"layer_types": ["full_attention", "sliding_attention"] * 2}),
    "phi3": ("phi3", SMALL | {"sliding_window": 9}),
    "phi3-partial": ("phi3", SMALL | WIDE | {"partial_rotary_factor": 0.5}),
    "phi3-long": (
        "phi3",
        SMALL | {"original_max_position_embeddings": 32, "rope_scaling": {"type": "longrope", **FACTORS}},
    ),
    "phi3-short": (
        "phi3",
        SMALL | {"original_max_position_embeddings": 64, "rope_scaling": {"type": "longrope", **FACTORS}},
    ),
    "granite": ("granite", SMALL | GRANITE),
    "granite-biases": ("granite", SMALL | GRANITE | WIDE | {"attention_bias": True, "mlp_bias": True}),
    "olmo2": ("olmo2", SMALL),
    "olmo2-biases": ("olmo2", SMALL | WIDE | {"attention_bias": True, "num_key_value_heads": 4}),
    "olmo3": (
        "olmo3",
        SMALL
        | {
            "sliding_window": 9,
            "rope_parameters": {"full_attention": YARN | {"rope_theta": 5e3}, "sliding_attention": NEAR},
        },
    ),
    "olmo3-biases": ("olmo3", SMALL | WIDE | {"attention_bias": True, "sliding_window": 9}),
    "smollm3": ("smollm3", SMALL | {"num_hidden_layers": 5}),
    "smollm3-window": (
        "smollm3",
        SMALL | {"no_rope_layers": [1, 0, 0, 1], "use_sliding_window": True, "sliding_window": 9},
    ),
    "smollm3-biases": ("smollm3", SMALL | UNTIED | {"mlp_bias": True, "head_dim": 32}),
    "glm4": ("glm4", SMALL | {"head_dim": 16}),
    "glm4-quarter": ("glm4", SMALL | {"head_dim": 32, "partial_rotary_factor": 0.25} | UNBIASED),
    "starcoder2": ("starcoder2", SMALL | {"sliding_window": 9}),
    "starcoder2-no-bias": ("starcoder2", SMALL | {"use_bias": False, "tie_word_embeddings": False, "head_dim": 32}),
    "cohere2": ("cohere2", SMALL | {"sliding_window": 9, "logit_scale": 0.8}),
    "cohere2-biases": ("cohere2", SMALL | UNTIED | {"sliding_window": 9, "logit_scale": 0.8, "head_dim": 32}),
    "exaone4": ("exaone4", SMALL | {"sliding_window": 9}),
    "exaone4-everywhere": ("exaone4", SMALL | WIDE | {"sliding_window": None, "layer_types": ["full_attention"] * 4}),
    "ministral3": ("ministral3", SMALL | {"head_dim": 16, "rope_parameters": MINISTRAL_ROPE}),
    "ministral3-window": ("ministral3", SMALL | WIDE | {"rope_parameters": MINISTRAL_ROPE, "sliding_window": 9}),
    "gpt2": ("gpt2", GPT2),
    "gpt2-inner": ("gpt2", GPT2 | {"n_inner": 40, "activation_function": "relu", "tie_word_embeddings": False}),
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
    first = ours.config.first_position(60)
    logits = ours(ids.flatten(), torch.arange(60).repeat(2) + first, CausalContext(2, 60)).view_as(theirs)
    assert theirs.std() > 0.3
    return float((logits - theirs).abs().max())


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_transformers_and_it_reads_what_we_save(case, tmp_path):
    model = reference(case)
    model.save_pretrained(tmp_path / "theirs")
    ours = load_model(tmp_path / "theirs")
    assert max_difference(model, ours) < 1e-4
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
