"""LoRA adapters in PEFT's files: PEFT's, merged, have the logits that PEFT found; ours do in transformers what they do
here; what cannot be merged is named.

The adapters of tests/peers/lora are PEFT's own (tests/peers/lora_by_peft.py), which also opens ours in PEFT.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from outdraft.models.files.load import load_model, save_model
from outdraft.models.files.peft_lora import open_lora, write_lora
from outdraft.models.remake.lora import FOLDER, load_lora, merged, new_lora, save_lora
from outdraft.models.remake.lora_config import LoraConfig
from outdraft.models.remake.merge import add_lora, merge_lora
from outdraft.nn.context import CausalContext
from outdraft.options.errors import ModelLoadError, OutdraftError
from outdraft.testing.tiny import random_decoder
from tests.helpers.tiny_families import tiny_config, tiny_model

PEERS = Path(__file__).parents[1] / "peers/lora"
VARIANTS = {
    "patterns": "llama",
    "rslora": "llama",
    "some": "phi3",
    "some_layers": "cohere2",
    "conv1d": "gpt2",
    "interleaved": "gpt_neox",
}
Q = "base_model.model.model.layers.0.self_attn.q_proj"


def logits(model, tokens):
    return model(tokens, torch.arange(len(tokens)), CausalContext(1, len(tokens)))


def adapter(place, edit=dict, **told):
    """PEFT's, of the variant with patterns, with other tensors and other keys; `...` takes a key out."""
    shutil.copytree(PEERS / "patterns", place)
    config = json.loads((place / "adapter_config.json").read_text()) | told
    config = {key: value for key, value in config.items() if value is not ...}
    (place / "adapter_config.json").write_text(json.dumps(config))
    save_file(edit(load_file(place / "adapter_model.safetensors")), place / "adapter_model.safetensors")
    return place


def learned(target, seed=2, rank=3):
    """Changes that show."""
    lora, generator = new_lora(target, LoraConfig(rank=rank, alpha=5.0), seed=1), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for one in lora.parameters():
            one += 0.3 * torch.randn(one.shape, generator=generator)
    return lora


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_peft_merged_is_what_is_merged_here(variant, tmp_path):
    base, numbers = PEERS / "base" / VARIANTS[variant], load_file(PEERS / variant / "numbers.safetensors")
    before = logits(load_model(base), numbers["tokens"])
    opened = merge_lora(str(base), str(PEERS / variant), tmp_path)
    found = logits(load_model(tmp_path), numbers["tokens"])
    assert float((found - numbers["logits"]).abs().max()) < 1e-4 < 0.1 < float((before - found).abs().max())
    assert opened.base == VARIANTS[variant] and opened.modules


@pytest.mark.parametrize(
    "architecture", ["llama", "qwen3", "phi3", "glm4", "cohere2", "gpt2", "gpt_neox", "starcoder2"]
)
def test_ours_changes_the_same_modules_of_transformers(architecture, tmp_path):
    """W + alpha / r B A by the names in the file."""
    transformers = pytest.importorskip("transformers")
    target = random_decoder(tiny_config(architecture, max_len=32), dtype=torch.float32)
    lora, ids = learned(target), torch.arange(9)
    save_model(target, tmp_path / "base")
    save_lora(lora, target, tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype="float32").eval()
    told = json.loads((tmp_path / FOLDER / "adapter_config.json").read_text())
    tensors = load_file(tmp_path / FOLDER / "adapter_model.safetensors")
    assert (told["peft_type"], told["r"], told["lora_alpha"], told["bias"]) == ("LORA", 3, 5, "none")
    for name in [one for one in tensors if "lora_A" in one]:
        module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        assert module.rpartition(".")[2] in told["target_modules"]
        change = told["lora_alpha"] / told["r"] * tensors[name.replace("lora_A", "lora_B")] @ tensors[name]
        weight = model.get_submodule(module).weight
        with torch.no_grad():
            weight += change.T if architecture == "gpt2" else change
    with torch.no_grad():
        theirs = model(ids[None]).logits[0]
    assert float((logits(merged(target, lora), ids) - theirs).abs().max()) < 1e-4
    assert float((logits(target, ids) - theirs).abs().max()) > 0.1


