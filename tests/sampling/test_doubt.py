"""Which decisions are sure: none of those may change when the logits do, and some of the others must."""

import pytest
import torch

from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.options.params import SamplingParams
from outdraft.sampling.coins import verifier_coins
from outdraft.sampling.doubt import sure_decisions
from outdraft.sampling.draft_coins import draft_coins
from outdraft.sampling.warp import warp_nodes

BOUND = 0.3
WAYS = {
    "greedy": {},
    "repetition": {"repetition_penalty": 1.7},
    "repetition encouraged": {"repetition_penalty": 0.6},
    "presence": {"presence_penalty": 0.5, "frequency_penalty": 0.2},
    "bias": {"logit_bias": {4: 2.0, 7: -100.0}},
    "sampled": {"temperature": 1.0},
    "cold": {"temperature": 0.4},
    "hot": {"temperature": 1.8, "repetition_penalty": 1.3},
    "top-k": {"temperature": 1.0, "top_k": 4},
    "top-k of all": {"temperature": 1.0, "top_k": 20},
    "top-p": {"temperature": 1.0, "top_p": 0.6},
    "narrow top-p": {"temperature": 0.7, "top_p": 0.05},
    "min-p": {"temperature": 1.0, "min_p": 0.2},
    "typical": {"temperature": 1.0, "typical_p": 0.6},
    "typical after top-p": {"temperature": 0.8, "typical_p": 0.8, "top_p": 0.9},
    "masked": {"temperature": 1.0, "banned_token_ids": [2, 3], "bad_words": [[4, 5], [9, 7]], "top_k": 6},
    "few are allowed": {"allowed_token_ids": [4, 8, 11, 12]},
    "all": {"temperature": 0.8, "top_k": 6, "top_p": 0.8, "min_p": 0.05, "repetition_penalty": 1.2},
}


def sequence(seed: int, **params) -> Sequence:
    request = Request(prompt_token_ids=(1, 2, 3), params=SamplingParams(max_tokens=99, **params))
    seq = Sequence(
        id=0,
        request=request,
        tokens=[1, 2, 3],
        prompt_len=3,
        max_len=99,
        seed=seed,
        coupled=True,
        eos_token_ids=frozenset(),
        coins=verifier_coins,
        draft_coins=draft_coins,
        prompt_ids=frozenset((1, 2, 3)),
    )
    for token in (5, 5, 9):
        seq.extend(token)
    return seq


def decide(seq: Sequence, logits: torch.Tensor, paths: list[list[int]]) -> list[int]:
    distributions = warp_nodes(seq, logits, paths)
    return [
        verifier_coins(seq).draw(distribution, len(path))
        for distribution, path in zip(distributions, paths, strict=True)
    ]


def noise(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """No two of a row differ by more than the bound; half of the values stand at the edges, where it hurts most."""
    values = torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5
    return torch.where(torch.rand(shape, generator=generator) < 0.5, values, values.sign() / 2) * BOUND


@pytest.mark.parametrize("way", WAYS)
def test_sure_decisions_never_change_and_others_do(way):
    generator = torch.Generator().manual_seed(0)
    paths = [[], [4], [4, 5]]
    turned = {True: 0, False: 0}
    seen = {True: 0, False: 0}
    for seed in range(60):
        seq = sequence(seed, **WAYS[way])
        logits = torch.randn(3, 20, generator=generator, dtype=torch.float64) * 2
        sure = sure_decisions(seq, logits, paths, BOUND)
        before = decide(seq, logits, paths)
        changed = [False] * 3
        for _ in range(8):
            after = decide(seq, logits + noise(logits.shape, generator), paths)
            changed = [was or a != b for was, a, b in zip(changed, before, after, strict=True)]
        for is_sure, has in zip(sure, changed, strict=True):
            seen[is_sure] += 1
            turned[is_sure] += has
    assert turned[True] == 0
    assert seen[True] > 30 and turned[False] > 10, (seen, turned)


def test_a_tie_is_never_sure():
    logits = torch.tensor([[1.0, 3.0, 3.0, 0.0]])
    assert sure_decisions(sequence(0), logits, [[]], 1e-12) == [False]


def test_a_vocabulary_of_one_is_always_sure():
    assert sure_decisions(sequence(0, temperature=1.0), torch.zeros(1, 1), [[]], 1.0) == [True]
    assert sure_decisions(sequence(0), torch.zeros(1, 1), [[]], 1.0) == [True]


@pytest.mark.parametrize(("factor", "stretched"), [(1.0, 1.0), (2.0, 2.0), (0.5, 2.0)])
@pytest.mark.parametrize(("beyond", "is_sure"), [(1e-6, True), (-1e-6, False)])
def test_a_greedy_lead_needs_the_bound_and_no_more(factor, stretched, beyond, is_sure):
    """Tokens 10 and 11 have not been written, so the penalty changes neither; it stretches the bound alone."""
    logits = torch.full((1, 20), -9.0, dtype=torch.float64)
    logits[0, 10], logits[0, 11] = 4.0, 4.0 - stretched * BOUND - beyond
    assert sure_decisions(sequence(1, repetition_penalty=factor), logits, [[]], BOUND) == [is_sure]
