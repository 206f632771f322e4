"""EAGLE-3 in the published layout: the released package's numbers, every spelling, fewer tokens than the target."""

import json
from dataclasses import replace
from math import hypot
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from outdraft.core.learner import Lesson
from outdraft.drafters.eagle3.formats import load_eagle3, read_eagle3, save_eagle3
from outdraft.drafters.eagle3.learn import LEARN, Eagle3Learning
from outdraft.drafters.shared.features.learn import target_taps
from outdraft.drafters.shared.learning.unrolled import UnrolledContext
from outdraft.drafters.shared.learning.vocab import whole_logits
from outdraft.models.files.load import save_model
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.config import llama_config
from outdraft.models.networks.port import facts_of
from outdraft.options.errors import CapabilityError, ConfigError, ModelLoadError
from outdraft.testing.tiny import tiny_model
from outdraft.training.check import measure
from outdraft.training.lessons import Teacher
from outdraft.training.packing import PackedRows
from outdraft.training.promise import promise
from outdraft.training.record import PromiseTerms

PEERS = Path(__file__).parents[1] / "peers/eagle3"
VARIANTS = ("plain", "three_one", "qwen_two_layers")


def target_of(hidden=16, vocab=24, layers=6):
    config = llama_config(vocab_size=vocab, hidden_size=hidden, num_layers=layers, num_heads=2, intermediate_size=8)
    return facts_of(Decoder(config))


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_draft_step_has_the_logits_of_the_released_package(variant):
    """Written once by `tests/peers/eagle3_by_speculators.py`: its row i of step k is our pair i + k."""
    net, numbers = (
        load_eagle3(PEERS / variant, target_of(), torch.float32),
        load_file(PEERS / variant / "numbers.safetensors"),
    )
    states, ids, theirs = numbers["states"], numbers["ids"], numbers["logits"]
    count = len(states)
    places = torch.arange(count)
    context = UnrolledContext(torch.zeros(1, count), places[None])
    true = f = net.fuse(states.chunk(3, -1))
    for step, wanted in enumerate(theirs):
        g = net.run(net.embed(ids[1:], places), f, places, context)
        torch.testing.assert_close(net.logits(g)[step:], wanted[: count - step], atol=1e-4, rtol=1e-4)
        f = torch.cat((true[:1], net.carry(g)[:-1]))
    assert not torch.allclose(theirs[0][1:], theirs[1][:-1], atol=0.1), "steps differ, so each is tested"


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_round_trip_is_bit_equal(variant, tmp_path):
    save_eagle3(load_eagle3(PEERS / variant, target_of()), tmp_path)
    ours, theirs = (load_file(place / "model.safetensors") for place in (tmp_path, PEERS / variant))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) and ours[name].dtype == theirs[name].dtype for name in ours)
    told, wanted = (json.loads((place / "config.json").read_text()) for place in (tmp_path, PEERS / variant))
    for key in (
        "draft_vocab_size",
        "eagle_aux_hidden_state_layer_ids",
        "fc_norm",
        "norm_before_fc",
        "norm_output",
        "norm_before_residual",
        "embed_requires_grad",
        "speculators_model_type",
        "architectures",
    ):
        assert told[key] == wanted[key]
    assert told["eagle_config"] == {"eagle_aux_hidden_state_layer_ids": [0, 2, 4]}
    assert read_eagle3(tmp_path, 6).config == read_eagle3(PEERS / variant, 6).config


def respelled(tmp_path, config=None, rename=lambda name: name, drop=(), add=None, variant="plain", pickled=False):
    """The plain network with a Llama's config.json as the original has it."""
    raw = json.loads((PEERS / variant / "config.json").read_text())
    told = {**raw["transformer_layer_config"], "draft_vocab_size": 16, "architectures": ["LlamaForCausalLMEagle3"]}
    tensors = {rename(name): one for name, one in load_file(PEERS / variant / "model.safetensors").items()}
    tensors = {name: one for name, one in (tensors | (add or {})).items() if name not in drop}
    (tmp_path / "config.json").write_text(json.dumps(told | (config or {})))
    if pickled:
        torch.save(tensors, tmp_path / "pytorch_model.bin")
    else:
        save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path


def middle(name):
    return name.replace("layers.0.", "midlayer.")


TAPS = "eagle_aux_hidden_state_layer_ids"


