"""Two trained models of different vocabularies: the smaller one drafts for the other, in batches of five."""

import pytest
from models.real_models import data_folder
from models.stories260k import write_stories260k, write_tokenizer

from outdraft import LLM, SamplingParams
from outdraft.testing.token_law import judge_tokens

PROMPTS = [
    "Once upon a time",
    "Once upon a time, there was a little girl named Lily. She",
    'Tom and his dog went to the park. "Look',
    "The big cat was sad be",  # ends inside a word
    "",
]
DRAFTERS = ("universal", "vocab_map")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Directories of the target and of the drafter."""
    target, small = data_folder("tinystories-656k"), data_folder("stories260k")
    out = tmp_path_factory.mktemp("stories260k")
    write_stories260k(small, out)
    write_tokenizer(small, out)
    return target, out


@pytest.fixture(scope="module")
def plain(models):
    return LLM(models[0])


@pytest.fixture(scope="module", params=DRAFTERS)
def draft(request, models, plain):
    def build(verifier="auto"):
        options = {"model": str(models[1])}
        return plain.with_drafter(request.param, options, verifier=verifier, num_speculative_tokens=4)

    return build


def test_greedy_and_seeded_texts_are_plain_decodings(plain, draft):
    for params in (SamplingParams(max_tokens=60), SamplingParams(max_tokens=30, temperature=0.8, seed=5)):
        wanted = plain.generate(PROMPTS, params)
        found = draft().generate(PROMPTS, params)
        assert [one.token_ids for one in found] == [one.token_ids for one in wanted]
        assert sum(one.stats.num_accepted_tokens for one in found) > 0


@pytest.mark.slow
@pytest.mark.parametrize("verifier", ["auto", "outdraft.testing.accept_all:METHOD"])
def test_sampled_law(plain, draft, verifier):
    """Of whole texts, token by token; a rule that keeps every guess is found out."""
    params = SamplingParams(max_tokens=40, temperature=1.0)
    engine = draft(verifier)
    law = judge_tokens(plain, [one for _ in range(12) for one in engine.generate(PROMPTS, params)], params)
    assert law.num_tokens > 200 and (verifier != "auto" or law.forbidden == 0)
    assert (law.p_value > 1e-3) == (verifier == "auto"), law
