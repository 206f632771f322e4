"""Passes aside: short texts are scored each by itself, passes are timed, and nothing that lives is touched."""

import copy

import pytest
import torch
from kernels.test_stack import make

from outdraft.cache.config import CacheConfig
from outdraft.core.request import Request
from outdraft.engine.runner import Runner
from outdraft.kernels.library import library
from outdraft.models.networks.native import NativeDecoder
from outdraft.nn.context import CausalContext
from outdraft.options.params import SamplingParams
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject
from outdraft.testing.tiny import TINY_ARCHITECTURES, tiny_model

TEXTS = torch.tensor([[3, 9, 4], [9, 9, 9], [3, 9, 5], [0, 60, 1]])


def alone(decoder, text):
    with torch.inference_mode():
        return decoder(text, torch.arange(len(text)), CausalContext(1, len(text)))[-1]


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("architecture", TINY_ARCHITECTURES)
def test_equals_each_text_alone(architecture, length):
    decoder = tiny_model(architecture, dtype=torch.float64, seed=1)
    scored = Runner(decoder).port.layers.score(TEXTS[:, :length])
    assert scored.shape == (4, 61)
    for text, row in zip(TEXTS[:, :length], scored, strict=True):
        assert torch.allclose(row, alone(decoder, text), atol=1e-10)


@pytest.mark.skipif(library() is None, reason="the native kernels are not built here (no C++ compiler)")
@pytest.mark.parametrize("length", [1, 3])
def test_on_the_kernels(length):
    decoder = make("llama")
    wide = copy.deepcopy(decoder).float()
    runner = Runner(NativeDecoder(decoder))
    scored = runner.port.layers.score(TEXTS[:, :length])
    for text, row in zip(TEXTS[:, :length], scored, strict=True):
        assert torch.allclose(row, alone(wide, text), atol=0.1 * float(row.std()))
        assert torch.equal(row, runner.port.layers.score(text[None])[0])  # the bits do not depend on the others


@pytest.mark.parametrize("layout", ["static", "paged"])
def test_a_live_sequence_goes_on_undisturbed(layout):
    subject = Subject(DrafterRow(drafter="none"), None)
    engine = subject.engine(cache=CacheConfig(layout=layout))
    request = Request(prompt_token_ids=(5, 6, 7), params=SamplingParams(max_tokens=12))
    seq, runner = engine.add(request), engine.parts.target.target
    while engine.has_work:
        engine.step()
        runner.port.layers.score(TEXTS)
        assert runner.port.costs.pass_seconds(33) > 0
        runner.cache.check()
    assert seq.output == subject.oracle(request)
