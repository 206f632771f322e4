"""How the slots of a block count: D-PACE's weights, a fixed decay, and what a confidence learns."""

from math import exp, prod

import pytest
import torch
import torch.nn.functional as F

from outdraft.core.learner import Guess, Lesson, Moment, Outlook
from outdraft.core.learner_registry import find_learner
from outdraft.drafters.shared.blocks.learn import decaying, paced
from outdraft.drafters.shared.blocks.spots import chosen_rows
from outdraft.learn.compare import compare
from outdraft.learn.losses import forward_kl
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.testing.tiny import random_decoder, tiny_config


def lesson(length=7, moment=None):
    ids = torch.arange(length + 1)[None] % 5
    return Lesson(
        ids=ids,
        documents=torch.zeros_like(ids),
        positions=torch.arange(length),
        counts=torch.ones(length, dtype=torch.bool),
        states=torch.randn(length, 5, generator=torch.Generator().manual_seed(1)),
        moment=moment,
    )


def test_a_slot_counts_as_often_as_it_is_reached_and_all_behind_it():
    logs, counts = -torch.rand(3, 4, generator=torch.Generator().manual_seed(0)), torch.ones(3, 4, dtype=torch.bool)
    counts[1, 2:] = False
    found = paced(logs, counts)
    for row in range(3):
        chance = [0.5 * exp(logs[row, i]) + 0.5 if counts[row, i] else 1.0 for i in range(4)]
        for j in range(4):
            wanted = sum(prod(chance[: m + 1]) for m in range(j, 4)) if counts[row, j] else 0.0
            assert float(found[row, j]) == pytest.approx(wanted, rel=1e-5)


def test_a_fixed_decay_is_the_papers():
    assert decaying(3, 4.0) == pytest.approx([1.0, exp(-0.25), exp(-0.5)])


def outlook(q, weights=None, chance=None):
    """One guess a row; the head says the states themselves."""
    return Outlook(guesses=[Guess(states=q, head=lambda x: x, rows=torch.arange(7), weights=weights, chance=chance)])


def test_a_guess_weighs_what_its_weight_says():
    taught, q = lesson(), torch.randn(7, 5, generator=torch.Generator().manual_seed(2))
    weights = torch.tensor([2.0, 0, 1, 0, 0, 3, 1])
    found = compare(outlook(q, weights), taught, lambda h: h, forward_kl)
    far = forward_kl(taught.states.log_softmax(-1), q.log_softmax(-1), taught.ids[0, 1:])
    assert float(found.total) == pytest.approx(float((far * weights).sum()), rel=1e-5)
    assert found.weight == 7.0


def test_a_confidence_learns_the_acceptance_of_its_guess():
    taught, q = lesson(), torch.randn(7, 5, generator=torch.Generator().manual_seed(2))
    sure = torch.zeros(7, requires_grad=True)
    weights = torch.tensor([1.0, 1, 1, 1, 1, 1, 0])
    compare(outlook(q, weights, lambda x: sure[: len(x)]), taught, lambda h: h, forward_kl).total.backward()
    accepted = torch.minimum(taught.states.softmax(-1), q.softmax(-1)).sum(-1)
    assert sure.grad is not None
    torch.testing.assert_close(sure.grad, (0.5 - accepted) * weights)


def test_blocks_begin_at_some_rows_in_training_and_at_all_in_an_exam():
    assert chosen_rows(lesson(), 3).tolist() == list(range(7))
    one, other = (chosen_rows(lesson(moment=Moment(step=0, steps=9, seed=seed)), 3).tolist() for seed in (1, 2))
    assert len(one) == len(other) == 3 and one == sorted(one) and one != other


def test_heads_that_cannot_share_their_keys_are_refused():
    method, target = find_learner("dflash"), random_decoder(tiny_config(vocab=9, layers=2), dtype=torch.float32)
    with pytest.raises(ConfigError, match=r"num_heads=3, num_kv_heads=2: .* must be a multiple"):
        method.new(method.options(taps=(0, 1), num_heads=3, num_kv_heads=2), target, 0)


@pytest.mark.parametrize("kind", ["dflash", "kangaroo", "mtp", "eagle3"])
def test_heads_that_cannot_be_turned_in_pairs_are_refused(kind):
    method, target = find_learner(kind), random_decoder(tiny_config(vocab=9, layers=2), dtype=torch.float32)
    with pytest.raises(ConfigError, match=r"head_dim=7: .* in pairs: it must be even"):
        method.new(method.options(head_dim=7), target, 0)


