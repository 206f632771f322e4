"""Draft, exit head and EAGLE network: training makes them better, files keep them, unrolling means what it says."""

import pytest
import torch

from outdraft.cache.static import StaticCache
from outdraft.core.learner import Outlook
from outdraft.drafters.draft_model import learn as draft_model
from outdraft.drafters.eagle import learn as eagle
from outdraft.drafters.eagle.net import load_eagle
from outdraft.drafters.early_exit import learn as early_exit
from outdraft.drafters.early_exit.net import load_exit_head
from outdraft.drafters.mtp import learn as mtp
from outdraft.drafters.shared.learning.states import states_beside
from outdraft.drafters.shared.learning.unrolled import UnrolledContext
from outdraft.learn.losses import forward_kl, mixed
from outdraft.models.remake.cut import cut_decoder, every_third
from outdraft.nn.cached import CachedContext
from outdraft.nn.context import CausalContext
from outdraft.nn.segment import Segment
from outdraft.options.errors import CapabilityError, ConfigError, ModelLoadError
from outdraft.training.draft import DraftObjective
from outdraft.training.lessons import Teacher
from tests.training.toys import draft_loop, draft_objective, lesson_rows, rates, rows, toy_decoder, trained_target

EAGLE = eagle.EagleLearning(taps=(0, 1, 3), num_heads=2, num_kv_heads=1, head_dim=8, intermediate_size=32, num_steps=3)
EXIT = early_exit.EarlyExitLearning(exit_layer=1, inner_size=32)
SMALL = draft_model.DraftLearning(hidden_size=16, num_layers=1, num_heads=2, num_kv_heads=1, intermediate_size=32)


@pytest.fixture(scope="module")
def target():
    return trained_target()


def learned(learner, target, folder, steps):
    """Numbers before and after."""
    objective = draft_objective(learner, target)
    before = rates(objective)
    draft_loop(objective, folder, steps=steps).run()
    return before, rates(objective)


def test_a_distilled_draft_is_accepted_more_often(target, tmp_path):
    learner = draft_model.new(SMALL, target, 5)
    before, after = learned(learner, target, tmp_path, 60)
    assert after[1] > before[1] + 0.2
    learner.save(tmp_path / "draft")
    again = draft_model.load(SMALL, target, tmp_path / "draft")
    for ours, theirs in zip(learner.module.parameters(), again.module.parameters(), strict=True):
        assert torch.equal(ours, theirs) and theirs.requires_grad
    with pytest.raises(ConfigError, match="needs its vocabulary"):
        draft_model.load(SMALL, _other_vocabulary(), tmp_path / "draft")


def _other_vocabulary():
    from outdraft.testing.tiny import tiny_model

    return tiny_model(vocab=61)


def test_a_cut_draft_begins_as_the_targets_own_layers(target, tmp_path):
    learner = draft_model.new(draft_model.DraftLearning(), target, 0)
    own = learner.module
    assert every_third(9) == (0, 3, 6, 8) and every_third(3) == (0, 2) and own.config.num_layers == 2
    assert torch.equal(own.layers[1].qkv.weight, target.layers[2].qkv.weight)
    assert own.layers[1].qkv.weight.data_ptr() != target.layers[2].qkv.weight.data_ptr()
    assert torch.equal(own.embedding, target.embedding) and own.lm_head.weight.requires_grad
    before, after = learned(learner, target, tmp_path, 30)
    assert before[1] > 1.5 / 32 and after[1] > before[1]
    with pytest.raises(ConfigError, match="in order"):
        cut_decoder(target, (2, 0))
    with pytest.raises(ConfigError, match="0 to 2"):
        cut_decoder(target, (0, 3))


def test_all_layers_are_the_target_itself(target):
    learner = draft_model.new(draft_model.DraftLearning(layers=(0, 1, 2)), target, 0)
    loss, rate = rates(draft_objective(learner, target))
    assert loss == pytest.approx(0, abs=1e-6) and rate == pytest.approx(1, abs=1e-5)


def test_sizes_of_a_new_draft_come_together():
    with pytest.raises(ConfigError, match="give num_layers, num_heads"):
        draft_model.DraftLearning(hidden_size=16)
    with pytest.raises(ConfigError, match="leave hidden_size out"):
        draft_model.DraftLearning(
            hidden_size=16, num_layers=1, num_heads=2, num_kv_heads=1, intermediate_size=32, layers=(0,)
        )


def test_an_exit_head_beats_the_plain_exit_and_survives_its_file(target, tmp_path):
    learner = early_exit.new(EXIT, target, 0)
    h = torch.randn(4, 32)
    assert torch.equal(learner.module(h), h), "untrained, it is the plain exit"
    before, after = learned(learner, target, tmp_path, 60)
    assert after[1] > before[1] + 0.05
    learner.save(tmp_path / "head")
    assert torch.equal(load_exit_head(tmp_path / "head")(h), learner.module(h))
    with pytest.raises(ConfigError, match="leaves nothing to verify"):
        early_exit.new(early_exit.EarlyExitLearning(exit_layer=3), target, 0)


