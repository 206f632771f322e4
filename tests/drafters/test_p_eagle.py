"""P-EAGLE: what the released package says of tiny networks, which rows learn, and that mask rows leave nothing."""

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from drafters.drafting import make, sequence
from safetensors.torch import load_file, save_file

from outdraft.core.draft import chain
from outdraft.core.drafter import Seen
from outdraft.core.learner import Lesson, Moment
from outdraft.core.packing import pack
from outdraft.drafters.eagle3.formats import FORMATS as PAIRS_ALONE
from outdraft.drafters.eagle3.formats import load_eagle3
from outdraft.drafters.p_eagle.formats import FORMATS, load_p_eagle, save_p_eagle
from outdraft.drafters.p_eagle.learn import LEARN, PEagleLearning
from outdraft.engine.runner import Runner
from outdraft.models.files.foreign_heads import recognise
from outdraft.models.networks.port import facts_of
from outdraft.options.errors import ConfigError, ModelLoadError
from outdraft.testing.tiny import random_decoder, tiny_config, tiny_model
from outdraft.training.lessons import Teacher
from outdraft.training.packing import PackedRows
from outdraft.weights.safetensors import read_tensors

PEERS = Path(__file__).parents[1] / "peers/p_eagle"
VARIANTS = ("plain", "three_layers")
TARGET = random_decoder(tiny_config(layers=6, hidden=8, vocab=12), dtype=torch.float32)
SMALL = {"num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "head_dim": 8}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_row_says_what_the_released_module_said(variant):
    """Written once by `tests/peers/p_eagle_by_speculators.py`, which sampled the rows as its training does."""
    said = read_tensors(PEERS / variant / "numbers.safetensors")
    learner = LEARN.load(PEagleLearning(), TARGET, PEERS / variant)
    ids, documents, length = said["ids"], said["documents"], len(said["states"])
    lesson = Lesson(
        ids=ids[None],
        documents=torch.cat((documents, torch.tensor([2])))[None],
        positions=torch.arange(length),
        counts=torch.ones(length, dtype=torch.bool),
        states=torch.zeros(length, 8),
        taps=dict(zip(learner.taps, said["states"].chunk(3, -1), strict=True)),
    )
    with torch.no_grad():
        guesses = learner.look(lesson).guesses
    ours = {
        (int(row) - 1 - depth, depth): logits
        for depth, guess in enumerate(guesses)
        for row, logits in zip(guess.rows, guess.head(guess.states), strict=True)
    }
    seen = Counter()
    for anchor, depth, logits in zip(said["anchors"].tolist(), said["depths"].tolist(), said["logits"], strict=True):
        if anchor >= 0 and (anchor, depth) in ours:
            torch.testing.assert_close(ours[anchor, depth], logits, atol=1e-4, rtol=1e-4)
            seen[depth] += 1
    assert sorted(seen) == [0, 1, 2, 3] and seen[3] > 1, seen


@pytest.mark.parametrize("variant", VARIANTS)
def test_written_again_every_tensor_is_the_same(variant, tmp_path):
    net = load_p_eagle(PEERS / variant, facts_of(TARGET), torch.float32)
    assert (net.config.mask_token_id, net.config.num_depths) == (3, 4)
    save_p_eagle(net, tmp_path)
    theirs, ours = (load_file(one / "model.safetensors") for one in (PEERS / variant, tmp_path))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    again = load_p_eagle(tmp_path, facts_of(TARGET), torch.float32)
    assert again.config == net.config


def test_each_kind_refuses_the_other_by_what_lies_there(tmp_path):
    assert recognise(PEERS / "plain") == ("p_eagle", FORMATS[0])
    with pytest.raises(ModelLoadError, match="no EAGLE-3 network; what lies there is for the method 'p_eagle'"):
        load_eagle3(PEERS / "plain", facts_of(TARGET))
    flat = respelled(tmp_path)
    assert not any(one.matches(flat) for one in PAIRS_ALONE)
    net = load_p_eagle(flat, facts_of(TARGET), torch.float32)
    assert (net.config.mask_token_id, net.config.num_depths) == (5, 8)
    with pytest.raises(ModelLoadError, match="no EAGLE-3 network: it has mask_hidden"):
        load_eagle3(flat, facts_of(TARGET))
    with pytest.raises(ModelLoadError, match="ptd_token_id=99"):
        load_p_eagle(respelled(tmp_path, token=99), facts_of(TARGET))
    tensors = load_file(flat / "model.safetensors")
    save_file({name: one for name, one in tensors.items() if name != "mask_hidden"}, flat / "model.safetensors")
    with pytest.raises(ModelLoadError, match=r"no P-EAGLE network: it has no mask_hidden; .* 'eagle3'"):
        load_p_eagle(flat, facts_of(TARGET))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"ptd_token_id": 9}, "mask_token_id and ptd_token_id of config.json name different tokens"),
        *(({"speculators_config": count}, f"speculative_tokens={count!r} of config.json") for count in (1000, 0, "4")),
    ],
)
def test_what_config_says_of_masks_is_one_thing(keys, said, tmp_path):
    told = json.loads((PEERS / "plain/config.json").read_text())
    if "speculators_config" in keys:
        keys = {"speculators_config": {"proposal_methods": [{"speculative_tokens": keys["speculators_config"]}]}}
    (tmp_path / "config.json").write_text(json.dumps({**told, **keys}))
    save_file(load_file(PEERS / "plain/model.safetensors"), tmp_path / "model.safetensors")
    with pytest.raises(ModelLoadError) as raised:
        load_p_eagle(tmp_path, facts_of(TARGET), torch.float32)
    assert said in str(raised.value)