@pytest.mark.parametrize("architecture", ["llama", "cohere2", "gpt2", "gpt_neox"])
def test_ours_is_read_again_bit_for_bit(architecture, tmp_path):
    target = random_decoder(tiny_config(architecture), dtype=torch.float32)
    lora = learned(target)
    save_lora(lora, target, tmp_path)
    again = load_lora(tmp_path, target)
    assert again.config == lora.config
    for (name, one), other in zip(lora.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other), name
    whole = merged(target, lora)
    add_lora(target, open_lora(tmp_path / FOLDER))
    for (name, one), other in zip(whole.named_parameters(), target.parameters(), strict=True):
        torch.testing.assert_close(one, other, msg=name)


def test_a_whole_factor_is_written_as_one(tmp_path):
    for alpha in (32, 32.0, 0.5):  # options from a command are of either type
        write_lora(tmp_path, {"q_proj": (torch.zeros(2, 4), torch.zeros(4, 2))}, rank=2, alpha=alpha)
        assert json.loads((tmp_path / "adapter_config.json").read_text())["lora_alpha"] == alpha


def test_a_sum_is_rounded_once(tmp_path):
    """bfloat16 and a change that is smaller than a step of it."""
    target = tiny_model(dtype=torch.bfloat16)
    lora = learned(target)
    save_lora(lora, target, tmp_path)
    whole = merged(target, lora)
    add_lora(target, open_lora(tmp_path / FOLDER))
    assert torch.equal(target.layers[0].down.weight, whole.layers[0].down.weight)


def test_modules_of_a_multimodal_model_are_found_by_their_own_names(tmp_path, caplog):
    """The patterns are about the names in the file; a change of the pictures' part is left out, and a line says so."""

    def wrap(name):
        return name.replace("model.layers", "model.language_model.layers")

    rank = {"layers.1.self_attn.v_proj": 2, "down_proj": 3, r"model\.language_model\.layers\.0\.mlp\.(gate|up)_proj": 6}
    alpha = {"^model.language_model.layers.0.self_attn.q_proj": 5, "k_proj": 1, "up_proj": 20}
    beside = {Q.replace("model.layers", "visual.blocks") + f".lora_{part}.weight": torch.ones(4, 4) for part in "AB"}
    patterns = {"rank_pattern": rank, "alpha_pattern": alpha}
    place = adapter(tmp_path / "lora", lambda own: {wrap(name): one for name, one in own.items()} | beside, **patterns)
    merge_lora(str(PEERS / "base/llama"), str(place), tmp_path / "out")
    assert len(caplog.messages) == 1 and "visual.blocks.0" in caplog.text
    numbers = load_file(PEERS / "patterns/numbers.safetensors")
    found = logits(load_model(tmp_path / "out"), numbers["tokens"])
    assert float((found - numbers["logits"]).abs().max()) < 1e-4


def without(name):
    return lambda own: {key: one for key, one in own.items() if key != name}


