"""What a block network's files may not say: one error that names the key or the tensor, its value and the cure."""

import json
from pathlib import Path

import pytest
import torch
from drafters.test_block_formats import change, flat, gone, network, read

from outdraft.core.learner_registry import find_learner
from outdraft.models.networks.base import Decoder
from outdraft.options.errors import CapabilityError, ModelLoadError, OutdraftError
from outdraft.testing.tiny import random_decoder, tiny_config
from outdraft.weights.safetensors import read_tensors, save_tensors


@pytest.fixture
def target() -> Decoder:
    return random_decoder(tiny_config(layers=6), dtype=torch.float32)


REFUSED = [
    ("dflash", {"use_swa": True}, ModelLoadError, "sliding_window=None is not supported (layers with a window need"),
    ("dflash", {"use_swa": 1}, ModelLoadError, "use_swa=1 is not supported (a value of type bool"),
    (
        "dflash",
        {"use_swa": True, "swa_window_size": 0},
        ModelLoadError,
        "sliding_window=0 is not supported (at least 1",
    ),
    ("dflash", {"causal": True}, ModelLoadError, "is_causal and causal of config.json contradict each other"),
    ("dflash", {"target_layer_ids": [1]}, ModelLoadError, "target_layer_ids of config.json is "),
    ("dflash", {"aux_hidden_state_layer_ids": [1, 2, 3]}, ModelLoadError, "name different taps"),
    ("dflash", {"logits_multiplier": 2.0}, ModelLoadError, "logits_multiplier=2.0 is not supported"),
    ("dflash", {"is_causal": True, "sliding_window_non_causal": True}, ModelLoadError, "contradict each other"),
    ("dflash", {"input_embedding_scale": "big"}, ModelLoadError, "input_embedding_scale='big'"),
    (
        "dflash",
        {"runtime_block_size": 5},
        ModelLoadError,
        "runtime_block_size=5 of config.json must be a number of at lea",
    ),
    ("dflash", {"runtime_block_size": 1}, ModelLoadError, "must be a number of at least 2, and at most 4"),
    ("dflash", {"runtime_block_size": "3"}, ModelLoadError, "runtime_block_size='3' of config.json must be"),
    ("dspark", {"markov_head_type": "fir"}, ModelLoadError, "markov_head_type of config.json is"),
    ("dflash", {"layer_types": 1}, ModelLoadError, "layer_types"),
    (
        "dflash",
        {"aux_hidden_state_layer_ids": [1, 3, 6], "eagle_aux_hidden_state_layer_ids": [1, 2, 6]},
        ModelLoadError,
        "aux_hidden_state_layer_ids and eagle_aux_hidden_state_layer_ids and target_layer_ids of config.json name diff",
    ),
    ("dflash", {"projector_type": "domino"}, ModelLoadError, "config.json says projector_type='domino', its tensors"),
    ("dspark", {"use_confidence_head": False}, ModelLoadError, "use_confidence_head of config.json contradict"),
    ("dflash", {"final_logit_softcapping": -1.0}, ModelLoadError, "final_logit_softcapping=-1.0 is not supported"),
    ("dflash", {"final_logit_softcapping": float("nan")}, ModelLoadError, "final_logit_softcapping=nan is not supp"),
    ("dflash", {"output_multiplier": float("nan")}, ModelLoadError, "output_multiplier=nan is not supported (a finite"),
    ("dflash", {"input_embedding_scale": float("inf")}, ModelLoadError, "input_embedding_scale=inf is not supported"),
    ("dflash", {"attention_value_scale": float("nan")}, ModelLoadError, "attention_value_scale=nan is not supported"),
    ("dflash", {"num_target_layers": 9}, ModelLoadError, "num_target_layers of config.json is 6, in dflash_config 9"),
]


@pytest.mark.parametrize(("kind", "nested", "error", "words"), REFUSED)
def test_what_is_not_computed_is_refused_by_name(
    kind: str, nested: dict, error: type[OutdraftError], words: str, target: Decoder, tmp_path: Path
):
    place = flat(kind, target, tmp_path / "d")
    if "is_causal" in nested:
        gone(place, "is_causal")
    change(place, nested=nested)
    with pytest.raises(error) as raised:
        read(kind, place, target)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("domino", "emb_dim", None),
        ("domino", "pure_draft_prefix_len", -1),
        ("lilicorr", "lilicorr_candidate_topk", 0),
        ("lilicorr", "lilicorr_factor_dim", None),
        ("xpress", "xpress_rank", "4"),
    ],
)
def test_sizes_of_a_head_are_whole_numbers(kind: str, key: str, value: object, target: Decoder, tmp_path: Path):
    place = flat(kind, target, tmp_path / "d")
    gone(place, key)
    change(place, **{} if value is None else {key: value})
    with pytest.raises(ModelLoadError, match=f"{key}={value!r} of config.json must be a number of at least"):
        read(kind, place, target)


