"""Dense families beyond Llama's: every key of their config.json is honoured, wrappers are opened, longrope is decided
once for each request."""

import json

import pytest
import torch
import transformers
from models.test_parity import CASES, FACTORS, GEMMA, MINISTRAL_ROPE, NEAR, SMALL, YARN, max_difference, reference
from safetensors.torch import load_file, save_file

from outdraft import LLM, SamplingParams
from outdraft.kernels.library import library
from outdraft.models.files.load import load_model, save_model
from outdraft.models.target.open_network import load_network
from outdraft.nn.context import CausalContext
from outdraft.options.errors import ModelLoadError
from outdraft.testing.tiny import random_decoder, tiny_config

BASE = {
    "gemma2": {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 3.0},
    "gemma3": {"num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2},
    **{name: {"use_sliding_window": True, "sliding_window": 9} for name in ("qwen2", "qwen3", "smollm3")},
}
LONG = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 32, **FACTORS}
PLAIN = {"rope_type": "default", "rope_theta": 1e4}
OTHER = {"rms_norm_eps": 0.3, "hidden_act": "relu", "rope_parameters": PLAIN | {"rope_theta": 50.0}}
KEYS = {  # family -> its keys at other values; each must move the logits, and move them to where transformers' are
    "llama": OTHER,
    "mistral": OTHER,
    "qwen2": OTHER | {"layer_types": ["sliding_attention"] * 3},
    "qwen3": OTHER | {"layer_types": ["sliding_attention"] * 3},
    "gpt_neox": {"layer_norm_eps": 0.3, "hidden_act": "relu", "rope_parameters": PLAIN | {"rope_theta": 50.0}},
    "gpt2": {"layer_norm_epsilon": 0.3},
    "gemma2": {
        "query_pre_attn_scalar": 90,
        "attn_logit_softcapping": 0.7,
        "final_logit_softcapping": 1.5,
        "sliding_window": 4,
        "rms_norm_eps": 0.3,
        "hidden_activation": "silu",
        "layer_types": ["full_attention"] * 4,
        "rope_parameters": PLAIN | {"rope_theta": 50.0},
    },
    "gemma3": {
        "query_pre_attn_scalar": 90,
        "sliding_window": 4,
        "final_logit_softcapping": 1.5,
        "rope_parameters": {"full_attention": PLAIN, "sliding_attention": NEAR},
        "hidden_activation": "silu",
        "layer_types": ["full_attention"] * 3 + ["sliding_attention"],
        "rms_norm_eps": 0.3,
    },
    "phi3": {
        "sliding_window": 4,
        "rope_parameters": LONG,
        "hidden_act": "relu",
        "rms_norm_eps": 0.3,
        "partial_rotary_factor": 0.5,
    },
    "granite": {
        "embedding_multiplier": 1.5,
        "attention_multiplier": 0.9,
        "residual_multiplier": 1.1,
        "logits_scaling": 3.0,
        **OTHER,
    },
    "olmo2": OTHER,
    "olmo3": OTHER
    | {
        "sliding_window": 4,
        "layer_types": ["full_attention"] * 4,
        "rope_parameters": {"full_attention": YARN | {"rope_theta": 50.0}, "sliding_attention": NEAR},
    },
    "smollm3": OTHER | {"no_rope_layers": [1, 0, 1, 0, 1], "layer_types": ["sliding_attention"] * 5},
    "glm4": {
        "partial_rotary_factor": 0.25,
        "rms_norm_eps": 0.3,
        "hidden_act": "relu",
        "rope_parameters": PLAIN | {"rope_theta": 50.0, "partial_rotary_factor": 0.5},
    },
    "starcoder2": {
        "norm_epsilon": 0.3,
        "sliding_window": 4,
        "hidden_act": "relu",
        "rope_parameters": PLAIN | {"rope_theta": 50.0},
    },
    "cohere2": {
        "hidden_act": "relu",
        "rope_parameters": PLAIN | {"rope_theta": 50.0},
        "logit_scale": 0.3,
        "layer_norm_eps": 0.3,
        "sliding_window": 4,
        "layer_types": ["full_attention"] * 4,
    },
    "exaone4": OTHER | {"sliding_window": 4, "layer_types": ["sliding_attention"] * 4},
    "ministral3": OTHER | {"rope_parameters": MINISTRAL_ROPE | {"llama_4_scaling_beta": 0.9}},
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """family -> (a directory with its tiny model, our logits of it)."""
    made = {}

    def of(family):
        if family not in made:
            folder = tmp_path_factory.mktemp(family)
            kind, options = CASES[family]
            torch.manual_seed(0)
            config = transformers.AutoConfig.for_model(kind, **(options | BASE.get(family, {})))
            model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(torch.randn_like(parameter) * (0.2 if parameter.dim() == 2 else 0.1))
            model.save_pretrained(folder)
            made[family] = folder, logits_of(load_model(folder))
        return made[family]

    return of


@torch.no_grad()
def logits_of(ours):
    ids = torch.randint(61, (2, 60), generator=torch.Generator().manual_seed(0))
    first = ours.config.first_position(60)
    return ours(ids.flatten(), torch.arange(60).repeat(2) + first, CausalContext(2, 60))


@pytest.mark.parametrize(("family", "key"), [(family, key) for family, keys in KEYS.items() for key in keys])
def test_every_key_moves_the_logits_to_where_transformers_has_them(family, key, saved, tmp_path):
    folder, before = saved(family)
    told = json.loads((folder / "config.json").read_text()) | {key: KEYS[family][key]}
    if told.get("rope_parameters") is LONG:
        told["original_max_position_embeddings"] = 32  # where it stands, it wins
    if key == "partial_rotary_factor":
        told["rope_parameters"] |= {key: KEYS[family][key]}
    (tmp_path / "config.json").write_text(json.dumps(told))
    (tmp_path / "model.safetensors").symlink_to(folder / "model.safetensors")
    ours = load_model(tmp_path)
    assert (logits_of(ours) - before).abs().max() > 1e-3
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager").eval()
    assert max_difference(theirs, ours) < 1e-4


PICTURES = dict(
    hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14
)
WRAPPERS = {
    "mistral3": dict(
        text_config=SMALL | {"model_type": "mistral", "head_dim": 16},
        vision_config=PICTURES | {"model_type": "pixtral", "head_dim": 8},
    ),
    "gemma3": dict(
        text_config=GEMMA | {"num_hidden_layers": 7}, vision_config=PICTURES | {"model_type": "siglip_vision_model"}
    ),
}


@torch.no_grad()
def wrapped(name, folder):
    """A tiny multimodal model in `folder`, and what it says of text."""
    torch.manual_seed(0)
    model = transformers.AutoModelForImageTextToText.from_config(
        transformers.AutoConfig.for_model(name, **WRAPPERS[name]), attn_implementation="eager"
    ).eval()
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * (0.2 if parameter.dim() == 2 else 0.1))
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("name", WRAPPERS)
def test_the_text_part_of_a_multimodal_model_is_loaded(name, tmp_path):
    model = wrapped(name, tmp_path)
    told = json.loads((tmp_path / "config.json").read_text())
    told["eos_token_id"], told["text_config"]["eos_token_id"] = 5, [7]
    (tmp_path / "generation_config.json").unlink(missing_ok=True)
    (tmp_path / "config.json").write_text(json.dumps(told))
    ours = load_model(tmp_path)
    assert max_difference(model, ours) < 1e-4
    assert ours.config.eos_ids == (5, 7)
    save_model(ours, tmp_path / "text")
    assert load_model(tmp_path / "text").config == ours.config


