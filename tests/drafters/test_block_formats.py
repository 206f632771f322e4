"""Directories of block networks as all libraries spell them: the same network, or an error that names the part."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from outdraft import zoo
from outdraft.core.learner_registry import find_learner
from outdraft.drafters.shared.blocks.net import BlockNet
from outdraft.engine.naming.speculative_config import from_mapping
from outdraft.models.files.foreign_heads import recognise
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import facts_of
from outdraft.options.errors import CapabilityError, ConfigError, ModelLoadError
from outdraft.testing.tiny import random_decoder, tiny_config
from outdraft.weights.safetensors import read_tensors, save_tensors

SMALL: dict[str, dict[str, object]] = {
    "dflash": {},
    "dflash2": {"conv_group_size": 8, "selector_rank": 4, "selector_top_k": 5},
    "domino": {"rank": 4, "state": 6, "prefix": 1},
    "dspark": {"rank": 4},
    "lilicorr": {"candidates": 5, "chain_size": 8, "chain_heads": 2, "factor_dim": 6},
    "xpress": {"rank": 4, "ratio": 3},
}
KINDS = sorted(SMALL)


@pytest.fixture
def target() -> Decoder:
    return random_decoder(tiny_config(layers=6), dtype=torch.float32)


def network(kind: str, target: Decoder, **options: object) -> BlockNet:
    method = find_learner(kind)
    chosen = method.options(**{"taps": (1, 3, 6), "block_size": 4, **SMALL[kind], **options})
    net = method.new(chosen, target, 3).module
    assert isinstance(net, BlockNet)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(parameter))))
    return net


def flat(kind: str, target: Decoder, place: Path, **options: object) -> Path:
    net = network(kind, target, **options)
    find_learner(kind).formats[1].write(net, target, "a/target", place)
    return place


def change(place: Path, *, nested: dict | None = None, **top: object) -> None:
    """Keys of a config.json; None: gone, in the table and at the top."""
    told = json.loads((place / "config.json").read_text())
    for table, given in ((told.get("dflash_config", {}), nested or {}), (told, top)):
        table.update(given)
        for key in [key for key, value in given.items() if value is None]:
            del table[key]
    (place / "config.json").write_text(json.dumps(told))


def gone(place: Path, *keys: str) -> None:
    told = json.loads((place / "config.json").read_text())
    for key in keys:
        told.pop(key, None)
        told.get("dflash_config", {}).pop(key, None)
    (place / "config.json").write_text(json.dumps(told))


def renamed(place: Path, new: dict[str, str], prefix: str = "") -> None:
    path = place / "model.safetensors"
    tensors = read_tensors(path)
    for old, name in new.items():
        tensors = {one.replace(old, name): tensor for one, tensor in tensors.items()}
    save_tensors({prefix + one: tensor for one, tensor in tensors.items()}, path)


def read(kind: str, place: Path, target: Decoder) -> BlockNet:
    method = find_learner(kind)
    net = method.load(method.options(), target, place).module
    assert isinstance(net, BlockNet)
    return net


def said(net: BlockNet, target: Decoder) -> torch.Tensor:
    """The rows of a block as they go in."""
    return net.embed(torch.tensor([5, 6]), torch.tensor([1, 2]), target.embed)


def same(a: BlockNet, b: BlockNet) -> bool:
    theirs = dict(b.named_parameters())
    return replace(a.config, layers=b.config.layers) == b.config and all(
        torch.equal(one, theirs.pop(name)) for name, one in a.named_parameters()
    )


@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_each_layout_is_known_as_itself_and_says_the_same(kind: str, window: int, target: Decoder, tmp_path: Path):
    net, (*formats, _) = network(kind, target, window=window), find_learner(kind).formats
    changed = {"causal_windows": bool(window), "embedding_scale": 3.0, "output_multiplier": 0.5, "logit_cap": 1.0}
    changed["runtime_block_size"] = 3 if window else None
    net.config = replace(net.config, **changed, from_anchor=kind == "dspark")
    for one in formats:
        one.write(net, target, "a/target", tmp_path / one.name)
        assert [other.name for other in formats if other.matches(tmp_path / one.name)] == [one.name]
        found = recognise(tmp_path / one.name)
        assert found is not None and found[0] == kind
        back = one.read(tmp_path / one.name, target, None)
        assert same(net, back) and back.config.layers.windows == net.config.layers.windows
        assert back.own == net.own
    ours, theirs = (json.loads((tmp_path / one.name / "config.json").read_text()) for one in formats)
    assert ours["aux_hidden_state_layer_ids"] == [1, 3, 6] and ours["sample_from_anchor"] is (kind == "dspark")
    assert ours["speculators_config"]["verifier"]["name_or_path"] == "a/target"
    assert ours["speculators_config"]["proposal_methods"][0]["speculative_tokens"] == net.config.depth
    assert theirs["dflash_config"]["target_layer_ids"] == theirs["target_layer_ids"] == [0, 2, 5]
    assert (
        ours.get("runtime_block_size") == theirs["dflash_config"].get("runtime_block_size") == (3 if window else None)
    )
    assert "runtime_block_size" not in theirs
    assert theirs["num_target_layers"] == 6 and theirs["block_size"] == theirs["dflash_config"]["block_size"] == 4


def test_windows_without_norms_of_queries_are_kept(target: Decoder, tmp_path: Path):
    net = network("dflash", target, window=3, qk_norm=False)
    find_learner("dflash").formats[0].write(net, target, "t", tmp_path / "s")
    assert read("dflash", tmp_path / "s", target).config.layers.windows == (3, 3)


SIGHTS = [  # kind, layout, keys -> windows are causal, all is causal
    ("dflash", 0, {}, (True, False)),
    ("dflash2", 0, {}, (False, False)),
    ("dspark", 0, {}, (True, False)),
    ("dflash", 1, {}, (True, False)),
    ("dflash2", 1, {}, (True, False)),
    ("dspark", 1, {}, (False, False)),
    ("dflash", 1, {"is_causal": False}, (False, False)),
    ("dflash", 1, {"is_causal": True}, (True, True)),
    ("dflash", 1, {"causal": False}, (False, False)),
    ("dflash", 1, {"causal": True}, (True, True)),
    ("dflash", 1, {"sliding_window_non_causal": True}, (False, False)),
    ("dflash", 0, {"sliding_window_non_causal": True}, (False, False)),
]


@pytest.mark.parametrize(("kind", "layout", "keys", "seen"), SIGHTS)
def test_what_slots_see_where_the_file_does_not_say(
    kind: str, layout: int, keys: dict, seen: tuple[bool, bool], target: Decoder, tmp_path: Path
):
    find_learner(kind).formats[layout].write(network(kind, target, window=3), target, "t", tmp_path / "d")
    gone(tmp_path / "d", "is_causal", "sliding_window_non_causal")
    change(tmp_path / "d", **keys)
    config = read(kind, tmp_path / "d", target).config
    assert (config.causal_windows, config.causal) == seen


FULL, SLIDING = "full_attention", "sliding_attention"
WINDOWS = [  # at the top, in the table -> windows, whether they are causal, whether all is
    ({}, {"use_swa": True, "swa_window_size": 3}, (3, 3), (False, False)),
    ({"sliding_window": 3}, {"use_swa": True}, (3, 3), (False, False)),
    (
        {"layer_types": [FULL, FULL], "use_sliding_window": False},
        {"use_swa": True, "swa_window_size": 3},
        (3, 3),
        (False,) * 2,
    ),
    ({"layer_types": [FULL, SLIDING]}, {"use_swa": True, "swa_window_size": 3}, (None, 3), (True, False)),
    ({"layer_types": [FULL, SLIDING]}, {"use_swa": False, "swa_window_size": 3}, (None, 3), (True, False)),
    ({}, {"use_swa": True, "swa_window_size": 3, "causal": True}, (3, 3), (True, True)),
    ({}, {"use_swa": False, "swa_window_size": 3}, (), (True, False)),
]


@pytest.mark.parametrize(("top", "nested", "windows", "seen"), WINDOWS)
def test_windows_that_are_named_beside_the_layers(
    top: dict, nested: dict, windows: tuple, seen: tuple[bool, bool], target: Decoder, tmp_path: Path
):
    """As MiMo's drafts name them, and as vLLM reads them."""
    place = flat("dflash", target, tmp_path / "d")
    gone(place, "is_causal", "layer_types", "sliding_window", "use_sliding_window")
    change(place, nested=nested, **top)
    net = read("dflash", place, target)
    assert net.config.layers.windows == windows
    assert (net.config.causal_windows, net.config.causal) == seen
    for one in find_learner("dflash").formats[:2]:
        one.write(net, target, "t", tmp_path / one.name)
        again = read("dflash", tmp_path / one.name, target).config
        assert [again.sight(layer) for layer in range(2)] == [net.config.sight(layer) for layer in range(2)]


