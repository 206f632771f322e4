"""GGUF files of every family, made by llama.cpp's own converter (`tests/peers/gguf_by_llama_cpp.py`): the logits are
those of transformers for the model that was converted."""

from pathlib import Path

import gguf
import pytest
import torch
from safetensors.torch import load_file

from outdraft.models.files.gguf_families import FAMILIES
from outdraft.models.files.load import load_model, save_model
from outdraft.nn.context import CausalContext
from outdraft.options.errors import ModelLoadError

FILES = Path(__file__).parent / "converted"
SAID = load_file(FILES / "logits.safetensors")
LENGTH = 48


@torch.no_grad()
def logits_of(model):
    ids = torch.randint(64, (1, LENGTH), generator=torch.Generator().manual_seed(1))[0]
    return model(ids, torch.arange(LENGTH) + model.config.first_position(LENGTH), CausalContext(1, LENGTH))


@pytest.mark.parametrize("name", SAID)
def test_logits_are_those_of_the_model_that_was_converted(name, tmp_path):
    model = load_model(FILES / f"{name}.gguf", dtype="float32")
    assert (logits_of(model) - SAID[name]).abs().max() < 1e-4 < 0.3 < SAID[name].std()
    assert model.config.eos_ids == (2,) and model.config.bos_id == 1
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    assert (logits_of(again) - SAID[name]).abs().max() < 1e-4


def test_every_architecture_that_is_read_has_a_file():
    made = {str(gguf.GGUFReader(FILES / f"{name}.gguf").get_field("general.architecture").contents()) for name in SAID}
    assert made | {"qwen2", "qwen3"} == set(FAMILIES)  # those two: tests/weights/test_gguf.py


def changed(name, path, key, value, drop=()):
    """A copy of a file with one key set or some left out."""
    reader = gguf.GGUFReader(FILES / f"{name}.gguf")
    writer = gguf.GGUFWriter(path, str(reader.get_field("general.architecture").contents()))
    for field in reader.fields.values():
        if field.name.startswith(("GGUF.", "general.")) or field.name in (key, *drop):
            continue
        writer.add_key_value(field.name, field.contents(), field.types[0], *field.types[1:2])
    if key is not None:
        writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("gemma2", "gemma2.attn_logit_softcapping", 0.7),
        ("gemma2", "gemma2.final_logit_softcapping", 1.1),
        ("gemma2", "gemma2.attention.sliding_window", 4),
        ("gemma3", "gemma3.rope.freq_base_swa", 50.0),
        ("gemma3", "gemma3.rope.scaling.factor", 2.0),
        ("phi3", "phi3.rope.dimension_count", 16),
        ("phi3-long", "phi3.rope.scaling.attn_factor", 0.5),
        ("mistral3", "mistral3.attention.temperature_scale", 0.9),
        ("granite", "granite.attention.scale", 0.9),
        ("granite", "granite.embedding_scale", 1.0),
        ("granite", "granite.residual_scale", 1.0),
        ("granite", "granite.logit_scale", 1.0),
        ("olmo3", "olmo2.attention.sliding_window", 4),
        ("glm4", "glm4.rope.dimension_count", 4),
        ("starcoder2", "starcoder2.attention.layer_norm_epsilon", 0.3),
        ("cohere2", "cohere2.logit_scale", 0.3),
        ("cohere2", "cohere2.attention.sliding_window", 4),
        ("exaone4", "exaone4.attention.sliding_window", 4),
    ],
)
def test_a_key_at_another_value_moves_the_logits(name, key, value, tmp_path):
    model = load_model(changed(name, tmp_path / "m.gguf", key, value), dtype="float32")
    assert (logits_of(model) - SAID[name]).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("gemma2", "gemma2.attention.chunk_size", 8),
        ("granite", "granite.rope.scaling.finetuned", False),
        ("exaone4", "exaone4.attention.causal", False),
        ("llama", "llama.embedding_scale", 2.0),
        ("cohere2", "cohere2.attention.sliding_window_pattern", "LLLG"),
    ],
)
def test_what_is_not_known_is_refused(name, key, value, tmp_path):
    with pytest.raises(ModelLoadError, match=key.replace(".", r"\.")):
        load_model(changed(name, tmp_path / "m.gguf", key, value))


def test_a_file_of_mistral_has_no_window_of_its_own(tmp_path):
    drop = ("mistral3.attention.temperature_scale", "mistral3.rope.scaling.yarn_log_multiplier")
    config = load_model(changed("mistral3", tmp_path / "m.gguf", None, None, drop=drop)).config
    assert config.architecture == "mistral" and config.windows == ()


def test_gemma_2_has_soft_caps_where_the_file_says_nothing(tmp_path):
    drop = ("gemma2.attn_logit_softcapping", "gemma2.final_logit_softcapping")
    config = load_model(changed("gemma2", tmp_path / "m.gguf", None, None, drop=drop)).config
    assert (config.score_cap, config.logit_cap) == (50.0, 30.0)


def test_a_temperature_without_stretched_positions_is_refused(tmp_path):
    path = changed("mistral3", tmp_path / "m.gguf", "mistral3.rope.scaling.type", "none")
    with pytest.raises(ModelLoadError, match=r"mistral3\.rope\.scaling\.type='none' is not supported"):
        load_model(path)