def test_an_eagle_network_learns_every_step_and_survives_its_file(target, tmp_path):
    learner = eagle.LEARN.new(EAGLE, target, 0)
    before, after = learned(learner, target, tmp_path, 40)
    assert after[0] < before[0] and len(after) == 5, "four steps are looked at, of which three were trained"
    assert all(late > early + 0.1 for late, early in zip(after[1:], before[1:], strict=True))
    learner.save(tmp_path / "eagle")
    loaded = load_eagle(tmp_path / "eagle", target)
    for ours, theirs in zip(learner.module.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert loaded.config == learner.module.config
    again = rates(draft_objective(eagle.LEARN.load(EAGLE, target, tmp_path / "eagle"), target))
    assert again == pytest.approx(after, abs=1e-6)
    with pytest.raises(ConfigError, match="from 0 to 3"):
        eagle.LEARN.new(eagle.EagleLearning(taps=(1, 4)), target, 0)


def test_an_mtp_layer_that_learned_on_its_own_outputs_guesses_better_at_depth_3(target, tmp_path):
    """FastMTP's three steps against one, which is how targets are published."""
    found = []
    for steps in (1, 3):
        learner = mtp.LEARN.new(mtp.MtpLearning(num_steps=steps), target, 0)
        found.append(learned(learner, target, tmp_path / str(steps), 30)[1])
    assert found[1][3] > found[0][3] + 0.01, found


def test_wrong_files_are_refused(target, tmp_path):
    early_exit.new(EXIT, target, 0).save(tmp_path)
    with pytest.raises(ModelLoadError, match="model_type"):
        load_eagle(tmp_path, target)
    eagle.LEARN.new(EAGLE, target, 0).save(tmp_path)
    with pytest.raises(CapabilityError, match="its own target"):
        load_eagle(tmp_path, toy_decoder(hidden=16))


@torch.no_grad()
def test_unrolled_training_is_what_drafting_does(target):
    """Step s at pair i = s single-row passes after the true pairs of the same document up to i - s, with a cache."""
    net = eagle.LEARN.new(EAGLE, target, 1).module
    steps, begins = 3, [0, 0, 0, 3, 3, 3, 3, 3, 3, 3]  # two documents: 3 and 7 pairs
    length = len(begins)
    tokens, true = torch.randn(length, 32), torch.randn(length, 32)
    places = torch.arange(length) - torch.tensor(begins)
    context, f, unrolled = UnrolledContext(torch.tensor([begins]), places[None]), true, []
    for _ in range(steps):
        g = net.run(tokens, f, places, context)
        unrolled.append(g)
        f = torch.cat((true[:1], g[:-1]))
    for step in range(steps):
        for i in (2, 5, 9):
            first, last = begins[i], i - step
            if last < first:
                continue
            cache = StaticCache(1, 1, 8, torch.float32, "cpu", 32)
            cache.add(0)
            g = None
            for start, stop in ((first, last + 1), *((place, place + 1) for place in range(last + 1, i + 1))):
                count = stop - start
                cache.reserve(0, count)
                base = cache.length(0)
                own = CachedContext(cache, [Segment(seq=0, start=0, stop=count, base=base)], exact=False)
                source = true[start:stop] if g is None else g
                g = net.run(tokens[start:stop], source, places[start:stop], own)[-1:]
                cache.commit(0, list(range(count)))
            torch.testing.assert_close(unrolled[step][i : i + 1], g, atol=1e-5, rtol=1e-4)


def test_a_causal_context_is_packed_rows_of_one_document():
    """And its gradients are autograd's."""
    from outdraft.nn.packed import PackedContext

    torch.manual_seed(0)
    results = []
    inputs = [torch.randn(2 * 6, heads, 8) for heads in (4, 2, 2)]
    for context in (PackedContext(2, 6), PackedContext(2, 6, torch.zeros(2, 6)), CausalContext(2, 6)):
        q, k, v = (x.clone().requires_grad_() for x in inputs)
        out = context.attend(0, q, k, v, window=None, scale=0.3)
        (out * torch.linspace(0, 1, out.numel()).view_as(out)).sum().backward()
        results.append((out.detach(), q.grad, k.grad, v.grad))
    for plain, masked, theirs in zip(*results, strict=True):
        torch.testing.assert_close(plain, theirs, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(masked, theirs, atol=1e-5, rtol=1e-4)


def test_a_draft_that_guesses_tokens_alone_has_no_loss_between_states(target):
    learner = draft_model.new(SMALL, target, 5)
    objective = DraftObjective(learner, Teacher(target, ()), forward_kl, beside={"smooth_l1": 1.0})
    with pytest.raises(ConfigError, match="smooth_l1 compares the target's states"):
        objective.total(lesson_rows(rows()))


def test_a_draft_that_guesses_states_learns_them(target, tmp_path):
    """The exit head's output taken for a guess of the target's last state."""

    class Guessing(early_exit.EarlyExitLearner):
        def look(self, lesson):
            (guess,) = super().look(lesson).guesses
            return Outlook(guesses=[guess], beside=[states_beside(guess, lesson.states[guess.rows])], recurs=True)

    learner = Guessing(early_exit.new(EXIT, target, 0).module, target)
    mix = mixed({"smooth_l1": 1.0})
    objective = DraftObjective(learner, Teacher(target, learner.taps), mix.rows, beside=mix.beside)
    before = rates(objective)
    draft_loop(objective, tmp_path, steps=40).run()
    assert rates(objective)[0] < 0.8 * before[0]