@pytest.mark.parametrize("name", WRAPPERS)
def test_either_prefix_is_read(name, tmp_path):
    model = wrapped(name, tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    assert any(name.startswith("language_model.model.") for name in tensors)
    newer = {}
    for name, tensor in tensors.items():
        name = name.replace("language_model.model.", "model.language_model.").replace(
            "language_model.lm_head", "lm_head"
        )
        newer[f"model.{name}" if name.startswith(("vision", "multi")) else name] = tensor
    save_file(newer, path)
    assert max_difference(model, load_model(tmp_path)) < 1e-4


def test_a_tensor_of_no_known_part_is_named(tmp_path):
    wrapped("gemma3", tmp_path)
    path = tmp_path / "model.safetensors"
    save_file(load_file(path) | {"model.telepathy.weight": torch.zeros(1)}, path)
    with pytest.raises(ModelLoadError, match="telepathy"):
        load_model(tmp_path)


def test_a_wrapper_around_what_is_not_known_names_the_text_model(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "wrap", "text_config": {"model_type": "qwen3_5_text"}}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelLoadError):
        load_model(tmp_path)


def test_published_gemma_3_wrappers_leave_out_what_is_the_default():
    from outdraft.models.files.load import find_architecture
    from outdraft.models.files.wrapper import text_part

    raw = {
        "model_type": "gemma3",
        "eos_token_id": [1, 106],
        "vision_config": {"hidden_size": 1152},
        "text_config": {
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "model_type": "gemma3_text",
            "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024,
        },
    }
    part = text_part(raw, ())
    config = find_architecture(part).read(part, strict=True)
    assert (config.num_heads, config.num_kv_heads, config.head_dim, config.vocab_size) == (8, 4, 256, 262208)
    assert config.eos_ids == (1, 106) and config.tie_embeddings
    assert config.rope_at(5).kind == "linear" and config.rope_at(4).kind == "default"  # the sixth layer sees all
    assert config.window(4) == 1024 and config.window(5) is None