def reshaped(name, *shape):
    return lambda own: {**own, name: torch.ones(shape)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"edit": without(f"{Q}.lora_B.weight")}, ("lacks the tensor", "layers.0.self_attn.q_proj.lora_B.weight")),
        ({"edit": without(f"{Q}.lora_A.weight")}, ("lacks the tensor", "layers.0.self_attn.q_proj.lora_A.weight")),
        (
            {"edit": reshaped(f"{Q}.lora_B.weight", 15, 4)},
            ("layers.0.self_attn.q_proj.lora_B.weight", "(15, 4)", "(16, 4)", "'llama'"),
        ),
        ({"r": 5}, ("self_attn.q_proj.lora_A.weight", "(4, 16)", "(5, 16)")),
        ({"edit": reshaped(f"{Q}.lora_A.weight", 4)}, ("q_proj.lora_A.weight", "(4,)")),
        ({"r": 0}, ("r=0", "at least 1")),
        ({"r": ...}, ("r=None", "whole number", "adapter_config.json")),
        ({"lora_alpha": "7"}, ("lora_alpha='7'", "a number")),
        ({"lora_alpha": float("inf")}, ("lora_alpha=inf", "finite")),
        ({"rank_pattern": {"(": 3}}, ("(()$", "regular expression")),
        ({"rank_pattern": [3]}, ("rank_pattern=[3]",)),
        ({"peft_type": ...}, ("peft_type=None", "merge_and_unload")),
        ({"use_dora": True}, ("use_dora=True", "merge_and_unload")),
        ({"edit": reshaped(f"{Q}.lora_A.weight", 4, 16, 1)}, ("q_proj.lora_A.weight", "(4, 16, 1)")),
        ({"edit": lambda own: {**own, f"{Q}.lora_A.weight": torch.full((4, 16), float("nan"))}}, ("NaN", "lora")),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused_by_name(change, words, tmp_path):
    place = adapter(tmp_path / "lora", **change)
    with pytest.raises(OutdraftError) as caught:
        merge_lora(str(PEERS / "base/llama"), str(place), tmp_path / "out")
    assert all(word in str(caught.value) for word in words), caught.value
    assert not (tmp_path / "out").exists()


def test_a_head_that_is_tied_to_the_embeddings_is_not_changed(tmp_path):
    head = {
        f"base_model.model.lm_head.lora_{part}.weight": torch.ones(size)
        for part, size in {"A": (4, 16), "B": (24, 4)}.items()
    }
    place = adapter(tmp_path / "lora", lambda own: {**own, **head})
    merge_lora(str(PEERS / "base/llama"), str(place), tmp_path / "out")
    changed = load_model(tmp_path / "out").lm_head.weight - load_model(PEERS / "base/llama").lm_head.weight
    torch.testing.assert_close(changed, torch.full((24, 16), 7.0))
    shape = tiny_config(vocab=24, hidden=16, heads=2, kv_heads=1, inner=24, max_len=32, tie=True)
    save_model(random_decoder(shape, dtype=torch.float32), tmp_path / "tied")
    with pytest.raises(ModelLoadError, match=r"changes 1 modules .* share their weights with the embeddings.*lm_head"):
        merge_lora(str(tmp_path / "tied"), str(place), tmp_path / "other")


def test_training_goes_on_with_our_own_alone(tmp_path):
    target = load_model(PEERS / "base/llama")
    with pytest.raises(ModelLoadError, match=r"no adapter_config\.json or no adapter_model"):
        load_lora(tmp_path, target)
    shutil.copytree(PEERS / "patterns", tmp_path / FOLDER)
    with pytest.raises(ModelLoadError, match=r"not written by outdraft.*q_proj, .*k_proj.*outdraft merge"):
        load_lora(tmp_path, target)
    save_lora(learned(target), target, tmp_path)
    (place := tmp_path / FOLDER / "adapter_config.json").write_text(
        json.dumps(json.loads(place.read_text()) | {"use_rslora": True})
    )
    with pytest.raises(ModelLoadError, match=r"rank or scale of its own"):
        load_lora(tmp_path, target)
    save_lora(learned(target), target, tmp_path)
    weights = tmp_path / FOLDER / "adapter_model.safetensors"
    save_file({name: one + 1 if "k_proj.lora_A" in name else one for name, one in load_file(weights).items()}, weights)
    with pytest.raises(ModelLoadError, match=r"an A, rank or scale of its own"):
        load_lora(tmp_path, target)
    save_lora(learned(target), target, tmp_path)
    with pytest.raises(ModelLoadError, match=r"'model\.layers\.0.*has shape .* ask for"):
        load_lora(tmp_path, tiny_model(dtype=torch.float32))
    with pytest.raises(ModelLoadError, match=r"changes 7 modules .*model\.layers\.1"):
        load_lora(tmp_path, random_decoder(tiny_config(vocab=24, hidden=16, heads=2, kv_heads=1, inner=24, layers=1)))
