"""Whatever is wrong with a model directory is one clear error that names it."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from outdraft.models.files.load import load_model, save_model
from outdraft.options.errors import ModelLoadError
from outdraft.testing.tiny import tiny_model
from outdraft.weights.hub import resolve


@pytest.fixture
def folder(tmp_path):
    save_model(tiny_model(dtype=torch.float32), tmp_path / "model")
    return tmp_path / "model"


def edit_config(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not ...}))


def edit_tensors(folder, change):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def fails(folder, *words, **options):
    with pytest.raises(ModelLoadError) as caught:
        load_model(folder, **options)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_unharmed_directory_loads(folder):
    load_model(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "mamba"}, ("mamba", "llama", "qwen3")),
        ({"model_type": ...}, ("model_type=None",)),
        ({"hidden_act": "xielu"}, ("hidden_act", "xielu", "silu")),
        ({"rope_scaling": {"rope_type": "warped", "factor": 2.0}}, ("rope_type", "warped", "yarn")),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, ("short_factor", "4 numbers")),
        ({"rope_scaling": {"rope_type": "default", "warp": 1}}, ("warp",)),
        ({"my_note": "hello"}, ("my_note", "hello", "delete it")),
        ({"rms_norm_epsilon": 0.5}, ("rms_norm_epsilon=0.5", "did you mean 'rms_norm_eps'")),
        ({"rope_scaling": {"rope_type": "linear"}}, ("factor",)),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0, "warp": 1}}, ("warp",)),
        ({"rope_scaling": "linear"}, ("linear", "table")),
        ({"rope_theta": 0}, ("rope_theta=0.0", "above 0")),
        ({"rope_scaling": {"rope_type": "linear", "factor": -2}}, ("factor=-2.0", "above 0")),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "beta_fast": 0}}, ("beta_fast=0.0", "above 0")),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 0}},
            ("original_max_position_embeddings=0", "at least 1"),
        ),
        ({"model_type": "gemma2", "query_pre_attn_scalar": 0}, ("query_pre_attn_scalar=0.0", "above 0")),
        ({"quantization_config": {"quant_method": "gptq"}}, ("quantization_config", "gptq")),
        ({"num_local_experts": 8}, ("num_local_experts", "8")),
        ({"attn_logit_softcapping": 50.0}, ("attn_logit_softcapping", "50.0")),
        ({"embedding_multiplier": 12.0}, ("embedding_multiplier",)),
        ({"some_new_multiplier": 3.0}, ("some_new_multiplier",)),
        ({"hidden_size": ...}, ("hidden_size",)),
        ({"hidden_size": "32"}, ("hidden_size", "'32'", "int")),
        ({"num_hidden_layers": True}, ("num_hidden_layers", "True")),
        ({"eos_token_id": "end"}, ("eos_token_id", "end")),
        ({"rms_norm_eps": float("nan")}, ("rms_norm_eps=nan", "finite")),
        ({"rms_norm_eps": 10**400}, ("rms_norm_eps=1000", "finite")),
        ({"rope_scaling": {"rope_type": "linear", "factor": float("inf")}}, ("rope_scaling.factor=inf", "finite")),
        (
            {"rope_scaling": {"type": "longrope", "short_factor": [1.0, float("-inf")]}},
            ("rope_scaling.short_factor.1=-inf",),
        ),
        ({"num_attention_heads": 3, "head_dim": None}, ("num_attention_heads=3", "32")),
        ({"num_key_value_heads": 3}, ("num_key_value_heads=3", "4")),
        ({"num_hidden_layers": 0}, ("num_hidden_layers=0",)),
        ({"partial_rotary_factor": 0.1}, ("partial_rotary_factor=0.1",)),
        ({"num_attention_heads": 0}, ("num_attention_heads=0",)),
        ({"num_hidden_layers": 2**40}, ("num_hidden_layers=1099511627776", "4096")),
        ({"num_hidden_layers": 4000}, ("lacks", "tensors")),
        ({"vocab_size": 2**40}, ("vocab_size=1099511627776",)),
        ({"vocab_size": 2**31 - 1}, ("shape (61, 32)", "asks for (2147483647, 32)")),
        ({"intermediate_size": 2**31 - 1}, ("asks for (2147483647, 32)",)),
        ({"head_dim": 2**20}, ("asks for (4194304, 32)",)),
        ({"hidden_size": 2**31 - 1}, ("hidden_size=2147483647",)),
        (
            {"num_attention_heads": 2**31 - 1, "num_key_value_heads": 2**31 - 1, "head_dim": 2**20},
            ("asks for (2251799812636672, 32)",),
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_config_that_we_cannot_honour(folder, changes, words):
    edit_config(folder, **changes)
    fails(folder, *words)


def test_layer_types_are_checked(folder):
    edit_config(folder, model_type="mistral", sliding_window=4, layer_types=["full_attention", "chunked_attention"])
    fails(folder, "layer_types", "chunked_attention")
    edit_config(folder, layer_types=["full_attention"])
    fails(folder, "layer_types", "2")


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "smollm3"])
def test_windows_that_are_off_and_on_are_refused(folder, family):
    """transformers ends with an error in its first pass (qwen), or gives these layers their window all the same."""
    kinds = ["sliding_attention", "full_attention"]
    edit_config(folder, model_type=family, use_sliding_window=False, sliding_window=4, layer_types=kinds)
    fails(folder, "use_sliding_window=False", "layer_types names sliding_attention")


def test_harmless_keys_pass(folder):
    edit_config(folder, initializer_range=0.5, pretraining_tp=2, my_note=None, num_experts=0, use_cache=False)
    load_model(folder)


def test_the_generation_config_knows_the_ends_of_a_chat(folder):
    edit_config(folder, eos_token_id=7)
    assert load_model(folder).config.eos_ids == (7,)
    (folder / "generation_config.json").write_text('{"eos_token_id": [9, 7]}')
    assert load_model(folder).config.eos_ids == (7, 9)
    (folder / "generation_config.json").write_text('{"eos_token_id": 11}')
    assert load_model(folder).config.eos_ids == (7, 11)  # the ends of both files
    edit_config(folder, eos_token_id=True)
    fails(folder, "eos_token_id=True", "an id or a list of ids")


def test_not_a_directory(folder, tmp_path):
    fails(tmp_path / "nowhere", "nowhere", "not a directory")
    fails(folder / "config.json", "is a file")


def test_config_json_absent_or_broken(folder):
    path = folder / "config.json"
    whole = path.read_text()
    path.write_text(whole[:40])
    fails(folder, "config.json", "not valid JSON")
    path.write_text("[1]")
    fails(folder, "config.json", "list")
    path.unlink()
    fails(folder, "no config.json")


def test_weights_absent(folder):
    (folder / "model.safetensors").unlink()
    fails(folder, "model.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"x")
    fails(folder, "pytorch_model.bin", "convert")


@pytest.mark.parametrize("keep", [0, 5, 200, -1])
def test_weights_cut_short(folder, keep):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    fails(folder, "model.safetensors", "empty" if keep == 0 else "cut short")


def test_an_unfinished_download(folder):
    (folder / "model-00001.safetensors.incomplete").write_bytes(b"")
    fails(folder, "unfinished download", "model-00001")


def shard(folder):
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, own in halves.items():
        save_file({name: tensors[name] for name in own}, folder / file)
    index = {"weight_map": {name: file for file, own in halves.items() for name in own}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()
    return halves


def test_shards(folder):
    halves = shard(folder)
    load_model(folder)
    tensors = load_file(folder / "b.safetensors")
    lost = halves["b.safetensors"][0]
    del tensors[lost]
    save_file(tensors, folder / "b.safetensors")
    fails(folder, lost, "b.safetensors")
    (folder / "b.safetensors").unlink()
    fails(folder, "b.safetensors", "1 of 2 shards")
    (folder / "model.safetensors.index.json").write_text('{"weight_map": 3}')
    fails(folder, "index")


def test_missing_unexpected_and_misshapen_tensors(folder):
    name = "model.layers.1.self_attn.k_proj.weight"
    edit_tensors(folder, lambda t: t.update({name: torch.zeros(3, 32)}))
    fails(folder, name, "(3, 32)", "(16, 32)")
    edit_tensors(folder, lambda t: t.pop(name))
    fails(folder, "lacks 1 tensors", name)
    edit_tensors(folder, lambda t: t.update({name: torch.zeros(16, 32), "model.extra": torch.zeros(2)}))
    fails(folder, "model.extra", "does not explain")


def test_a_buffer_that_is_no_weight_is_ignored(folder):
    edit_tensors(folder, lambda t: t.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(4)}))
    load_model(folder)


def test_nan_weights_are_found(folder):
    edit_tensors(folder, lambda t: t["model.norm.weight"].fill_(float("nan")))
    fails(folder, "NaN", "final_norm.weight")


def test_unknown_dtypes(folder):
    fails(folder, "int3", "bfloat16", dtype="int3")
    edit_tensors(folder, lambda t: t.update({name: tensor.to(torch.int8) for name, tensor in t.items()}))
    fails(folder, "I8")


def test_a_hub_name_without_the_hub(monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr("outdraft.weights.snapshots.importlib.import_module", absent)
    fails("nowhere/nothing", "nowhere/nothing", "pip install huggingface_hub")


def test_a_hub_name_that_cannot_be_had(monkeypatch):
    class Hub:
        @staticmethod
        def snapshot_download(name, **options):
            raise OSError("no network\nat all")

    monkeypatch.setattr("outdraft.weights.snapshots.importlib.import_module", lambda name: Hub)
    fails("nowhere/nothing", "nowhere/nothing", "no network")


def test_a_hub_name_in_the_cache(folder, monkeypatch):
    class Hub:
        @staticmethod
        def snapshot_download(name, *, local_files_only, **options):
            assert local_files_only
            return str(folder)

    monkeypatch.setattr("outdraft.weights.snapshots.importlib.import_module", lambda name: Hub)
    assert load_model("some/model").config.vocab_size == 61


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        ("model.safetensors", "without weights"),
        ("config.json", "without config.json"),
        ("shard", "without 1 of its weight files (b.safetensors)"),
        ("index", "without model.safetensors.index.json"),
    ],
)
@pytest.mark.parametrize("online", [True, False])
def test_a_model_that_is_in_the_cache_in_part_is_completed(folder, tmp_path, monkeypatch, gone, words, online):
    part = Path(shutil.copytree(folder, tmp_path / "part"))
    if gone in ("shard", "index"):
        (part / "model.safetensors").rename(part / ("a.safetensors" if gone == "shard" else "model-1-of-2.safetensors"))
    if gone == "shard":
        table = {"x": "a.safetensors", "y": "b.safetensors"}
        (part / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    (part / gone).unlink(missing_ok=True)

    class Hub:
        @staticmethod
        def snapshot_download(name, *, local_files_only, **options):
            if not local_files_only and not online:
                raise OSError("no network")
            return str(part if local_files_only else folder)

    monkeypatch.setattr("outdraft.weights.snapshots.importlib.import_module", lambda name: Hub)
    if online:
        assert load_model("some/model").config.vocab_size == 61
    else:
        fails("some/model", words, "no network", "check the network")


def test_further_files_are_asked_for_once_more(folder, tmp_path, monkeypatch):
    whole = Path(shutil.copytree(folder, tmp_path / "whole"))
    (whole / "heads.pt").write_text("")
    reached = []

    class Hub:
        @staticmethod
        def snapshot_download(name, *, local_files_only, **options):
            reached.append(local_files_only)
            return str(folder if local_files_only else whole)

    monkeypatch.setattr("outdraft.weights.snapshots.importlib.import_module", lambda name: Hub)
    assert resolve("some/heads", also=["heads.pt"]) == whole
    assert resolve("some/heads", also=["pytorch_model.bin"]) == folder and reached == [True, False, True]


def test_a_model_that_is_only_pickled_is_not_downloaded_again(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelLoadError, match=r"only pickled \(pytorch_model.bin\).*save_pretrained") as caught:
        load_model(folder)
    assert "again" not in str(caught.value)


@pytest.mark.parametrize("path", [10**5000, None, 3.5], ids=["huge", "none", "float"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ModelLoadError, match="model="):
        load_model(path)
