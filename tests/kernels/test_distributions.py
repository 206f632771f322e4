"""The native distribution of a row of logits and the native race, beside PyTorch's own arithmetic; and what neither can
read."""

import pytest
import torch

from kernels.pytorch_only import pytorch_only
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.kernels.decoder.distributions import Warp, race, warp_rows
from outdraft.kernels.library import wanted_kind
from outdraft.options.errors import NumericsError
from outdraft.options.params import SamplingParams
from outdraft.sampling import draw
from outdraft.sampling.coins import verifier_coins
from outdraft.sampling.draft_coins import draft_coins
from outdraft.sampling.warp import warp_nodes, warp_of

pytestmark = pytest.mark.skipif(wanted_kind() is None, reason="the native kernels are not built or switched off")

PARAMS = [
    {},
    {"temperature": 0.6},
    {"temperature": 1.4, "top_p": 0.9},
    {"temperature": 0.8, "top_k": 5, "min_p": 0.05},
    {"temperature": 0.7, "top_p": 0.5, "top_k": 40},
]


def sequence(**params):
    request = Request(prompt_token_ids=(1, 2), params=SamplingParams(**{"temperature": 1.0, **params}))
    return Sequence(
        id=0,
        request=request,
        tokens=[1, 2],
        prompt_len=2,
        max_len=64,
        seed=3,
        coupled=False,
        eos_token_ids=frozenset(),
        coins=verifier_coins,
        draft_coins=draft_coins,
    )


@pytest.mark.parametrize("size", [1, 7, 16, 65, 200, 4096, 50_003])
@pytest.mark.parametrize("params", PARAMS)
def test_distributions_are_those_of_pytorch(size, params):
    torch.manual_seed(size)
    logits = torch.randn(9, size) * 4
    logits[2, : size // 2] = -torch.inf  # a mask
    logits[5] = (logits[5] / 4).round() * 4  # equal ones at every edge
    logits[6] = 0.5
    logits[7] /= 40  # so flat that nothing is far below the largest
    seq = sequence(**params)
    distribution = warp_nodes(seq, logits)
    assert torch.equal(distribution, warp_rows(logits, warp_of(seq.request.params)))  # natively
    with pytorch_only():
        assert warp_rows(logits, warp_of(seq.request.params)) is None
        expected = warp_nodes(seq, logits)
    torch.testing.assert_close(distribution, expected, atol=1e-6, rtol=1e-5)
    assert torch.equal(distribution > 0, expected > 0) and not distribution[2, : size // 2].any()
    assert torch.equal(distribution[4], warp_nodes(seq, logits[4:5])[0])  # each row by itself


def test_a_penalised_distribution_is_that_of_pytorch():
    seq, logits = sequence(temperature=0.8, repetition_penalty=1.3, min_tokens=3), torch.randn(2, 50)
    seq.eos_token_ids = frozenset({7})
    distribution = warp_nodes(seq, logits, [[], [4]])
    with pytorch_only():
        torch.testing.assert_close(distribution, warp_nodes(seq, logits, [[], [4]]))
    assert not distribution[:, 7].any()


@pytest.mark.parametrize("count", [1, 2, 9, 300, 600])
@pytest.mark.parametrize("size", [1, 7, 64, 200, 4096])
def test_races_have_the_same_winners(size, count):
    torch.manual_seed(size)
    distribution = torch.softmax(torch.randn(size) * 3, 0)
    distribution[torch.rand(size) < 0.2] = 0
    distribution[64:192] = 0
    distribution[-1] = 0.01
    winners = [race(distribution, key, count) for key in range(100)]
    if count > 512:
        assert winners == [None] * 100
        winners = [draw.race(distribution, key, count) for key in range(100)]
    assert all(len(drawn) == min(count, int((distribution > 0).sum())) for drawn in winners)
    with pytorch_only():
        assert race(distribution, 0) is None
        assert winners == [draw.race(distribution, key, count) for key in range(100)]
    assert winners == [draw.race(distribution, key, count) for key in range(100)]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_is_reported(bad):
    logits = torch.randn(3, 40)
    logits[1, 17] = bad
    assert warp_rows(logits, Warp(temperature=1.0)) is None
    for params in ({}, {"repetition_penalty": 1.2}, {"top_p": 0.5}):
        with pytest.raises(NumericsError, match="row 1"):
            warp_nodes(sequence(**params), logits, [[], [], []])
    distribution = torch.full((40,), 1 / 40)
    distribution[33] = bad
    assert race(distribution, 5) is None


def test_a_distribution_without_mass_has_no_winner():
    assert race(torch.zeros(20), 1) is None
    with pytest.raises(NumericsError, match="no mass"):
        draw.race(torch.zeros(20), 1)


def test_other_numbers_are_left_to_pytorch():
    logits = torch.randn(4, 30)
    for other in (logits.double(), logits.t()):
        assert warp_rows(other, Warp(temperature=1.0)) is None
    distribution = torch.softmax(logits[0].double(), 0)
    assert race(distribution, 3) is None and len(draw.race(distribution, 3)) == 1
