"""Log probabilities of drafted tokens: accepted, recovered and bonus ones have the records of plain decoding."""

import pytest

from outdraft import LLM, SamplingParams
from outdraft.core.events import Source
from outdraft.options.errors import ConfigError, RequestError

MODES = ["raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits"]
IDS = [5, 90, 300, 17, 5, 90, 300, 17, 5, 90]
PROMPTS = [{"prompt_token_ids": IDS}, {"prompt_token_ids": [7, 8, 9]}]
SETTINGS = {
    "greedy": SamplingParams(max_tokens=32, logprobs=3, ignore_eos=True),
    "seeded": SamplingParams(
        max_tokens=32,
        logprobs=3,
        ignore_eos=True,
        temperature=0.7,
        seed=4,
        top_k=30,
        top_p=0.95,
        repetition_penalty=1.05,
    ),
}
KINDS = {"native": {}, "exact": {"dtype": "float32"}}


@pytest.fixture(scope="module", params=KINDS)
def plain(request) -> LLM:
    return LLM("zoo:target", drafter="none", **KINDS[request.param])


@pytest.mark.parametrize("name", SETTINGS)
def test_every_source_has_the_bits_of_plain_decoding(plain, name):
    """Each mode with one of two drafters, in turn; greedy and seeded texts the other way round."""
    drafting = [
        plain.with_speculation(drafter=drafter, num_speculative_tokens=3)
        for drafter in ("draft_model", {"name": "ngram", "width": 3})
    ]
    sources = [set(), set()]
    for i, mode in enumerate(MODES if plain.config["kernels"] != "pytorch" else MODES[::3]):
        turn = (i + (name == "seeded")) % 2
        wanted = [plain.generate(prompt, SETTINGS[name], logprobs_mode=mode) for prompt in PROMPTS]
        made = drafting[turn].generate(PROMPTS, SETTINGS[name], logprobs_mode=mode)
        for one, ours in zip(wanted, made, strict=True):
            assert one.token_ids == ours.token_ids and one.logprobs == ours.logprobs, mode
            assert [record.token for record in ours.logprobs] == list(ours.token_ids)
            assert name == "seeded" or all(record.warped == 0.0 for record in ours.logprobs), "one-hot"
            sources[turn] |= set(ours.sources)
    assert all({Source.ACCEPTED, Source.RECOVERED, Source.BONUS} <= one for one in sources)


def test_without_a_seed_they_are_the_targets_and_not_the_residuals(plain):
    """Each record is that of a request which has all tokens before it as its prompt."""
    drafting = plain.with_drafter("draft_model", num_speculative_tokens=3)
    asked = SamplingParams(max_tokens=40, logprobs=0, temperature=1.0, top_k=40, ignore_eos=True)
    result = drafting.generate(PROMPTS[0], asked)
    assert {Source.ACCEPTED, Source.RECOVERED} <= set(result.sources)
    one = SamplingParams(max_tokens=1, logprobs=10**5, temperature=1.0, top_k=40)
    for i, record in enumerate(result.logprobs):
        (whole,) = plain.generate({"prompt_token_ids": [*IDS, *result.token_ids[:i]]}, one).logprobs
        assert record.raw == pytest.approx(dict(whole.top_raw)[record.token], abs=1e-4)
        assert record.warped == pytest.approx(dict(whole.top_warped)[record.token], abs=1e-4)


def test_the_mode_is_the_engines_or_the_calls():
    asked = SamplingParams(max_tokens=4, logprobs=1, prompt_logprobs=1, temperature=0.5, seed=1)
    for mode in MODES:
        llm = LLM("zoo:target", drafter="none", logprobs_mode=mode)
        for other in (llm, llm.with_drafter("ngram")):
            made = other.generate(PROMPTS[1], asked)
            values = [(one.logprob, one.raw, one.warped) for one in made.logprobs]
            shown = {"raw_logprobs": 1, "processed_logprobs": 2}.get(mode)
            assert all((value[0] == value[shown]) if shown else value[0] not in value[1:] for value in values)
            prompt = made.prompt_logprobs[1]
            assert (prompt.logprob == prompt.raw) == mode.endswith("logprobs")
            again = other.generate(PROMPTS[1], asked, logprobs_mode="raw_logprobs").logprobs
            assert all(one.logprob == one.raw and one.top == one.top_raw for one in again)


def test_other_names_are_refused(plain):
    with pytest.raises(ConfigError, match=r"logprobs_mode='raw' must be one of 'raw_logprobs', 'processed_logprobs'"):
        LLM("zoo:target", logprobs_mode="raw")
    with pytest.raises(RequestError, match=r"logprobs_mode='cooked' must be one of 'raw_logprobs'"):
        plain.generate(PROMPTS[1], logprobs_mode="cooked")
