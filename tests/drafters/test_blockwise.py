"""Blockwise parallel decoding: predict and verify are one pass, and the layers stand before the target's own head."""

from dataclasses import replace

import torch
from contracts.sides import randomise, stutterer, untrained_heads

from outdraft.core.request import Request
from outdraft.drafters.blockwise.learn import LEARN, BlockwiseLearning
from outdraft.drafters.blockwise.net import BlockwiseNet
from outdraft.options.params import SamplingParams
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject, run
from outdraft.testing.tiny import tiny_model


def test_a_text_takes_one_pass_for_its_prompt_and_one_a_round(tmp_path):
    row = DrafterRow(drafter="blockwise", target=stutterer, side=untrained_heads("blockwise"), options={"width": 1})
    subject = Subject(row, tmp_path)
    runner, made = subject.make_runner, []

    def counting(max_len, cache):
        one = runner(max_len, cache)
        forward = one.forward
        one.forward = lambda *args, **kwargs: (made.append(1), forward(*args, **kwargs))[1]
        return one

    subject.make_runner = counting
    engine = subject.engine(depth=4)
    (outcome,) = run(engine, [Request(prompt_token_ids=(5, 6, 7), params=SamplingParams(max_tokens=24))])
    judged = [event for event in outcome.events if event.tokens][1:]  # the first pass reads the prompt
    assert len(made) == len(judged) + 1
    assert len(judged) < 23, "some blocks are longer than one token"


def test_the_layers_have_no_projection_of_their_own():
    target = tiny_model(vocab=31, layers=3, dtype=torch.float32)
    net = LEARN.new(BlockwiseLearning(), target, 0).module
    size = 2 * target.config.hidden_size * target.config.intermediate_size
    size += target.config.hidden_size + target.config.intermediate_size
    assert sum(p.numel() for p in net.parameters()) == 4 * size
    h = torch.randn(3, target.config.hidden_size)
    assert torch.equal(net.states(h, 2), h), "untrained it says what the target says"
    torch.testing.assert_close(net.logits(h, 2), target.head(h))


def test_every_layer_is_its_own_and_a_scale_is_taken_back():
    target = tiny_model(vocab=31, layers=3, dtype=torch.float32)
    net = LEARN.new(BlockwiseLearning(), target, 0).module
    randomise(net, 1)
    h = torch.randn(3, target.config.hidden_size)
    said = [net.states(h, head) for head in range(4)]
    assert not any(torch.equal(a, b) for i, a in enumerate(said) for b in said[:i])
    scaled = BlockwiseNet(replace(net.config, scale=2.0))
    scaled.projections.borrow(target)
    torch.testing.assert_close(scaled.logits(2 * h, 0), target.head(h))


def test_a_layer_is_the_papers_feed_forward_one_with_its_relu():
    """x + W2 relu(W1 x + b1) + b2, by hand: without the bend it would be one linear map."""
    target = tiny_model(vocab=31, layers=3, dtype=torch.float32)
    net = LEARN.new(BlockwiseLearning(), target, 0).module
    randomise(net, 1)
    h = torch.randn(3, target.config.hidden_size)
    up, down = net.up[2], net.down[2]
    inner = h @ up.weight.T + up.bias
    assert (inner < 0).any()
    wanted = h + inner.clamp(min=0) @ down.weight.T + down.bias
    torch.testing.assert_close(net.states(h, 2), wanted)
