"""What lies in a directory beside the weights that config.json describes: adapters, prefixes, heads, second shards."""

import json

import pytest
import torch
from models import foreign
from safetensors.torch import load_file, save_file

from outdraft.models.files.load import load_model, save_model
from outdraft.models.target.open_network import load_network
from outdraft.nn.context import CausalContext
from outdraft.options.errors import ModelLoadError
from outdraft.testing.tiny import tiny_model

IDS = torch.tensor([5, 6, 7, 8, 3, 9])
LORA = {"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": torch.ones(2, 8)}


@pytest.fixture
def folder(tmp_path):
    save_model(tiny_model(dtype=torch.float32), tmp_path / "model")
    return tmp_path / "model"


def logits(directory):
    places = torch.arange(len(IDS))
    return load_model(directory)(IDS, places, CausalContext(1, len(IDS)))


def change(folder, edit, **keys):
    """Other tensors, and other keys of config.json."""
    tensors = edit(load_file(folder / "model.safetensors"))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def add_adapter(folder, **told):
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, **told}))
    save_file(LORA, folder / "adapter_model.safetensors")


def test_a_head_that_is_stored_is_used_where_the_config_ties_it(folder, caplog):
    want = logits(folder)
    change(folder, dict, tie_word_embeddings=True)
    assert torch.equal(logits(folder), want)
    assert len(caplog.messages) == 1 and "'lm_head.weight' is stored with other values: it is used" in caplog.text
    theirs = pytest.importorskip("transformers").AutoModelForCausalLM.from_pretrained(folder)
    assert torch.allclose(theirs(IDS[None]).logits[0], want, atol=1e-4)


def test_a_stored_copy_of_the_embeddings_is_tied_to_them(folder, caplog):
    change(
        folder,
        lambda own: {**own, "lm_head.weight": own["model.embed_tokens.weight"].clone()},
        tie_word_embeddings=True,
    )
    assert load_model(folder).config.tie_embeddings and not caplog.messages


def test_a_head_of_another_shape_is_missed_by_name(folder):
    change(folder, lambda own: {**own, "lm_head.weight": torch.zeros(7, 32)}, tie_word_embeddings=True)
    with pytest.raises(ModelLoadError, match=r"'lm_head\.weight' .* has shape \(7, 32\)"):
        load_model(folder)


def test_an_adapter_beside_weights_is_noted(folder, caplog):
    want = logits(folder)
    add_adapter(folder, base_model_name_or_path="owner/base")
    assert torch.equal(logits(folder), want)
    assert len(caplog.messages) == 1 and "peft_type='LORA') for 'owner/base'" in caplog.text
    assert f"outdraft merge {folder} --lora {folder}" in caplog.text


@pytest.mark.parametrize("config", [None, "adapter_config.json", "config.json"])
def test_an_adapter_alone_is_refused_by_name(tmp_path, config):
    add_adapter(tmp_path / "own")
    if config == "config.json":
        (tmp_path / "own/config.json").write_text('{"model_type": "llama"}')
    if config is None:
        (tmp_path / "own/adapter_config.json").unlink()
    for load in (load_network, load_model):
        with pytest.raises(ModelLoadError, match=r"holds an adapter.* no model of its own.*outdraft merge"):
            load(tmp_path / "own")


def test_an_adapter_inside_the_weights_is_refused_with_its_cure(folder):
    whole = "model.layers.0.self_attn.q_proj.weight"
    inner = {whole.replace("q_proj", f"q_proj.{part}"): torch.zeros(2) for part in ("lora_A.default", "lora_B.default")}
    change(folder, lambda own: {**own, **inner})
    with pytest.raises(ModelLoadError, match=r"has 2 tensors .*q_proj\.lora_A.*merge it into the weights"):
        load_model(folder)


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "_fsdp_wrapped_module."])
def test_a_trainers_prefix_is_left_out_and_noted(folder, prefix, caplog):
    want = logits(folder)
    change(folder, lambda own: {prefix + name: tensor for name, tensor in own.items()})
    assert torch.equal(logits(folder), want)
    assert len(caplog.messages) == 1 and prefix in caplog.text


def test_a_prefix_of_some_tensors_is_refused_by_name(folder):
    change(
        folder, lambda own: {("" if "embed" in name else "_orig_mod.") + name: tensor for name, tensor in own.items()}
    )
    with pytest.raises(ModelLoadError, match=r"lacks \d+ tensors.* and has \d+ tensors .*_orig_mod\."):
        load_model(folder)


def test_a_copy_in_a_second_shard_is_refused_where_transformers_reads(tmp_path):
    place = foreign.write_model("opt", tmp_path / "opt")
    tensors = load_file(place / "model.safetensors")
    (place / "model.safetensors").unlink()
    first, second = list(tensors)[:2]
    save_file(tensors, place / "a.safetensors", metadata={"format": "pt"})
    own = {first: tensors[first] * 0, second: tensors[second]}
    save_file(own, place / "b.safetensors", metadata={"format": "pt"})
    table = {"weight_map": {**dict.fromkeys(tensors, "a.safetensors"), second: "b.safetensors"}}
    (place / "model.safetensors.index.json").write_text(json.dumps(table))
    with pytest.raises(ModelLoadError, match=r"in more files than .*remove the shard"):
        load_network(place)


def test_an_adapter_beside_a_model_of_transformers_is_noted(tmp_path, caplog):
    place = foreign.write_model("opt", tmp_path / "opt")
    add_adapter(place)
    load_network(place)
    assert "peft_type='LORA'" in caplog.text
