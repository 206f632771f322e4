"""Configurations of published models are read as they are; what we cannot run is refused by name."""

import pytest
from models.real_models import data_folder

from outdraft.core.errors import ModelLoadError
from outdraft.models.load import find_architecture, read_json

EXPECTED = {
    "Llama-3.1-8B": dict(num_layers=32, hidden_size=4096, num_kv_heads=8, head_dim=128, vocab_size=128256),
    "Llama-3.2-3B": dict(num_layers=28, hidden_size=3072, num_kv_heads=8, head_dim=128, tie_embeddings=True),
    "Qwen2.5-3B": dict(num_layers=36, hidden_size=2048, num_kv_heads=2, qkv_bias=True, out_bias=False, windows=()),
    "Qwen2.5-32B": dict(num_layers=64, hidden_size=5120, num_kv_heads=8, qkv_bias=True, windows=()),
    "Qwen3-4B": dict(num_layers=36, hidden_size=2560, head_dim=128, qk_norm=True, qkv_bias=False),
    "Qwen3-32B": dict(num_layers=64, num_heads=64, head_dim=128, qk_norm=True, windows=()),
    "gpt2-large": dict(num_layers=36, hidden_size=1280, intermediate_size=5120, learned_positions=True, max_len=1024),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_published_configurations(name):
    raw = read_json(data_folder("hf-configs") / f"{name}.config.json")
    config = find_architecture(raw).read(raw)
    assert {key: getattr(config, key) for key in EXPECTED[name]} == EXPECTED[name]
    assert config.eos_ids
    if name.startswith("Llama"):
        assert config.rope.kind == "llama3" and config.rope.original_max_len == 8192 and config.rope.theta == 500000
    again = find_architecture(raw).read(find_architecture(raw).write(config) | {"model_type": raw["model_type"]})
    assert again == config


def test_mixtures_of_experts_are_refused_by_name():
    raw = read_json(data_folder("hf-configs") / "Qwen3-30B-A3B.config.json")
    with pytest.raises(ModelLoadError, match="qwen3_moe"):
        find_architecture(raw)