@torch.no_grad()
def greedy(model, ids, count):
    for _ in range(count):
        ids = [*ids, int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax())]
    return ids


@pytest.mark.parametrize("drafter", ["none", "ngram"])
def test_longrope_is_decided_once_for_each_request(drafter, tmp_path):
    """A request that stays below the boundary is short, one that may pass it is long from its first token on.

    transformers looks at each pass instead, so its own cacheless greedy text is the reference on either side only while
    the text does not cross the boundary; long texts are compared with a twin whose short factors are the long ones.
    """
    case = "phi3-long"
    model = reference(case)
    model.save_pretrained(tmp_path / "model")
    told = json.loads((tmp_path / "model" / "config.json").read_text())
    twin = tmp_path / "twin"
    twin.mkdir()
    told["rope_parameters"]["short_factor"] = told["rope_parameters"]["long_factor"]
    (twin / "config.json").write_text(json.dumps(told))
    (twin / "model.safetensors").symlink_to(tmp_path / "model" / "model.safetensors")
    always_long = transformers.AutoModelForCausalLM.from_pretrained(twin, attn_implementation="eager").eval()
    prompt = [3, 1, 4, 1, 5, 9, 2, 6, 1, 4, 1, 5]
    llm = LLM(str(tmp_path / "model"), drafter=drafter, dtype="float32")
    try:
        short, long = SamplingParams(max_tokens=20, ignore_eos=True), SamplingParams(max_tokens=21, ignore_eos=True)
        made = llm.generate([{"prompt_token_ids": prompt}] * 2, [short, long])
    finally:
        llm.close()
    assert [*prompt, *made[0].outputs[0].token_ids] == greedy(model, prompt, 20)
    assert [*prompt, *made[1].outputs[0].token_ids] == greedy(always_long, prompt, 21)
    assert made[0].outputs[0].token_ids != made[1].outputs[0].token_ids[:20]


def test_what_the_native_kernels_do_not_know_is_said_in_one_line(tmp_path, caplog):
    save_model(random_decoder(tiny_config("gpt2"), dtype=torch.bfloat16), tmp_path)
    with caplog.at_level("WARNING", logger="outdraft"):
        assert load_network(tmp_path).kernels == "pytorch"
    said = [record.getMessage() for record in caplog.records]
    expected = [] if library() is None else ["gpt2 runs through PyTorch, more slowly: the native kernels do not know"]
    assert [line.rpartition(" know")[0] + " know" for line in said] == expected
