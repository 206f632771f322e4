"""Bit for bit plain decoding's text in every precision that the kernels run: the zoo's target in bf16, int8 and int4.

Every drafter of the line-up, as chain and as tree: six prompts of 24 tokens by default. With `-m slow` 25 of 200
prompts of 64 tokens, other ones for every drafter: each prompt is written in each precision.
"""

from functools import cache

import pytest

from outdraft import LLM, SamplingParams
from outdraft.bench.lineup import RIVALS, Rival
from outdraft.bench.made import make_model
from outdraft.bench.shelf import Shelf
from outdraft.bench.trial import join
from outdraft.testing.prompts import identity_prompts

TREES = (
    Rival(name="draft_model", options={"width": 2}, num_speculative_tokens=4),
    Rival(name="ngram", options={"width": 3}, num_speculative_tokens=6),
    Rival(name="eagle", options={"width": 1}, num_speculative_tokens=5),  # the chain; its default is a tree
)
PRECISIONS = ("zoo:target", "zoo:target@int8", "zoo:target@int4", "zoo:target@int4-g128")
TOGETHER = 16  # requests of a batch
LINE_UP = (*RIVALS, *TREES)


@pytest.fixture(scope="module", params=PRECISIONS)
def plain(request, tmp_path_factory) -> LLM:
    return LLM(
        make_model(request.param, Shelf(tmp_path_factory.mktemp("made"))).path, drafter="none", max_num_seqs=TOGETHER
    )


@pytest.fixture(scope="module")
def wanted(plain):
    """Prompts, settings and plain decoding's texts: some of the 200 prompts, so many tokens each."""

    def write(some: range, num_tokens: int) -> tuple:
        ids = identity_prompts(plain.codec, 200, vocab_size=4096, max_len=128)
        prompts = [{"prompt_token_ids": ids[i]} for i in some]
        params = SamplingParams(max_tokens=num_tokens, ignore_eos=True)
        return prompts, params, [one.token_ids for one in plain.generate(prompts, params)]

    return cache(write)


FEW = range(0, 200, 34)


@pytest.mark.parametrize("rival", LINE_UP, ids=lambda rival: rival.label)
@pytest.mark.parametrize("size", ["few", pytest.param("many", marks=pytest.mark.slow)])
def test_the_text_is_plain_decodings(plain, wanted, rival, size):
    turn = LINE_UP.index(rival)
    prompts, params, texts = wanted(FEW, 24) if size == "few" else wanted(range(turn, 200, len(LINE_UP)), 64)
    results = join(plain, rival).generate(prompts, params)
    differing = [i for i, (one, ids) in enumerate(zip(results, texts, strict=True)) if one.token_ids != ids]
    assert not differing
    assert sum(one.stats.num_accepted_tokens for one in results) > 0
