"""A block of fewer slots than it was trained with, by what is asked or by an option; how likely a slot is accepted."""

from dataclasses import replace

import pytest
import torch
from drafters.drafting import make as make_drafter
from drafters.drafting import sequence, write

from outdraft.core.drafter import arm_of
from outdraft.core.learner import Lesson
from outdraft.core.learner_registry import find_learner
from outdraft.core.policy import Budget
from outdraft.drafters.shared.blocks.net import BlockNet
from outdraft.engine.runner import Runner
from outdraft.options.errors import ConfigError
from outdraft.testing.reference_rule import ConstantPolicy
from outdraft.testing.tiny import tiny_model
from outdraft.training.lessons import Teacher
from outdraft.training.packing import PackedRows

SIZE = 6
WINDOW = {"causal_windows": True}


@pytest.fixture(scope="module")
def target():
    made = tiny_model(vocab=31, layers=3, seed=1, dtype=torch.float32)
    made.set_exact(True)
    return made


def network(target, kind, change=(), **options):
    """A learner of random weights; `change`: of its sizes."""
    method = find_learner(kind)
    chosen = method.options(**{"taps": (1, 3), "block_size": SIZE, "num_layers": 2, **options})
    learner = method.new(chosen, target, 3)
    learner.net.config = replace(learner.net.config, **dict(change))
    with torch.no_grad():
        for parameter in learner.net.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(parameter))))
    return learner


def guesses(target, place, kind, budget, *, policy=None, **options):
    """What a drafter guesses along a text: [(text, draft)]."""
    runner = Runner(target)
    drafter, found = make_drafter(kind, runner.port, model=str(place), width=1, **options), []
    propose = drafter.propose

    def watched(seqs, budgets):
        made = propose(seqs, budgets)
        found.extend((list(seq.tokens), draft) for seq, draft in zip(seqs, made, strict=True))
        return made

    drafter.propose = watched
    with torch.inference_mode():
        texts = [sequence([3, 1, 4, 1, 5], max_tokens=12), sequence([9, 2], max_tokens=12)]
        write(texts, runner, drafter, policy=policy or ConstantPolicy(budget))
    return found