@pytest.mark.parametrize(
    ("config", "rename", "pickled", "taps"),
    [
        ({}, middle, False, (2, 5, 7)),
        ({}, middle, True, (2, 5, 7)),
        ({"vocab_size": 16}, lambda name: "model." + middle(name), False, (2, 5, 7)),
        ({"eagle_config": {TAPS: [1, 4, 6]}}, middle, False, (2, 5, 7)),
        ({"eagle_config": {TAPS: [1, 2]}, TAPS: [2, 3]}, middle, False, (2, 3)),
        ({"target_layer_ids": [0, 3, 5, 7]}, middle, False, (1, 4, 6, 8)),
    ],
)
def test_every_spelling_is_one_network(config, rename, pickled, taps, tmp_path):
    files = read_eagle3(respelled(tmp_path, config, rename, pickled=pickled), 10)
    assert (files.config.taps, files.config.layers.vocab_size) == (taps, 24)
    theirs = read_eagle3(PEERS / "plain", 10)
    assert set(files.tensors) == set(theirs.tensors) and torch.equal(files.vocab, theirs.vocab)
    assert all(torch.equal(files.tensors[name], theirs.tensors[name]) for name in theirs.tensors)
    assert replace(files.config, taps=(1, 3, 5)) == theirs.config


@pytest.mark.parametrize(
    ("num_layers", "taps"), [(10, (2, 5, 7)), (32, (2, 16, 29)), (36, (2, 18, 33)), (61, (2, 30, 58)), (4, (1, 2))]
)
def test_where_none_are_named_the_taps_are_the_usual_ones_in_training_too(num_layers, taps, tmp_path):
    """After 2 layers, after half of them, and after all but three: as vLLM and SGLang take them."""
    assert target_taps((), num_layers) == taps
    if num_layers >= 10:
        assert read_eagle3(respelled(tmp_path, rename=middle), num_layers).config.taps == taps


def test_norms_are_known_by_their_tensors_where_no_flag_names_them(tmp_path):
    names = {
        "fc_norm.0.weight": "aux_norm_low.weight",
        "fc_norm.1.weight": "aux_norm_mid.weight",
        "fc_norm.2.weight": "aux_norm_high.weight",
    }
    files = read_eagle3(respelled(tmp_path, rename=lambda name: names.get(name, name), variant="three_one"), 6)
    assert files.config.fc_norm and not files.config.norm_before_fc
    assert torch.equal(
        files.tensors["fc_norm.2.weight"], read_eagle3(PEERS / "three_one", 6).tensors["fc_norm.2.weight"]
    )


@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [
        ({"config": {"eagle_config": {TAPS: [1, 2]}, TAPS: [1, 2]}}, ModelLoadError, "different taps"),
        ({"config": {TAPS: [1, "2"]}}, ModelLoadError, "no list of layers"),
        ({"config": {TAPS: [1, 3, 7]}}, CapabilityError, "6 layers"),
        ({"config": {TAPS: [1, 3]}}, ModelLoadError, "fc.weight.*48"),
        ({"config": {"draft_vocab_size": 15}}, ModelLoadError, "d2t is of 16"),
        ({"drop": ("d2t", "t2d")}, ModelLoadError, "no d2t that says which"),
        ({"drop": ("norm.weight",)}, ModelLoadError, "norm.weight' is missing"),
        ({"drop": ("t2d", "embed_tokens.weight"), "config": {"vocab_size": 25}}, CapabilityError, "its own target"),
        ({"add": {"d2t": torch.full((16,), 20)}}, ModelLoadError, "ascend below 24"),
        ({"add": {"d2t": torch.zeros(16, dtype=torch.long)}}, ModelLoadError, "name different tokens"),
        ({"add": {"d2t": torch.zeros(16)}}, ModelLoadError, "list of integers"),
        ({"add": {"fc.weight": torch.full((16, 48), torch.nan)}}, ModelLoadError, "NaN"),
        ({"config": {"norm_before_fc": True, "fc_norm": True}}, ModelLoadError, "exclude each other"),
        ({"config": {"norm_output": 3}}, ModelLoadError, "norm_output"),
        ({"config": {"layer_types": ["sliding_attention"], "sliding_window": 4}}, ModelLoadError, "sliding windows"),
        ({"config": {"speculators_model_type": "dflash"}}, ModelLoadError, "no EAGLE-3 network"),
        ({"config": {"architectures": ["X"], "model_type": "gpt2", "n_embd": 8}}, ModelLoadError, "gpt2"),
    ],
)
def test_files_that_cannot_be_are_refused(damage, error, words, tmp_path):
    damage = {**damage, "config": {TAPS: [1, 3, 5], **damage.get("config", {})}}
    with pytest.raises(error, match=words):
        load_eagle3(respelled(tmp_path, **damage), target_of())


def test_code_in_a_file_of_pytorch_is_never_run(tmp_path):
    respelled(tmp_path, pickled=True)
    torch.save({"fc.weight": Path}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelLoadError, match="holds more than tensors"):
        read_eagle3(tmp_path, 10)
    respelled(tmp_path, {"architectures": ["Other"]})
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(ModelLoadError, match="no EAGLE-3 network"):
        read_eagle3(tmp_path, 10)