def test_the_anchors_slot_guesses_where_each_library_says_so(target: Decoder, tmp_path: Path, caplog):
    method = find_learner("dspark")
    for layout, place in enumerate(("s", "f")):
        method.formats[layout].write(network("dspark", target), target, "t", tmp_path / place)
        gone(tmp_path / place, "sample_from_anchor", "shift_label")
    assert read("dspark", tmp_path / "s", target).config.from_anchor
    assert not read("dspark", tmp_path / "f", target).config.from_anchor
    assert "the anchor's own slot guesses nothing" in caplog.text
    change(tmp_path / "f", nested={"shift_label": True})
    assert read("dspark", tmp_path / "f", target).config.from_anchor
    gone(tmp_path / "f", "dflash_config")  # DeepSpec's layout has all at the top
    assert read("dspark", tmp_path / "f", target).config.from_anchor
    assert "guesses too, as in DeepSpec" in caplog.text


def test_modelopts_names_of_a_confidence_and_a_head(target: Decoder, tmp_path: Path):
    place = flat("dspark", target, tmp_path / "d")
    before = read("dspark", place, target)
    renamed(place, {"markov_head.": "", "confidence_head.proj": "confidence_proj"}, prefix="model.")
    gone(place, "enable_confidence_head", "confidence_head_with_markov")
    change(place, nested={"use_confidence_head": True, "projector_type": "dspark"})
    assert recognise(place)[0] == "dspark" and same(before, read("dspark", place, target))
    gone(place, "use_confidence_head")  # then the tensors say it
    assert same(before, read("dspark", place, target))


