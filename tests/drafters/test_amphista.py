"""Amphista's slots: what they see of each other, and that nothing depends on the states beside them."""

import pytest
import torch
from contracts.sides import randomise

from outdraft.drafters.amphista.learn import LEARN, AmphistaLearning
from outdraft.drafters.shared.networks.prepare import make_exact
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import tiny_model
from outdraft.training.lessons import Teacher
from tests.drafters.drafting import draft_behind
from tests.training.toys import lesson_rows, toy_decoder


def slots(bidirectional=True, seed=0):
    net = LEARN.new(AmphistaLearning(bidirectional=bidirectional), toy_decoder(1), 0).module
    randomise(net, seed)
    return net.slots.eval().requires_grad_(False)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_which_slots_see_each_other(bidirectional):
    made, g = slots(bidirectional), torch.randn(3, 32)
    before = made(g)
    for slot in range(4):
        kept = made.places[slot].clone()
        made.places[slot] += 1
        moved = (made(g) != before).any(-1).all(0)
        made.places[slot] = kept
        wanted = torch.ones(4, dtype=torch.bool) if bidirectional else torch.arange(4) == slot
        assert torch.equal(moved, wanted)


def test_the_ablation_has_as_many_parameters():
    sizes = [{name: p.shape for name, p in slots(kind).named_parameters()} for kind in (True, False)]
    assert sizes[0] == sizes[1]


def test_attention_over_slots_is_attention():
    """Against sums written out, with grouped heads."""
    from outdraft.drafters.shared.heads.layers import SlotContext

    q, k, v = torch.randn(2 * 3, 4, 8), torch.randn(2 * 3, 2, 8), torch.randn(2 * 3, 2, 8)
    for exact in (True, False):
        found = SlotContext(3, alone=False, exact=exact).attend(0, q, k, v, window=None, scale=0.3).view(2, 3, 4, 8)
        for state in range(2):
            for head in range(4):
                rows = slice(3 * state, 3 * state + 3)
                weights = (q[rows, head] @ k[rows, head // 2].T * 0.3).softmax(-1)
                torch.testing.assert_close(found[state, :, head], weights @ v[rows, head // 2])


@torch.inference_mode()
def test_no_bits_depend_on_the_states_beside():
    made, g = slots(), torch.randn(9, 32)
    make_exact(made)
    made.exact = True
    together = made(g)
    for i in range(9):
        assert torch.equal(made(g[i : i + 1])[0], together[i])


def test_untrained_every_slot_is_the_state():
    net = LEARN.new(AmphistaLearning(), toy_decoder(1), 0).module
    g = torch.randn(3, 32)
    assert torch.equal(net.slots(g), g[:, None].expand(3, 4, 32))


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_a_chain_is_what_the_slots_say_in_training(architecture, tmp_path):
    """Slot by slot; only the last layer knows the pending token. Also where an embedding depends on its position."""
    target = tiny_model(architecture, vocab=31, layers=3, dtype=torch.float64)
    learner = LEARN.new(AmphistaLearning(), target, 0)
    randomise(learner.module.to(torch.float64), 3)
    learner.save(tmp_path)
    prompt = [3, 1, 4, 1, 5, 9, 2, 6]
    ids = torch.tensor([[*prompt, 0, 0, 0, 0]])
    outlook = learner.look(Teacher(target, learner.taps).lesson(lesson_rows(ids)))
    at = len(prompt) - 2  # the row whose next token is the pending one
    wanted = [int(guess.head(guess.states[at : at + 1]).argmax()) for guess in outlook.guesses]
    assert len(set(wanted)) > 2
    assert draft_behind(target, prompt, "amphista", tmp_path).tokens.tolist() == [6, *wanted]
    assert list(learner.module.stem.joins) == ["1"]


def test_options_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="num_layers"):
        AmphistaLearning(num_layers=0)