def test_a_network_of_its_own_width_needs_its_own_embeddings(tmp_path):
    """`target_hidden_size`: fc reads the target's width, everything else is of the network's own."""
    wide = torch.randn(16, 60)
    told = {TAPS: [1, 3, 5], "target_hidden_size": 20}
    net = load_eagle3(respelled(tmp_path, told, add={"fc.weight": wide}), target_of(hidden=20))
    assert net.fuse([torch.ones(1, 20)] * 3).shape == (1, 16) and net.embed is not None
    place = tmp_path / "without"
    place.mkdir()
    with pytest.raises(CapabilityError, match="embed_tokens"):
        load_eagle3(
            respelled(place, told, add={"fc.weight": wide}, drop=("embed_tokens.weight",)), target_of(hidden=20)
        )


def test_the_most_frequent_tokens_are_chosen_and_the_head_begins_as_theirs():
    target = tiny_model(vocab=31, layers=3, seed=1, dtype=torch.float32)
    learner = LEARN.new(Eagle3Learning(draft_vocab_size=5), target, 0)
    counts = torch.zeros(31, dtype=torch.long)
    counts[20], counts[[7, 9, 11]] = 9, 4
    assert learner.net.vocab.tolist() == [0, 1, 2, 3, 4], "before the texts are known"
    LEARN.choose_vocab(learner, counts)
    assert learner.net.vocab.tolist() == [0, 7, 9, 11, 20], "filled up with the lowest id"
    assert torch.equal(learner.net.lm_head.weight, target.lm_head.weight[learner.net.vocab])
    counts[[3, 5]] = 4  # a tie goes to the lower ids
    LEARN.choose_vocab(learner, counts)
    assert learner.net.vocab.tolist() == [3, 5, 7, 9, 20]
    whole = LEARN.new(Eagle3Learning(), target, 0)
    LEARN.choose_vocab(whole, counts)
    assert whole.net.vocab is None and torch.equal(whole.net.lm_head.weight, target.lm_head.weight)
    with pytest.raises(ConfigError, match="31 tokens"):
        LEARN.new(Eagle3Learning(draft_vocab_size=32), target, 0)


def trained(options, target):
    """A learner whose weights are wide, and whose vocabulary is not the lowest ids."""
    learner = LEARN.new(options, target, 3)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in learner.net.parameters():
            if parameter.dim() > 1:
                parameter += torch.randn(parameter.shape, generator=generator) * parameter.shape[1] ** -0.5
    LEARN.choose_vocab(learner, torch.arange(target.config.vocab_size))
    return learner


@pytest.mark.parametrize(
    "options",
    [
        {"draft_vocab_size": 20, "fc_norm": True, "norm_output": True, "norm_before_residual": True},
        {"num_layers": 2, "qk_norm": True, "norm_before_fc": True, "norm_before_residual": True, "num_kv_heads": 4},
    ],
    ids=["three_one_trimmed", "two_layers"],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_engine_does_what_the_trainer_says(options, temperature, tmp_path):
    target = tiny_model(vocab=31, layers=3, seed=1, dtype=torch.float32)
    learner = trained(Eagle3Learning(**options), target)
    save_model(target, tmp_path / "target")
    learner.save(tmp_path / "draft")
    generator = torch.Generator().manual_seed(1)
    prompts = tuple(tuple(torch.randint(31, (5,), generator=generator).tolist()) for _ in range(60))
    terms = PromiseTerms(prompts=prompts, max_tokens=16, depth=3, temperature=temperature)
    said = promise(learner, Teacher(target, learner.taps), tmp_path / "target", terms)
    options = {"model": str(tmp_path / "draft"), **LEARN.drafts}
    seen = measure("eagle3", options, tmp_path / "target", terms, dtype="float32")
    apart = abs(seen.tau - said.tau)
    assert apart < (0.01 * said.tau if temperature == 0 else 4 * hypot(seen.standard_error, said.standard_error))


def test_what_is_said_outside_the_vocabulary_has_no_share_in_a_guess():
    """Every guess tells its vocabulary, and the network's logits are of it alone."""
    target = tiny_model(vocab=31, layers=3, seed=1, dtype=torch.float32)
    learner = trained(Eagle3Learning(draft_vocab_size=20, num_steps=2), target)
    ids, teacher = torch.arange(9)[None] % 31, Teacher(target, learner.taps)
    documents = torch.zeros(1, 9, dtype=torch.long)
    lesson: Lesson = teacher.lesson(PackedRows(ids=ids, documents=documents, counts=torch.ones(1, 8, dtype=torch.bool)))
    for guess in learner.look(lesson).guesses:
        assert guess.head(guess.states).shape[1] == 20
        assert guess.vocab.tolist() == list(range(11, 31))


def test_a_token_outside_the_drafts_vocabulary_has_no_probability():
    told = whole_logits(torch.tensor([[0.0, 1.0]]), torch.tensor([1, 3]), 5).softmax(-1)[0]
    assert told[[0, 2, 4]].tolist() == [0, 0, 0] and told[3] > told[1] > 0