def test_code_books_have_either_name(target: Decoder, tmp_path: Path):
    place = flat("dflash2", target, tmp_path / "d")
    before = read("dflash2", place, target)
    renamed(place, {"_codebook": "_codebook.weight"}, prefix="model.")
    change(place, architectures=["DSparkDraftModel"])  # whatever it is called
    assert recognise(place)[0] == "dflash2" and same(before, read("dflash2", place, target))


def test_taps_and_blocks_that_older_files_leave_out(target: Decoder, tmp_path: Path):
    place = flat("dflash", target, tmp_path / "d", num_layers=3)
    gone(place, "target_layer_ids", "block_size")
    config = read("dflash", place, target).config
    assert config.taps == (2, 3, 4) and config.block_size == 16
    change(place, block_size=5)
    assert read("dflash", place, target).config.block_size == 5
    one = flat("dflash", target, tmp_path / "one", num_layers=1, taps=(3,))
    gone(one, "target_layer_ids")
    assert read("dflash", one, target).config.taps == (4,)
    change(one, target_layer_ids=[-1])  # DeepSpec's word for the embeddings
    change(one, eagle_aux_hidden_state_layer_ids=[0])  # the same, after so many layers
    assert read("dflash", one, target).config.taps == (0,)


@pytest.mark.parametrize("kind", ["safetensors", "table", "bare", "tensor"])
def test_a_mask_has_a_row_of_its_own(kind: str, target: Decoder, tmp_path: Path):
    place, row = flat("dflash", target, tmp_path / "d"), torch.arange(32.0)
    change(place, nested={"mask_token_id": 61}, mask_token_id=61)
    with pytest.raises(CapabilityError, match=r"mask_token_id=61 .* none of the target's 61 tokens"):
        read("dflash", place, target)
    if kind == "safetensors":
        save_tensors({"mask_embedding": row}, place / "mask_embedding.safetensors")
    elif kind == "tensor":
        tensors = read_tensors(place / "model.safetensors")
        save_tensors({**tensors, "mask_embedding": row}, place / "model.safetensors")
    else:
        whole = {"mask_token_id": 61, "embedding": row} if kind == "table" else row[None]
        torch.save(whole, place / "mask_embedding.pt")
    net = read("dflash", place, target)
    rows = said(net, target).view(2, 4, -1)
    assert torch.equal(rows[:, 1:], row.expand(2, 3, -1)) and torch.equal(rows[:, 0], target.embedding[[5, 6]])
    find_learner("dflash").formats[0].write(net, target, "t", tmp_path / "s")
    assert same(net, read("dflash", tmp_path / "s", target))