def respelled(place, token=5):
    """The plain one as a flat directory with another spelling of its token."""
    told = json.loads((PEERS / "plain/config.json").read_text())
    flat = told["transformer_layer_config"] | {"draft_vocab_size": 8, "ptd_token_id": token}
    flat["eagle_aux_hidden_state_layer_ids"] = told["eagle_aux_hidden_state_layer_ids"]
    (place / "config.json").write_text(json.dumps(flat | {"architectures": ["LlamaForCausalLMEagle3"]}))
    tensors = load_file(PEERS / "plain/model.safetensors")
    save_file(
        {name.replace("layers.0.", "midlayer."): one for name, one in tensors.items()}, place / "model.safetensors"
    )
    return place


@torch.no_grad()
def test_every_round_guesses_what_training_says_and_keeps_the_pairs_alone(tmp_path):
    """Round after round, with rejections between them: positions, what is seen, and what is left in the cache."""
    target = tiny_model(vocab=31, layers=3, seed=1, dtype=torch.float32)
    learner = LEARN.new(PEagleLearning(taps=(1, 2), **SMALL, num_depths=4), target, 0)
    learner.save(tmp_path)
    ids = torch.randint(31, (1, 24), generator=torch.Generator().manual_seed(4))
    whole = PackedRows(ids=ids, documents=torch.zeros_like(ids), counts=torch.ones(1, 23, dtype=torch.bool))
    guesses = learner.look(Teacher(target, learner.taps).lesson(whole)).guesses
    said = [dict(zip(one.rows.tolist(), one.head(one.states), strict=True)) for one in guesses]
    runner = Runner(target)
    drafter, seq = (
        make("p_eagle", runner, model=str(tmp_path), width=1, quantization="none"),
        sequence(ids[0, :9].tolist()),
    )
    runner.begin(seq)
    drafter.begin([seq])
    start = 0
    for more in (3, 1, 2, 4):  # tokens that become text behind a round
        count = len(seq.tokens) - 1 - start
        packed = pack([seq], [chain([seq.tokens[-1]])])
        hidden = runner.forward(packed, drafter.needs.taps).hidden
        runner.commit(seq, range(count))
        seq.num_cached = start + count
        rows = {tap: states[:count] for tap, states in hidden.items()}
        drafter.observe([Seen(seq=seq, start=start, num_committed=count, hidden=rows)])
        start += count
        pairs = drafter._pairs
        for depths in ([4], [2]):  # asked twice, the last pair is read again
            for depth, logits in enumerate(pairs.block([seq.id], depths)[0]):
                torch.testing.assert_close(logits, said[depth][start + depth], atol=1e-4, rtol=1e-4)
            assert pairs.cache.rows.length(seq.id) == start, "mask rows must not survive"
        seq.tokens += ids[0, len(seq.tokens) : len(seq.tokens) + more].tolist()


def rows_at(learner, moment):
    """Which rows learn at each depth, as pairs' tokens."""
    generator = torch.Generator().manual_seed(2)
    ids, documents = torch.randint(31, (2, 61), generator=generator), torch.zeros(2, 61, dtype=torch.long)
    documents[0, 30:] = 1
    counts = torch.ones(2, 60, dtype=torch.bool)
    counts[:, :5] = counts[1, 40:] = False
    lesson = Lesson(
        ids=ids,
        documents=documents,
        positions=torch.cat((torch.arange(30), torch.arange(30), torch.arange(60))),
        counts=counts.flatten(),
        states=torch.zeros(120, 16),
        taps={tap: torch.zeros(120, learner.target.config.hidden_size) for tap in learner.taps},
        moment=moment,
    )
    return lesson.counts, [(one.rows - depth).tolist() for depth, one in enumerate(learner.look(lesson).guesses)]


@torch.no_grad()
def test_each_depth_learns_from_a_share_of_what_the_last_one_kept():
    target = tiny_model(vocab=31, layers=3, seed=1, dtype=torch.float32)
    learner = LEARN.new(PEagleLearning(taps=(1, 2), **SMALL, num_depths=6), target, 0)
    counts, found = rows_at(learner, Moment(step=0, steps=1, seed=1))
    assert found[0] == [row for row in range(120) if row not in (0, 30, 60)], "every pair of every text"
    starts = [54, 35]  # supervised pending tokens of each row of texts: that of the second text's first row has no pair
    for depth in range(1, 6):
        share = max(0.7**depth, 0.2)
        for row, total in enumerate(starts):
            own = [one for one in found[depth] if one // 60 == row]
            most = int((total - depth) * share)
            assert len(own) <= most and len(own) == len(set(own))
            assert depth > 2 or len(own) == most
        assert set(found[depth]) <= set(found[depth - 1]), "of the survivors alone"
        assert all(bool(counts[one + depth]) for one in found[depth])
        assert not any(one < 30 <= one + depth for one in found[depth]), "inside its text"
    assert found[3], "some chains are long"
    again, other = (rows_at(learner, Moment(step=0, steps=1, seed=seed))[1] for seed in (1, 2))
    assert again == found and other != found
    every = rows_at(learner, None)[1]
    assert len(every[5]) > len(found[5]), "an exam drops none"


def test_a_token_that_the_target_has_not_is_no_mask():
    with pytest.raises(ConfigError, match="mask_token_id=12"):
        LEARN.new(PEagleLearning(mask_token_id=12), TARGET, 0)