OURS = [  # in speculators' layout
    (
        {"block_size": 1025},
        ModelLoadError,
        "block_size=1025 of config.json must be a number of at least 2, and at most 1024",
    ),
    ({"mask_token_id": 1 << 40}, ModelLoadError, "must be a number of at least 0, and at most 16777216"),
    ({"num_target_layers": "6"}, ModelLoadError, "num_target_layers='6' of config.json must be a number"),
    ({"num_target_layers": 9}, CapabilityError, "is for a target of 9 layers, and this one has 6"),
    ({"shift_label": True}, ModelLoadError, "sample_from_anchor and shift_label of config.json contradict each other"),
    ({"eagle_aux_hidden_state_layer_ids": [1, 2, 6]}, ModelLoadError, "and eagle_aux_hidden_state_layer_ids of config"),
]


@pytest.mark.parametrize(("keys", "error", "words"), OURS)
def test_what_our_own_layout_may_not_say(
    keys: dict, error: type[OutdraftError], words: str, target: Decoder, tmp_path: Path
):
    find_learner("dflash").formats[0].write(network("dflash", target), target, "t", tmp_path / "d")
    change(tmp_path / "d", **keys)
    with pytest.raises(error) as raised:
        read("dflash", tmp_path / "d", target)
    assert words in str(raised.value) and ("target_layer_ids" not in words) is (
        "target_layer_ids" not in str(raised.value)
    )


@pytest.mark.parametrize("size", [None, 0, -3])
def test_a_window_has_a_size(size: int | None, target: Decoder, tmp_path: Path):
    place = flat("dflash", target, tmp_path / "d", window=3)
    change(place, sliding_window=4)
    told = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps({**told, "sliding_window": size}))
    with pytest.raises(ModelLoadError, match=f"sliding_window={size} is not supported"):
        read("dflash", place, target)


def test_a_part_that_lies_there_twice_is_refused(target: Decoder, tmp_path: Path):
    place, row = flat("dflash", target, tmp_path / "d"), torch.arange(32.0)
    save_tensors({"row": row}, place / "mask_embedding.safetensors")
    with pytest.raises(ModelLoadError, match=r"holds no tensor 'mask_embedding' but \['row'\]: give it that name"):
        read("dflash", place, target)
    save_tensors({"mask_embedding": row}, place / "mask_embedding.safetensors")
    torch.save(row, place / "mask_embedding.pt")
    assert read("dflash", place, target).config.own_mask  # the same twice
    torch.save(row + 1, place / "mask_embedding.pt")
    with pytest.raises(ModelLoadError, match="holds several rows for mask_embedding, which differ"):
        read("dflash", place, target)
    (place / "mask_embedding.pt").unlink()
    tensors = read_tensors(place / "model.safetensors")
    save_tensors({**tensors, "mask_embedding": row + 1}, place / "model.safetensors")
    with pytest.raises(ModelLoadError, match="holds several rows for mask_embedding, which differ"):
        read("dflash", place, target)
    tables = {name: torch.rand(61, 32) for name in ("embed_tokens.weight", "model.embed_tokens.weight")}
    save_tensors({**tensors, **tables}, place / "model.safetensors")
    with pytest.raises(ModelLoadError, match=r"holds two tensors for 'embed_tokens.weight'"):
        read("dflash", place, target)
    same = dict.fromkeys(tables, tables["embed_tokens.weight"].clone())
    save_tensors({**tensors, **same}, place / "model.safetensors")
    read("dflash", place, target)


LILICORR = [
    ("lilicorr_enabled", False, ModelLoadError, "lilicorr_enabled=False of config.json"),
    ("lilicorr_logit_scale", "8", ModelLoadError, "lilicorr_logit_scale='8' of config.json must be a number above 0"),
    ("lilicorr_num_layers", 17, ModelLoadError, "lilicorr_num_layers=17 of config.json: at most 16"),
    ("lilicorr_num_heads", 3, CapabilityError, "lilicorr_hidden_size=8 is no multiple of lilicorr_num_heads=3"),
    ("conv_kernel_size", 2, ModelLoadError, "one of conv_kernel_size and conv_group_size: give both"),
    ("sample_from_anchor", True, CapabilityError, "slots behind the anchor's"),
]


@pytest.mark.parametrize(("key", "value", "error", "words"), LILICORR)
def test_what_no_lilicorr_has_is_refused(
    key: str, value: object, error: type[OutdraftError], words: str, target: Decoder, tmp_path: Path
):
    place = flat("lilicorr", target, tmp_path / "d")
    gone(place, "shift_label")
    change(place, nested={key: value}, **{key: value})
    with pytest.raises(error) as raised:
        read("lilicorr", place, target)
    assert words in str(raised.value)
