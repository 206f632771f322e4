"""Two trained models of different vocabularies, both of the zoo: the smaller one drafts for the other."""

import pytest

from outdraft import LLM, SamplingParams
from outdraft.testing.token_distribution import judge_tokens

PROMPTS = [
    "It was late when the old man came back to the house,",
    "    def __init__(self, name):\n        self.name = name\n",
    "The quick brown fox.\n\nCopy:\n\nThe quick",
    "She had never been so unhap",  # ends inside a word
    "naïve café — 漢字 🙂 ",  # what neither vocabulary has whole
]
DRAFTERS = ("universal", "vocab_map")


@pytest.fixture(scope="module")
def plain():
    return LLM("zoo:target", drafter="none")


@pytest.fixture(scope="module", params=DRAFTERS)
def draft(request, plain):
    def build(verifier="auto"):
        options = {"model": "zoo:foreign_draft"}
        return plain.with_drafter({"name": request.param, **options}, verifier=verifier, num_speculative_tokens=4)

    return build


def test_the_two_tokenizers_are_of_different_families(plain):
    """Hardly any id means the same, and the same text is cut elsewhere: nothing can be accepted by accident of ids."""
    ours, theirs = plain.codec, LLM("zoo:foreign_draft").codec
    shared = sum(ours.token_bytes(i) == theirs.token_bytes(i) for i in range(1, theirs.vocab_size))
    assert shared < 30 and ours.encode(PROMPTS[0]) != theirs.encode(PROMPTS[0])
    for text in PROMPTS:
        assert b"".join(map(theirs.token_bytes, theirs.encode(text))).decode() == text


def test_greedy_and_seeded_texts_are_plain_decodings(plain, draft):
    for params, least in (
        (SamplingParams(max_tokens=48), 0.25),
        (SamplingParams(max_tokens=48, temperature=0.8, seed=5), 0.15),
    ):
        wanted = plain.generate(PROMPTS, params)
        found = draft().generate(PROMPTS, params)
        assert [one.token_ids for one in found] == [one.token_ids for one in wanted]
        accepted, written = (
            sum(getattr(one.stats, f"num_{what}_tokens") for one in found) for what in ("accepted", "draft")
        )
        assert accepted > least * sum(len(one.token_ids) for one in found), f"{accepted} of {written} drafted"


def test_recipes_find_the_companion(plain):
    for name in ("uag", "tli"):
        llm = plain.with_drafter(f"recipe:{name}")
        assert llm.config["recipe"]["roles"]["draft_model"].endswith("foreign_draft")
        result = llm.generate(PROMPTS[0], SamplingParams(max_tokens=32))
        assert result.stats.num_accepted_tokens >= 5


@pytest.mark.slow
@pytest.mark.parametrize("verifier", ["auto", "outdraft.testing.accept_all:METHOD"])
def test_sampled_distribution(plain, draft, verifier):
    """Of whole texts, token by token; a rule that keeps every guess is found out."""
    params = SamplingParams(max_tokens=40, temperature=1.0)
    engine = draft(verifier)
    judged = judge_tokens(plain, [one for _ in range(12) for one in engine.generate(PROMPTS, params)], params)
    assert judged.num_tokens > 200 and (verifier != "auto" or judged.forbidden == 0)
    assert (judged.p_value > 1e-3) == (verifier == "auto"), judged
