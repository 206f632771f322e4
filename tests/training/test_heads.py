"""Draft, exit head and EAGLE network: training makes them better, files keep them, unrolling means what it says."""

import pytest
import torch

from outdraft.core.errors import CapabilityError, ModelLoadError
from outdraft.drafters.eagle.net import load_eagle, save_eagle
from outdraft.drafters.early_exit.net import load_exit_head, save_exit_head
from outdraft.nn.context import CausalContext
from outdraft.training.attention import TrainingContext
from outdraft.training.distill import Distill, DistillOptions
from outdraft.training.eagle import Eagle, EagleTraining, UnrolledContext, new_eagle
from outdraft.training.early_exit import EarlyExit, EarlyExitTraining, new_exit_head
from outdraft.training.harvest import LockstepContext, sample_batch
from tests.training.toys import rows, toy_decoder, toy_loop, trained_target

EAGLE = EagleTraining(taps=(0, 1, 3), num_heads=2, num_kv_heads=1, head_dim=8, intermediate_size=32, num_steps=3)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return trained_target(tmp_path_factory.mktemp("target"))


def test_training_attention_equals_causal_attention():
    torch.manual_seed(0)
    results = []
    inputs = [torch.randn(2 * 6, heads, 8) for heads in (4, 2, 2)]
    for context in (TrainingContext(2, 6), CausalContext(2, 6)):
        q, k, v = (x.clone().requires_grad_() for x in inputs)
        out = context.attend(0, q, k, v, window=None, scale=0.3)
        (out * torch.linspace(0, 1, out.numel()).view_as(out)).sum().backward()
        results.append((out.detach(), q.grad, k.grad, v.grad))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_a_distilled_draft_is_accepted_more_often(target, tmp_path):
    draft = toy_decoder(5, hidden=16, layers=1)
    loop = toy_loop(Distill(draft, target, DistillOptions()), tmp_path, steps=100)
    before = loop.evaluate()[1]
    loop.run()
    assert loop.evaluate()[1] > before + 0.2


def test_an_exit_head_beats_the_plain_exit_and_survives_its_file(target, tmp_path):
    head = new_exit_head(EarlyExitTraining(exit_layer=1, inner_size=32), target, 0)
    loop = toy_loop(EarlyExit(head, target), tmp_path, steps=60)
    untrained = loop.evaluate()
    assert untrained[1] == pytest.approx(untrained[2], abs=1e-6)
    loop.run()
    trained = loop.evaluate()
    assert trained[1] > trained[2] + 0.05
    save_exit_head(head, tmp_path / "head")
    h = torch.randn(4, 32)
    assert torch.equal(load_exit_head(tmp_path / "head")(h), head(h))


def test_an_eagle_network_learns_every_step_and_survives_its_file(target, tmp_path):
    net = new_eagle(EAGLE, target, 0)
    loop = toy_loop(Eagle(net, target, EAGLE), tmp_path, steps=60)
    before = loop.evaluate()
    loop.run()
    after = loop.evaluate()
    assert after[0] < before[0]
    assert all(late > early + 0.1 for late, early in zip(after[1:], before[1:], strict=True))
    save_eagle(net, tmp_path / "eagle")
    loaded = load_eagle(tmp_path / "eagle", target)
    for ours, theirs in zip(net.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert loaded.config == net.config


def test_wrong_files_are_refused(target, tmp_path):
    save_exit_head(new_exit_head(EarlyExitTraining(exit_layer=1, inner_size=8), target, 0), tmp_path)
    with pytest.raises(ModelLoadError, match="model_type"):
        load_eagle(tmp_path, target)
    save_eagle(new_eagle(EAGLE, target, 0), tmp_path)
    with pytest.raises(CapabilityError, match="its own target"):
        load_eagle(tmp_path, toy_decoder(hidden=16))


@torch.no_grad()
def test_unrolled_training_is_what_drafting_does(target):
    """Step s at pair i = s single-row passes after the true pairs 0..i-s, with a cache."""
    net = new_eagle(EAGLE, target, 1)
    length, steps, i = 10, 3, 7
    tokens, true = torch.randn(length, 32), torch.randn(length, 32)
    context, f, unrolled = UnrolledContext(1, length), true, []
    for _ in range(steps):
        g = net.run(tokens, f, torch.arange(length), context)
        unrolled.append(g)
        f = torch.cat((true[:1], g[:-1]))
    for step in range(steps):
        cache = LockstepContext(1, 1)
        last = i - step
        g = net.run(tokens[: last + 1], true[: last + 1], torch.arange(last + 1), cache)[-1:]
        for place in range(last + 1, i + 1):
            g = net.run(tokens[place : place + 1], g, torch.tensor([place]), cache)
        torch.testing.assert_close(unrolled[step][i : i + 1], g, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_sampling_with_a_cache_follows_the_full_pass(target):
    """At a tiny temperature the sampler is greedy decoding."""
    prompts = rows(3, 5)
    texts = sample_batch(target, prompts, 12, 1e-4, 0)
    assert torch.equal(texts[:, :5], prompts)
    flat = texts[:, :-1]
    positions = torch.arange(flat.shape[1]).repeat(3)
    logits = target(flat.flatten(), positions, CausalContext(3, flat.shape[1])).view(3, flat.shape[1], -1)
    assert torch.equal(logits.argmax(-1)[:, 4:], texts[:, 5:])
