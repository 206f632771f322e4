"""Warping equals the textbook (transformers' warpers where they exist) and knows each node's own history."""

import pytest
import torch

from outdraft.core.sequence import Sequence
from outdraft.options.errors import NumericsError, RequestError
from outdraft.options.params import SamplingParams
from outdraft.sampling.coins import verifier_coins
from outdraft.sampling.draft_coins import draft_coins
from outdraft.sampling.warp import adjust, warp_nodes


def make_sequence(prompt=(1, 2), output=(), eos=(0,), **params) -> Sequence:
    from outdraft.core.request import Request

    seq = Sequence(
        id=0,
        request=Request(prompt_token_ids=tuple(prompt), params=SamplingParams(**params)),
        tokens=list(prompt),
        prompt_len=len(prompt),
        max_len=100,
        seed=1,
        coupled=True,
        eos_token_ids=frozenset(eos),
        coins=verifier_coins,
        draft_coins=draft_coins,
        prompt_ids=frozenset(prompt),
    )
    for token in output:
        seq.extend(token)
    return seq


@pytest.fixture
def logits() -> torch.Tensor:
    return torch.randn(5, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2


def test_greedy_is_one_hot_of_the_best(logits):
    distribution = warp_nodes(make_sequence(), logits)
    assert torch.equal(distribution.argmax(-1), logits.argmax(-1)) and torch.equal(
        distribution.sum(-1), torch.ones(5).double()
    )


@pytest.mark.parametrize("t,k,p,m", [(0.7, 0, 1.0, 0.0), (1.0, 5, 1.0, 0.0), (1.3, 0, 0.8, 0.0), (1.0, 0, 1.0, 0.1)])
def test_each_truncation_equals_transformers(logits, t, k, p, m):
    hf = pytest.importorskip("transformers.generation.logits_process")
    warpers = [hf.TemperatureLogitsWarper(t)]
    warpers += [hf.TopKLogitsWarper(k)] if k else []
    warpers += [hf.TopPLogitsWarper(p)] if p < 1 else []
    warpers += [hf.MinPLogitsWarper(m)] if m else []
    expected = logits.clone()
    for warper in warpers:
        expected = warper(None, expected)
    distribution = warp_nodes(make_sequence(temperature=t, top_k=k, top_p=p, min_p=m), logits)
    assert torch.allclose(distribution, torch.softmax(expected, -1), atol=1e-12)


def test_top_p_keeps_the_token_that_crosses_the_threshold():
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]], dtype=torch.float64))
    distribution = warp_nodes(make_sequence(temperature=1.0, top_p=0.6), logits)
    assert torch.allclose(distribution, torch.tensor([[0.625, 0.375, 0, 0]]).double())


def test_penalties_count_each_nodes_own_path(logits):
    settings = dict(temperature=1.0, repetition_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.2)
    paths = [[], [7], [7, 7], [8], [2]]
    tree = warp_nodes(make_sequence(output=(3,), **settings), logits, paths)
    for row, path in enumerate(paths):
        alone = warp_nodes(make_sequence(output=(3, *path), **settings), logits[row : row + 1], [[]])
        assert torch.allclose(tree[row], alone[0])
    unaware = warp_nodes(make_sequence(output=(3,), **settings), logits)
    assert not torch.allclose(tree[1], unaware[1])


def test_penalty_formulas_by_hand():
    logits = torch.tensor([[2.0, -2.0, 1.0, 0.5]], dtype=torch.float64)
    seq = make_sequence(
        prompt=(0, 1),
        output=(2, 2),
        eos=(),
        temperature=1.0,
        repetition_penalty=2.0,
        presence_penalty=0.1,
        frequency_penalty=0.2,
    )
    expected = torch.tensor([[1.0, -4.0, 0.5 - 0.1 - 0.4, 0.5]]).double()
    assert torch.allclose(warp_nodes(seq, logits, [[]]), torch.softmax(expected, -1))


def test_a_token_of_prompt_output_and_path_is_penalised_once():
    logits = torch.tensor([[2.0, -2.0, 1.0, 0.5]], dtype=torch.float64)
    seq = make_sequence(prompt=(0, 1), output=(0,), eos=(), temperature=1.0, repetition_penalty=2.0)
    expected = torch.tensor([[1.0, -4.0, 1.0, 0.5]]).double()
    assert torch.allclose(warp_nodes(seq, logits, [[1]]), torch.softmax(expected, -1))


def test_repetition_penalty_equals_transformers(logits):
    hf = pytest.importorskip("transformers.generation.logits_process")
    expected = hf.RepetitionPenaltyLogitsProcessor(1.3)(torch.tensor([[1, 2, 9]]), logits[:1].clone())
    distribution = warp_nodes(make_sequence(output=(9,), temperature=1.0, repetition_penalty=1.3), logits[:1], [[]])
    assert torch.allclose(distribution, torch.softmax(expected, -1))


def test_min_tokens_masks_the_ends_at_the_right_depth(logits):
    seq = make_sequence(output=(5,), eos=(0,), temperature=1.0, min_tokens=3, stop_token_ids=(4,))
    distribution = warp_nodes(seq, logits[:3], [[], [6], [6, 6]])
    assert (distribution[:2, [0, 4]] == 0).all() and (distribution[2, [0, 4]] > 0).all()


def test_logit_bias_can_force_and_forbid(logits):
    distribution = warp_nodes(make_sequence(logit_bias={3: 100.0}), logits)
    assert (distribution.argmax(-1) == 3).all()
    distribution = warp_nodes(make_sequence(temperature=1.0, logit_bias={3: -float("inf")}), logits)
    assert (distribution[:, 3] == 0).all()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_no_number_is_an_error(logits, bad):
    logits[2, 5] = bad
    with pytest.raises(NumericsError, match="row 2"):
        warp_nodes(make_sequence(), logits)


@pytest.mark.parametrize(
    "name,value",
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("top_p", 0.0),
        ("top_k", -2),
        ("min_p", 2.0),
        ("max_tokens", 0),
        ("repetition_penalty", 0.0),
        ("logprobs", -1),
        ("stop", ("",)),
    ],
)
def test_a_setting_out_of_range_is_named(name, value):
    with pytest.raises(RequestError, match=name):
        SamplingParams(**{name: value})


def test_many_biases_are_read_once_for_a_sequence(logits, monkeypatch):
    seq = make_sequence(temperature=1.0, logit_bias={3: 1.5, 0: -float("inf")})
    biased = adjust(seq, logits, None)
    assert torch.equal(biased[:, 3], logits[:, 3] + 1.5) and (biased[:, 0] == -float("inf")).all()
    assert adjust(seq, logits.double(), None).dtype == torch.float64
    monkeypatch.delattr(torch, "tensor")
    assert torch.equal(adjust(seq, logits, None), biased)