@pytest.mark.parametrize(
    ("kind", "change", "options", "bears"),
    [
        ("dspark", {"causal": True}, {"rank": 4}, True),
        ("dflash", {"causal": True}, {}, True),
        ("dflash", WINDOW, {"window": 4}, True),
        ("dflash", WINDOW, {}, False),  # a layer without a window sees all slots
        ("dflash", {}, {"window": 4}, False),
        ("dflash", {}, {}, False),
        ("dflash2", {"causal": True}, {"conv_group_size": 8, "selector_rank": 4, "selector_top_k": 5}, False),
    ],
)
def test_a_smaller_block_says_what_the_whole_one_says(target, kind, change, options, bears, tmp_path, monkeypatch):
    learner = network(target, kind, change, **options)
    assert learner.net.can_shorten == bears
    learner.save(tmp_path)
    sizes, run = [], BlockNet.run

    def watched(self, rows, positions, ctx):
        sizes.append(len(rows) // len(positions))
        return run(self, rows, positions, ctx)

    monkeypatch.setattr(BlockNet, "run", watched)
    some = guesses(target, tmp_path, kind, Budget(depth=2))
    assert set(sizes) == {learner.net.config.first_slot + 2 if bears else SIZE}
    monkeypatch.setattr(BlockNet, "can_shorten", False)
    sizes.clear()
    for (text, less), (same, whole) in zip(some, guesses(target, tmp_path, kind, Budget(depth=2)), strict=True):
        assert text == same and less.tokens.tolist() == whole.tokens.tolist()
    assert set(sizes) == {SIZE}


def test_texts_of_different_depths_are_passes_of_their_own(target, tmp_path, monkeypatch):
    """So no text's numbers depend on how deep another is guessed."""
    learner = network(target, "dflash", {"causal": True})
    learner.save(tmp_path)
    passes, run = [], BlockNet.run

    def watched(self, rows, positions, ctx):
        passes.append((len(positions), len(rows) // len(positions)))
        return run(self, rows, positions, ctx)

    class Uneven:
        def plan(self, seqs):
            return [Budget(depth=1 + 2 * (len(seq.request.prompt_token_ids) > 2)) for seq in seqs]

        def update(self, events):
            pass

        def end(self, seqs):
            pass

    monkeypatch.setattr(BlockNet, "run", watched)
    guesses(target, tmp_path, "dflash", None, policy=Uneven())
    first = learner.net.config.first_slot
    assert {(1, first + 1), (1, first + 3)} <= set(passes) and all(count == 1 for count, _ in passes)


def test_a_smaller_block_is_another_network_where_slots_see_each_other(target, tmp_path, monkeypatch):
    """The power of the test above."""
    learner = network(target, "dflash")
    learner.save(tmp_path)
    whole = guesses(target, tmp_path, "dflash", Budget(depth=2))
    monkeypatch.setattr(BlockNet, "can_shorten", True)
    less = guesses(target, tmp_path, "dflash", Budget(depth=2))
    assert any(a.tokens.tolist() != b.tokens.tolist() for (_, a), (_, b) in zip(whole, less, strict=True))


KINDS = {
    "dflash": {},
    "dflash2": {"conv_group_size": 8, "selector_rank": 4, "selector_top_k": 5},
    "domino": {"rank": 4, "state": 6},
    "dspark": {"rank": 4},
    "lilicorr": {"candidates": 5, "chain_size": 8, "chain_heads": 2, "factor_dim": 6},
    "specdec": {},
    "xpress": {"rank": 4, "ratio": 3},
}


def cut(net, whole):
    """The weights of the first slots, where slots have weights of their own."""
    for name, own in net.named_parameters():
        theirs = whole.get_parameter(name).detach()
        if name.endswith("slot_bias"):  # by distance, both ways
            theirs = theirs.narrow(1, (theirs.shape[1] - own.shape[1]) // 2, own.shape[1])
        own.data.copy_(theirs[tuple(map(slice, own.shape))])


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_written_with_fewer_slots_is_a_smaller_network(target, kind, tmp_path, monkeypatch):
    whole, small = (network(target, kind, **{**KINDS[kind], "block_size": size}) for size in (SIZE, 3))
    cut(small.net, whole.net)
    whole.save(tmp_path / "whole")
    small.save(tmp_path / "small")
    sizes, run = [], BlockNet.run

    def watched(self, rows, positions, ctx):
        sizes.append(len(rows) // len(positions))
        return run(self, rows, positions, ctx)

    monkeypatch.setattr(BlockNet, "run", watched)
    found = guesses(target, tmp_path / "whole", kind, Budget(depth=5), runtime_block_size=3)
    assert set(sizes) == {3} and max(draft.num_nodes for _, draft in found) == 1 + small.net.config.depth
    for (text, less), (same, own) in zip(
        found, guesses(target, tmp_path / "small", kind, Budget(depth=5)), strict=True
    ):
        assert text == same and less.tokens.tolist() == own.tokens.tolist()


def test_files_say_how_many_slots_are_written_and_an_option_goes_before_them(target, tmp_path):
    learner = network(target, "dspark", {"runtime_block_size": 1}, rank=4)
    assert learner.net.config.from_anchor
    learner.save(tmp_path)
    for options, depth in (({}, 1), ({"runtime_block_size": 4}, 4), ({"runtime_block_size": SIZE}, SIZE)):
        found = guesses(target, tmp_path, "dspark", Budget(depth=9), **options)
        assert max(draft.num_nodes - 1 for _, draft in found) == depth


@pytest.mark.parametrize(("kind", "slots", "least"), [("dflash", 1, 2), ("dflash", 7, 2), ("dspark", 7, 1)])
def test_a_block_has_no_other_numbers_of_slots(target, kind, slots, least, tmp_path):
    learner = network(target, kind, **KINDS[kind])
    learner.save(tmp_path)
    with pytest.raises(
        ConfigError, match=f"runtime_block_size={slots}: must be between {least} and {SIZE} .slots of a"
    ):
        make_drafter(kind, Runner(target).port, model=str(tmp_path), runtime_block_size=slots)


def test_training_goes_on_with_the_whole_block(target, tmp_path):
    learner = network(target, "dflash", {"runtime_block_size": 3})
    learner.save(tmp_path)
    method = find_learner("dflash")
    again = method.load(method.options(), target, tmp_path)
    ids = torch.arange(1, 12)[None]
    rows = PackedRows(ids=ids, documents=torch.zeros_like(ids), counts=torch.ones(1, 10, dtype=torch.bool))
    assert len(again.look(Teacher(target, again.taps).lesson(rows)).guesses) == SIZE - 1
    again.save(tmp_path / "on")
    found = guesses(target, tmp_path / "on", "dflash", Budget(depth=9))
    assert max(draft.num_nodes - 1 for _, draft in found) == SIZE - 1, "it drafts what was promised of it"


@pytest.mark.parametrize("head", ["plain", "rnn"])
@pytest.mark.parametrize("sample", ["greedy", "match"])
def test_the_confidence_of_a_draft_is_what_the_head_has_learned(target, head, sample, tmp_path):
    learner = network(target, "dspark", rank=4, head=head)
    learner.save(tmp_path)
    teacher = Teacher(target, learner.taps)
    seen = 0
    for text, draft in guesses(target, tmp_path, "dspark", Budget(depth=4, confident=True), sample=sample):
        ids = torch.tensor([[*text, *draft.tokens[1:].tolist(), 0]])
        counts = torch.ones(1, ids.shape[1] - 1, dtype=torch.bool)
        lesson: Lesson = teacher.lesson(PackedRows(ids=ids, documents=torch.zeros_like(ids), counts=counts))
        with torch.no_grad():
            outlook = learner.look(lesson)
        for step, sure in enumerate(draft.confidence[1:].tolist()):
            guess = outlook.guesses[step]
            at = (guess.rows == len(text) - 1 + step).nonzero()[:, 0]
            assert sure == pytest.approx(float(torch.sigmoid(guess.chance(guess.states[at])).detach()), abs=1e-4)
            seen += 1
    assert seen > 20


def test_which_drafts_are_one_pass_at_any_depth(target, tmp_path):
    for change in ({}, {"causal": True}):
        network(target, "dflash", change).save(tmp_path / str(len(change)))
        drafter = make_drafter("dflash", Runner(target).port, model=str(tmp_path / str(len(change))))
        assert arm_of(drafter, "-").one_pass == (not change)


def test_which_drafts_foretell(target, tmp_path):
    for kind, options in (("dspark", {"rank": 4}), ("dspark", {"rank": 4, "confidence": False}), ("dflash", {})):
        learner = network(target, kind, **options)
        place = tmp_path / str(options.get("confidence", kind))
        learner.save(place)
        for width in (1, 4):
            traits = make_drafter(kind, Runner(target).port, model=str(place), width=width).traits
            assert traits.foretells == (kind == "dspark" and width == 1 and "confidence" not in options)


@pytest.mark.parametrize("kind", ["dflash", "specdec"])
def test_a_block_reaches_beyond_the_positions_that_a_target_knows(kind, tmp_path):
    """A target with a table of positions has no row there; the slots before its end guess to the end."""
    room = 12
    small = tiny_model("gpt2", vocab=31, layers=3, seed=1, max_len=room, dtype=torch.float32)
    learner = network(small, kind)
    learner.save(tmp_path)
    ids = torch.arange(1, room + 1)[None]
    rows = PackedRows(ids=ids, documents=torch.zeros_like(ids), counts=torch.ones(1, room - 1, dtype=torch.bool))
    assert len(learner.look(Teacher(small, learner.taps).lesson(rows)).guesses) == SIZE - 1
    small.set_exact(True)
    runner, text = Runner(small), sequence([3, 1, 4], max_len=room)
    with torch.inference_mode():
        write([text], runner, make_drafter(kind, runner.port, model=str(tmp_path), width=1))
    assert len(text.tokens) == room