def test_tables_of_its_own_are_read(target: Decoder, tmp_path: Path):
    place = flat("dflash", target, tmp_path / "d")
    change(place, has_embed_tokens=True)
    with pytest.raises(ModelLoadError, match=r"has_embed_tokens of config.json is true, and its files hold no such"):
        read("dflash", place, target)
    tables = {"embed_tokens.weight": torch.rand(61, 32), "lm_head.weight": torch.rand(61, 32)}
    tensors = {**read_tensors(place / "model.safetensors"), **tables, "verifier_norm.weight": torch.ones(32)}
    save_tensors(tensors, place / "model.safetensors")
    net = read("dflash", place, target)
    assert torch.equal(said(net, target)[0], tables["embed_tokens.weight"][5])
    assert torch.equal(net.scores(torch.ones(1, 32), target.head), torch.ones(1, 32) @ tables["lm_head.weight"].T)
    assert facts_of(target).vocab_size == 61


def test_a_draft_as_nemotrons_is_read(target: Decoder, tmp_path: Path):
    """Taps in both conventions, embeddings of its own, the target's head, whatever its architecture is called."""
    place = flat("dspark", target, tmp_path / "d", from_anchor=False)
    change(place, architectures=["NemotronDraftForCausalLM"], has_embed_tokens=True, has_lm_head=False)
    change(place, eagle_aux_hidden_state_layer_ids=[1, 3, 6], attention_sink_bias=False)
    own = torch.rand(61, 32)
    save_tensors({**read_tensors(place / "model.safetensors"), "embed_tokens.weight": own}, place / "model.safetensors")
    assert recognise(place)[0] == "dspark"
    net = read("dspark", place, target)
    assert net.config.taps == (1, 3, 6) and not net.config.from_anchor and net.lm_head is None
    assert torch.equal(said(net, target)[0], own[5])


def test_a_lilicorr_has_sglangs_names_or_modelopts(target: Decoder, tmp_path: Path):
    place = flat("lilicorr", target, tmp_path / "d")
    before = read("lilicorr", place, target)
    ours = {"feature_mlp.up_proj": "feature_mlp.1", "feature_mlp.down_proj": "feature_mlp.3"}
    ours |= {"feature_norm": "feature_mlp.0", "lilicorr.layers.1.mlp.down_proj": "lilicorr.layers.1.mlp.2"}
    renamed(place, ours, prefix="model.")
    assert recognise(place)[0] == "lilicorr" and same(before, read("lilicorr", place, target))


