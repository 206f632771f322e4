"""Reinforcement: its expectation is the exact gradient, scores are what hands compute, training raises the reward."""

from dataclasses import replace
from itertools import product

import pytest
import torch

from lab.zoo.pretrain import hidden_states
from outdraft.core.learner import Moment
from outdraft.drafters.draft_model import learn as draft_model
from outdraft.learn.losses import mixed
from outdraft.training.draft import DraftObjective
from outdraft.training.lessons import Teacher
from outdraft.training.packing import PackedRows
from outdraft.training.reinforce import (
    Baseline,
    Reinforcement,
    ReinforceOptions,
    accepted,
    bleu4,
    choose,
    of_windows,
    rouge_l,
    surrogate,
    to_go,
)
from outdraft.training.writing import write_on
from tests.training.toys import VOCAB, Lessons, toy_decoder, toy_loop, toy_sampler, trained_target

V, G = 3, 3


class Tables:
    """A tiny q: logits of the next token behind every prefix; p alike."""

    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        self.prefixes = [prefix for n in range(G) for prefix in product(range(V), repeat=n)]
        self.logits = torch.randn(len(self.prefixes), V, generator=generator, dtype=torch.float64)

    def along(self, x, logits):
        rows = [self.prefixes.index(x[:i]) for i in range(G)]
        return logits[rows].log_softmax(-1)[None]


def expected(kind, q, p, logits, texts):
    """E[reward], by all windows."""
    total = 0.0
    for x in product(range(V), repeat=G):
        log_q, tokens = q.along(x, logits), torch.tensor([x])
        reward = (
            accepted(p.along(x, p.logits), log_q, tokens) if kind == "accepted" else of_windows(kind, tokens, texts)
        )
        total = total + log_q.gather(-1, tokens[..., None]).sum().exp() * reward.sum()
    return total


def estimated(kind, q, p, logits, texts, baseline, entropy=0.0):
    """E[the estimator's gradient]: each window's own, times its probability."""
    total = torch.zeros_like(logits)
    for x in product(range(V), repeat=G):
        log_q, tokens = q.along(x, logits), torch.tensor([x])
        reward = (
            accepted(p.along(x, p.logits), log_q, tokens) if kind == "accepted" else of_windows(kind, tokens, texts)
        )
        (grad,) = torch.autograd.grad(surrogate(log_q, tokens, reward, baseline, entropy).sum(), logits)
        total += log_q.detach().gather(-1, tokens[..., None]).sum().exp() * grad
    return total


@pytest.mark.parametrize("kind", ["accepted", "bleu", "rouge"])
def test_the_estimate_is_the_exact_gradient_in_expectation(kind):
    q, p, texts = Tables(0), Tables(1), torch.tensor([[0, 1, 1]])
    logits = q.logits.clone().requires_grad_()
    (exact,) = torch.autograd.grad(-expected(kind, q, p, logits, texts), logits)
    assert torch.autograd.gradcheck(lambda x: expected(kind, q, p, x, texts), (logits,))
    for baseline in (torch.zeros(G, dtype=torch.float64), torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)):
        torch.testing.assert_close(estimated(kind, q, p, logits, texts, baseline), exact)


def test_a_baseline_that_knows_the_token_bends_it():
    """The power of the test above: a baseline that depends on what was drawn is another gradient, as is another
    sign."""
    q, p, texts = Tables(0), Tables(1), torch.tensor([[0, 1, 1]])
    logits = q.logits.clone().requires_grad_()
    (exact,) = torch.autograd.grad(-expected("bleu", q, p, logits, texts), logits)

    def planted(change):
        total = torch.zeros_like(logits)
        for x in product(range(V), repeat=G):
            log_q, tokens = q.along(x, logits), torch.tensor([x])
            reward = of_windows("bleu", tokens, texts)
            (grad,) = torch.autograd.grad(change(log_q, tokens, reward), logits)
            total += log_q.detach().gather(-1, tokens[..., None]).sum().exp() * grad
        return total

    none = torch.zeros(G, dtype=torch.float64)
    honest = planted(lambda log_q, x, r: surrogate(log_q, x, r, none, 0.0).sum())
    torch.testing.assert_close(honest, exact)
    for change in (
        lambda log_q, x, r: surrogate(log_q, x, r, 0.2 * x[0].double(), 0.0).sum(),
        lambda log_q, x, r: -surrogate(log_q, x, r, none, 0.0).sum(),
    ):
        assert float((planted(change) - exact).abs().max()) > 0.01


