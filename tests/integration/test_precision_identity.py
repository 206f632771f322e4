"""Bit for bit plain decoding's text in every precision that the kernels run: the zoo's target in bf16, int8 and int4.

Every drafter of the line-up, as chain and as tree; a few prompts by default, 200 x 256 tokens with `-m slow`.
"""

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


@pytest.fixture(scope="module", params=PRECISIONS)
def plain(request, tmp_path_factory) -> LLM:
    return LLM(
        make_model(request.param, Shelf(tmp_path_factory.mktemp("made"))).path, drafter="none", max_num_seqs=TOGETHER
    )


@pytest.fixture(scope="module")
def wanted(plain):
    """Plain decoding's texts, by their number and length."""
    known: dict[tuple[int, int], tuple] = {}

    def write(count: int, num_tokens: int) -> tuple:
        if (count, num_tokens) not in known:
            room = plain.config["max_model_len"] - num_tokens
            ids = identity_prompts(plain.codec, count, vocab_size=4096, max_len=min(room, 128))
            prompts = [{"prompt_token_ids": one} for one in ids]
            params = SamplingParams(max_tokens=num_tokens, ignore_eos=True)
            known[count, num_tokens] = prompts, params, [one.token_ids for one in plain.generate(prompts, params)]
        return known[count, num_tokens]

    return write


@pytest.mark.parametrize("rival", [*RIVALS, *TREES], ids=lambda rival: rival.label)
@pytest.mark.parametrize("size", [(6, 24), pytest.param((200, 256), marks=pytest.mark.slow)], ids=["few", "many"])
def test_the_text_is_plain_decodings(plain, wanted, rival, size):
    prompts, params, texts = wanted(*size)
    results = join(plain, rival).generate(prompts, params)
    differing = [i for i, (one, ids) in enumerate(zip(results, texts, strict=True)) if one.token_ids != ids]
    assert not differing
    assert sum(one.stats.num_accepted_tokens for one in results) > 0