@pytest.mark.parametrize("size", [5, 64])
def test_groups_that_do_not_divide_the_channels_are_refused(size):
    method, target = find_learner("dflash2"), random_decoder(tiny_config(vocab=9, layers=2), dtype=torch.float32)
    with pytest.raises(CapabilityError, match=f"conv_group_size={size} does not divide the 32 channels .* take one"):
        method.new(method.options(taps=(0, 1), conv_group_size=size), target, 0)


def test_a_selectors_loss_weighs_slots_as_the_guesses_are_weighed():
    """The mean over a slot's rows is by their weights; the true token is among the candidates in any case."""
    torch.manual_seed(0)
    method, target = find_learner("dflash2"), random_decoder(tiny_config(vocab=9, layers=2), dtype=torch.float32)
    selector = method.new(method.options(taps=(0, 1), selector_rank=4, selector_top_k=3), target, 0).net.correction
    width = target.config.hidden_size
    with torch.no_grad():
        for one in selector.parameters():
            one.copy_(torch.randn(one.shape))
    h, before, after = torch.randn(5, 1, width), torch.randint(9, (5, 1)), torch.randint(9, (5, 1))
    weights, matrix = torch.tensor([[3.0], [1.0], [0.5], [2.0], [0.0]]), torch.randn(width, 9)
    (found,) = selector.beside(lambda x: x @ matrix, h, before, after, torch.arange(5)[:, None], weights, h)
    far = []
    for row in range(5):
        scores, token = h[row, 0] @ matrix, int(after[row, 0])
        best = scores.topk(3).indices.tolist()
        best = best if token in best else [*best[:2], token]
        pairs = selector.predecessor_codebook[before[row, 0]] * selector.hidden_projection(h[row])[0]
        corrected = torch.stack([scores[one] + (pairs * selector.successor_codebook[one]).sum() for one in best])
        far.append(F.cross_entropy(corrected[None], torch.tensor([best.index(token)])))
    wanted = (torch.stack(far) * weights[:, 0]).sum() / weights.sum()
    torch.testing.assert_close(found.values.mean(), wanted)
    assert found.weight == pytest.approx(float(weights.mean()))


def test_a_chain_of_candidates_learns_as_far_as_the_text_is_among_them():
    """A quarter of the cross-entropy over a slot's candidates; behind a text that left them nothing is learned."""
    target = random_decoder(tiny_config(vocab=31, layers=2), dtype=torch.float32)
    method = find_learner("lilicorr")
    net = method.new(method.options(taps=(0, 1), block_size=3, candidates=2, chain_size=8, factor_dim=4), target, 0).net
    ids = torch.tensor([[[3, 5], [7, 2]]]).float()  # [1, S, k]
    factors = torch.tensor([[[1.0, -1.0, 1.0, -1.0], [0.5, 2.0, -3.0, 1.0]]])  # [1, S, k * k]
    known, rows, even = torch.cat((ids, factors), -1), torch.tensor([[4, 5]]), torch.ones(1, 2)

    def losses(text):
        after = torch.tensor([text])
        return [one.values for one in net.correction.beside(None, None, after, after, rows, even, known)]

    first, second = losses([5, 7])
    assert torch.allclose(first, -0.25 * torch.log_softmax(torch.tensor([1.0, -1.0]), 0)[1])
    assert torch.allclose(second, -0.25 * torch.log_softmax(torch.tensor([-3.0, 1.0]), 0)[0])
    assert [len(one) for one in losses([9, 7])] == [0, 0] and [len(one) for one in losses([3, 9])] == [1, 0]


def test_slots_are_weighed_by_the_probability_of_the_texts_token():
    target = random_decoder(tiny_config(vocab=31, layers=2), dtype=torch.float32)
    method = find_learner("dflash")
    learner = method.new(method.options(taps=(0, 1), block_size=3), target, 0)
    scores, tokens = torch.randn(4, 2, 9), torch.tensor([[0, 8], [3, -1], [2, 2], [5, 1]])
    counted = torch.tensor([[True, True], [True, True], [False, True], [True, True]])
    found = learner._log_probs(scores, tokens, counted, lambda h: h)
    wanted = scores.log_softmax(-1).gather(-1, tokens.clamp_min(0)[..., None])[..., 0]
    assert torch.allclose(found, wanted.masked_fill(~counted | (tokens < 0), -torch.inf))