def test_the_entropy_bonus_has_the_entropys_gradient():
    logits = torch.randn(1, G, V, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).requires_grad_()
    none = torch.zeros(1, G, dtype=torch.float64)
    tokens = torch.zeros(1, G, dtype=torch.long)

    def bonus(x):
        return surrogate(x.log_softmax(-1), tokens, none, none[0], 0.5)

    assert torch.autograd.gradcheck(bonus, (logits,))
    chaos = torch.distributions.Categorical(logits=logits.detach()).entropy().sum()
    assert float(bonus(logits).detach()) == pytest.approx(-0.5 * float(chaos))


def test_accepted_length_is_the_product_of_ratios():
    p, q = (
        torch.tensor(x, dtype=torch.float64).log() for x in ([[[0.5, 0.5], [0.2, 0.8]]], [[[0.8, 0.2], [0.1, 0.9]]])
    )
    assert accepted(p, q, torch.tensor([[0, 1]]))[0].tolist() == pytest.approx([0.625, 0.625 * 8 / 9])
    assert accepted(p, q, torch.tensor([[1, 0]]))[0].tolist() == [1, 1]


def test_scores_of_texts_are_those_of_hands():
    assert bleu4([1, 2, 3, 4], [1, 2, 3, 4]) == pytest.approx(1) and rouge_l([1, 2, 3], [1, 2, 3]) == 1
    # 1-grams 3 of 4, 2-grams (1 + 1) / (3 + 1), 3-grams (0 + 1) / (2 + 1), 4-grams (0 + 1) / (1 + 1)
    assert bleu4([1, 2, 9, 4], [1, 2, 3, 4]) == pytest.approx((3 / 4 * 2 / 4 * 1 / 3 * 1 / 2) ** 0.25)
    assert bleu4([7, 8, 9, 6], [1, 2, 3, 4]) == 0 == rouge_l([7], [1]) and bleu4([], [1]) == 0
    # a repeated token matches as often as the text has it: 1 of 2, then (0 + 1) / (1 + 1), and nothing longer
    assert bleu4([1, 1], [1, 2]) == pytest.approx((1 / 2 * 1 / 2) ** 0.25)
    # half as long as the text: e^(1 - 2)
    assert bleu4([1, 2], [1, 2, 3, 4]) == pytest.approx(torch.e**-1)
    assert rouge_l([1, 9, 3, 4], [1, 3, 2, 4]) == pytest.approx(2 * 3 / 8)
    assert rouge_l([1, 2], [1, 5, 6, 2]) == pytest.approx(2 * 2 / 6)
    found = of_windows("rouge", torch.tensor([[1, 2], [3, 4]]), torch.tensor([[1, 2], [1, 2]]))
    assert found.tolist() == [[0, 1], [0, 0]]


def test_the_baseline_is_the_mean_so_far_and_forgets_slowly():
    baseline = Baseline(2)
    for reward in (1.0, 2.0, 6.0):
        baseline.see(torch.tensor([[reward, reward], [0.0, 0.0]]))
        baseline.settle(baseline.seen)
    assert baseline.mean.tolist() == pytest.approx([3.0, 1.5]), "to go: both rewards, then the last"
    baseline.settle(torch.zeros(3, dtype=torch.float64))
    assert baseline.mean.tolist() == pytest.approx([3.0, 1.5]), "a step without windows teaches nothing"
    baseline.state[-1] = 10_000
    baseline.settle(torch.tensor([103.0, 1.5, 1.0], dtype=torch.float64))
    assert baseline.mean.tolist() == pytest.approx([4.0, 1.5])
    assert to_go(torch.tensor([[1.0, 2.0]])).tolist() == [[3.0, 2.0]]


def test_windows_stand_where_a_whole_one_counts():
    ids = torch.arange(18).view(2, 9)
    counts = torch.zeros(2, 8, dtype=torch.bool)
    counts[0, 3:7] = True  # tokens 4..7
    counts[1, :2] = True
    rows = PackedRows(ids=ids, documents=torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1]] * 2), counts=counts)
    seen = set()
    for seed in range(20):
        windows = choose(rows, 3, [torch.Generator().manual_seed(4 * seed + row) for row in range(len(rows.ids))])
        assert len(windows.cuts) == 1 and windows.weights.tolist() == [4]
        cut = int(windows.cuts[0])
        seen.add(cut)
        assert windows.beginnings[0].tolist() == ids[0, 2:cut].tolist(), "its own document"
        assert windows.rows.ids.shape[1] == cut + 3
        assert windows.filled(torch.tensor([[70, 71, 72]])).ids[0, cut:].tolist() == [70, 71, 72]
    assert seen == {4, 5}
    assert choose(replace(rows, counts=counts & False), 3, [torch.Generator()] * len(rows.ids)) is None


