"""Configurations of published models are read as they are; what we cannot run is refused by name."""

import pytest
import transformers
from models.real_models import data_folder

from outdraft.models.files.load import find_architecture, read_json
from outdraft.options.errors import ModelLoadError

SIZES = dict(
    vocab_size=61,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
)
INERT = {  # what published files say beside what is read, and a value that would mean another computation
    "llama": {"is_llama_config": (True, False)},
    "phi3": {"full_attn_mod": (1, 2), "interpolate_factor": (1, 4)},
    "starcoder2": {"mlp_type": ("default", "gated")},
    "cohere2": {
        "position_embedding_type": ("rope_gptj", "alibi"),
        "use_gated_activation": (True, False),
        "use_parallel_block": (True, False),
        "use_embedding_sharing": (True, False),
    },
    "gemma2": {"sliding_window_size": (4096, 8)},
    "gpt_neox": {"rope_theta": (10000, 500.0)},
}

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


def read(model_type, **more):
    raw = {"model_type": model_type, **SIZES, **more}
    return find_architecture(raw).read(raw, strict=True)


@pytest.mark.parametrize("family", INERT)
def test_keys_that_say_what_is_computed_anyway(family):
    own = {"num_key_value_heads": None, "rotary_emb_base": 10000} if family == "gpt_neox" else {}
    said = {key: value for key, (value, _) in INERT[family].items()}
    bookkeeping = {"transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}}
    assert read(family, **own, **said, **bookkeeping) == read(family, **own)
    for key, (_, other) in INERT[family].items():
        with pytest.raises(ModelLoadError, match=f"{key}=.* is not supported"):
            read(family, **own, **{key: other})


def test_the_sharing_of_embeddings_has_two_names():
    assert not read("cohere2", tie_word_embeddings=False, use_embedding_sharing=False).tie_embeddings
    with pytest.raises(ModelLoadError, match="use_embedding_sharing"):
        read("cohere2", tie_word_embeddings=False, use_embedding_sharing=True)


def test_gpt_neox_reads_either_name_of_theta():
    assert read("gpt_neox", num_key_value_heads=None, rope_theta=500).rope.theta == 500
    assert read("gpt_neox", num_key_value_heads=None, rope_theta=500, rotary_emb_base=500).rope.theta == 500


def test_keys_of_windows_say_nothing_without_windows():
    assert read("exaone4", sliding_window=None, sliding_window_pattern=4) == read("exaone4", sliding_window=None)
    assert read("smollm3", max_window_layers=28, use_sliding_window=False) == read("smollm3")
    assert read("smollm3", sliding_window=0, use_sliding_window=False) == read("smollm3")
    with pytest.raises(ModelLoadError, match="max_window_layers"):
        read("smollm3", max_window_layers=28, use_sliding_window=True, sliding_window=8)


QWEN = {"use_sliding_window": True, "max_window_layers": 1}


@pytest.mark.parametrize(("family", "more"), [("mistral", {}), ("exaone4", {}), ("qwen2", QWEN), ("qwen3", QWEN)])
def test_a_window_that_is_left_out_is_no_null(family, more):
    none, absent = read(family, sliding_window=None, **more), read(family, **more)
    assert none.windows == () and 4096 in absent.windows and absent == read(family, sliding_window=4096, **more)


@pytest.mark.parametrize("size", [None, 0, -3, 4.0])
@pytest.mark.parametrize("family", ["qwen3", "gemma2", "gemma3_text", "olmo3", "cohere2", "exaone4", "smollm3", "phi3"])
def test_layers_with_a_window_need_its_size(family, size):
    more = {} if family == "phi3" else {"layer_types": ["sliding_attention", "full_attention"] * 2}
    more |= {"use_sliding_window": True} if family in ("qwen3", "smollm3") else {}
    if (family, size) == ("phi3", None):
        assert read(family, sliding_window=None).windows == ()
        return
    assert read(family, sliding_window=7, **more).window(0) == 7
    with pytest.raises(ModelLoadError, match=f"sliding_window={size} is not supported"):
        read(family, sliding_window=size, **more)


@pytest.mark.parametrize("family", ["llama", "mistral", "exaone4", "smollm3", "qwen3", "qwen3_vl_text", "olmo3"])
def test_what_is_left_out_is_the_default_of_transformers(family):
    theirs = transformers.AutoConfig.for_model(family, **SIZES)
    rope = theirs.rope_parameters.get("full_attention", theirs.rope_parameters)
    ours = read(family)
    assert ours.rope.theta == rope["rope_theta"]
    window = getattr(theirs, "sliding_window", None)
    assert set(ours.windows) - {None} == ({window} if window and family not in ("qwen3", "smollm3") else set())


def test_that_a_stretched_model_was_finetuned_changes_nothing():
    yarn = {"type": "yarn", "factor": 16.0, "original_max_position_embeddings": 16}
    assert read("llama", rope_scaling={**yarn, "finetuned": True}) == read("llama", rope_scaling=yarn)


LINEAR = {"rope_type": "linear", "factor": 8.0}
PLAIN = {"rope_type": "default", "rope_theta": 500.0}


def test_two_tables_of_rotary_options_must_agree():
    with pytest.raises(ModelLoadError, match=r"rope_scaling=.*linear.*rope_parameters=.*default.*keep one"):
        read("llama", rope_parameters=PLAIN, rope_scaling=LINEAR)
    with pytest.raises(ModelLoadError, match="rope_scaling"):
        read("llama", rope_parameters={**LINEAR, "rope_theta": 500.0}, rope_scaling={**LINEAR, "factor": 4.0})
    same = {**LINEAR, "rope_theta": 500.0}
    older = {"type": "linear", "factor": 8.0, "attention_factor": None}
    assert read("llama", rope_parameters=same, rope_scaling=older) == read("llama", rope_parameters=same)
    assert read("llama", rope_parameters=PLAIN, rope_scaling={}) == read("llama", rope_parameters=PLAIN)


def test_the_older_table_is_compared_with_the_layers_that_it_is_for():
    two = {"full_attention": {**LINEAR, "rope_theta": 1e6}, "sliding_attention": {**PLAIN, "rope_theta": 1e4}}
    assert read("gemma3_text", rope_parameters=two, rope_scaling=LINEAR) == read("gemma3_text", rope_parameters=two)
    with pytest.raises(ModelLoadError, match="rope_scaling"):
        read("gemma3_text", rope_parameters=two, rope_scaling={**LINEAR, "factor": 2.0})