def test_a_lilicorr_of_a_part_of_the_vocabulary_is_no_option(target: Decoder):
    with pytest.raises(ConfigError, match="draft_vocab_size=20: candidates are of the whole vocabulary here"):
        network("lilicorr", target, draft_vocab_size=20)
    with pytest.raises(ConfigError, match="from_anchor=true: the anchor's slot has no candidates here"):
        network("lilicorr", target, from_anchor=True)


def test_what_a_head_leaves_out_is_as_its_library_has_it(target: Decoder, tmp_path: Path):
    place = flat("domino", target, tmp_path / "d", from_anchor=False, prefix=0)
    gone(place, "sample_from_anchor", "shift_label", "pure_draft_prefix_len", "projector_type")
    renamed(place, {"prefix_gru": "logit_head.prefix_gru", "embed_proj": "logit_head.embed_proj"})  # SpecForge's, once
    net = read("domino", place, target)
    assert not net.config.from_anchor and net.own.pure_draft_prefix_len == 0
    narrow = flat("xpress", target, tmp_path / "x", ratio=2)
    gone(narrow, "xpress_mlp_ratio", "num_jacobi_passes")
    assert read("xpress", narrow, target).own.xpress_mlp_ratio == 2


def test_keys_that_change_nothing_are_noted(target: Decoder, tmp_path: Path, caplog):
    place = flat("dflash", target, tmp_path / "d")
    change(place, nested={"anything": 1, "something": 2}, num_anchors=64)
    told = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps({**told, "runtime_block_size": None}))
    assert read("dflash", place, target).config.runtime_block_size is None
    assert "keys that are not read: anything, something" in caplog.text and "num_anchors" in caplog.text


def test_a_draft_of_another_kind_or_target_is_named(target: Decoder, tmp_path: Path):
    places = {kind: flat(kind, target, tmp_path / kind) for kind in KINDS}
    with pytest.raises(ModelLoadError, match=r"no dflash network by its tensors; .* for the method 'dspark'"):
        read("dflash", places["dspark"], target)
    with pytest.raises(ModelLoadError, match=r"holds a 'eagle3', no dflash network; .* for the method 'eagle3'"):
        read("dflash", zoo.path("eagle3"), target)
    with pytest.raises(ModelLoadError, match=r"holds no block network; .* for the method 'draft_model'"):
        read("dflash", zoo.path("draft"), target)
    with pytest.raises(CapabilityError, match="for a target of 6 layers, and this one has 5"):
        read("dflash", places["dflash"], random_decoder(tiny_config(layers=5)))
    find_learner("dflash2").formats[0].write(network("dflash2", target), target, "t", tmp_path / "s")
    with pytest.raises(ModelLoadError, match=r"holds a 'dflash2', no dspark network; .* for the method 'dflash2'"):
        read("dspark", tmp_path / "s", target)
    for kind, place in places.items():
        assert (
            from_mapping({"model": str(place)}).drafter == from_mapping({"method": kind, "model": str(place)}).drafter
        )
    assert from_mapping({"method": "dflash", "model": str(places["dflash2"])}).drafter == "dflash2"
    assert from_mapping({"method": "dflash", "model": str(places["dflash"])}).drafter == "dflash"


@pytest.mark.parametrize(
    ("options", "words"),
    [({"draft_vocab_size": 20}, "has no draft vocabulary"), ({"qk_norm": False}, "norms of queries")],
)
def test_what_the_flat_layout_cannot_say_is_refused_before_anything_is_written(
    options: dict, words: str, target: Decoder, tmp_path: Path
):
    with pytest.raises(CapabilityError, match=words):
        flat("dflash", target, tmp_path / "d", **options)
    assert not (tmp_path / "d").exists()