SMALL = draft_model.DraftLearning(hidden_size=16, num_layers=1, num_heads=2, num_kv_heads=1, intermediate_size=32)


@pytest.fixture(scope="module")
def target():
    return trained_target()


class Timed(Lessons):
    def rows(self, step, first, count, length):
        made = super().rows(step, first, count, length)
        return replace(made, moment=Moment(step=step, steps=100, seed=step, first=first))


def objective_of(target, reward):
    learner, mix = draft_model.new(SMALL, target, 5), mixed({"reinforce": 1.0})
    reinforcement = Reinforcement(learner.module, ReinforceOptions(reward=reward), mix.reinforce)
    return DraftObjective(learner, Teacher(target, ()), mix.rows, reinforce=reinforcement)


@torch.no_grad()
def reward_of(objective, reward):
    """The mean reward of windows on rows that were not learned from."""
    judge = Reinforcement(objective.learner.module, ReinforceOptions(reward=reward), 1.0)
    for step in range(4):
        judge.total(objective.learner, objective.teacher, Timed(toy_sampler(3)).rows(step, 0, 32, 17))
    return float(judge.baseline.seen[0] / judge.baseline.seen[-1])


@pytest.mark.parametrize("reward", ["accepted", "bleu"])  # the third is a window's, as the second
def test_training_on_a_reward_raises_it(target, tmp_path, reward):
    objective = objective_of(target, reward)
    before = reward_of(objective, reward)
    loop = toy_loop(objective, tmp_path, data=Timed(toy_sampler()), steps=80, batch_tokens=256, micro_tokens=256)
    loop.run()
    assert reward_of(objective, reward) > 1.3 * before
    assert float(objective.memory["baseline"][-1]) == 80


def test_a_resumed_run_has_the_baseline_and_the_bits(target, tmp_path):
    whole = toy_loop(objective_of(target, "accepted"), tmp_path / "whole", data=Timed(toy_sampler()), steps=8)
    whole.run()
    for until in (3, 8):
        part = toy_loop(objective_of(target, "accepted"), tmp_path / "parts", data=Timed(toy_sampler()), steps=8)
        if until > 3:
            part.resume()
            assert float(part.objective.memory["baseline"][-1]) == 3
        part.run(until=until)
    assert torch.equal(whole.objective.memory["baseline"], part.objective.memory["baseline"])
    for ours, theirs in zip(whole.objective.module.parameters(), part.objective.module.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_passes_do_not_change_the_windows(target, tmp_path):
    sums = []
    for place, micro in (("whole", 128), ("parts", 32)):
        loop = toy_loop(
            objective_of(target, "accepted"),
            tmp_path / place,
            data=Timed(toy_sampler()),
            steps=1,
            batch_tokens=128,
            micro_tokens=micro,
        )
        loop.run()
        sums.append(loop.objective.memory["baseline"])
    assert torch.allclose(*sums, rtol=1e-5)


def test_what_a_draft_writes_is_drawn_from_it():
    """With the coins of its own cumulated distribution, recomputed without a cache; an end token ends it."""
    draft = toy_decoder(4)
    with torch.no_grad():  # large enough that where a token stands shows
        for parameter in draft.parameters():
            parameter.mul_(6 if parameter.dim() > 1 else 1)
    generator = torch.Generator().manual_seed(0)
    beginnings = [torch.randint(VOCAB, (n,), generator=generator) for n in (1, 5, 3)]
    uniforms = [torch.rand(n, generator=generator, dtype=torch.float64) for n in (6, 4, 0)]
    texts = write_on(draft, beginnings, uniforms, ends=False)
    assert [len(text) for text in texts] == [6, 4, 0]
    draft.requires_grad_(False)
    for start, text, coins in zip(beginnings[:2], texts[:2], uniforms[:2], strict=True):
        for i, (token, coin) in enumerate(zip(text.tolist(), coins.tolist(), strict=True)):
            read = torch.cat((start, text[:i]))[None]
            edges = draft.logits(hidden_states(draft, read)[-1:]).double().softmax(-1).cumsum(-1)[0]
            assert (float(edges[token - 1]) if token else 0.0) - 1e-6 <= coin <= float(edges[token]) + 1e-6
    whole, end = texts[0].tolist(), int(texts[0][2])
    draft.config = replace(draft.config, eos_ids=(end,))
    assert write_on(draft, beginnings, uniforms)[0].tolist() == whole[: whole.index(end) + 1]
