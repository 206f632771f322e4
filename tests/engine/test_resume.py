"""A text that was cut off goes on in another engine, behind the tokens that were written: the same text."""

from itertools import pairwise

import pytest

from outdraft import LLM, SamplingParams
from outdraft.options.errors import RequestError

PROMPT = "It was late in the evening when the letter came. She opened it and"
SETTINGS = {
    "greedy": SamplingParams(max_tokens=24),
    "seeded": SamplingParams(max_tokens=24, temperature=0.9, seed=5),
    "penalties": SamplingParams(
        max_tokens=24, temperature=0.8, seed=3, repetition_penalty=1.3, presence_penalty=0.7, frequency_penalty=0.4
    ),
    "at least": SamplingParams(max_tokens=24, min_tokens=20, temperature=1.0, seed=11),
    "prefix": SamplingParams(
        max_tokens=24, forced_prefix=" nothing at all was said of the money", temperature=1.0, seed=1
    ),
    "guided": SamplingParams(max_tokens=16, guidance_scale=1.5, temperature=0.7, seed=2),
}


@pytest.fixture(scope="module")
def first():
    with LLM("zoo:target", drafter="none") as llm:
        yield llm


@pytest.fixture(scope="module", params=["none", "suffix", "eagle"])
def second(request):
    with LLM("zoo:target", drafter=request.param, num_speculative_tokens=4) as llm:
        yield llm


@pytest.mark.parametrize("name", SETTINGS)
def test_the_text_is_the_one_without_the_cut(first, second, name):
    whole = first.generate(PROMPT, SETTINGS[name])
    for cut in (1, len(whole.token_ids) - 3):
        resumed = second.generate(PROMPT, SETTINGS[name], resume_token_ids=[list(whole.token_ids[:cut])])
        assert (resumed.token_ids, resumed.text) == (whole.token_ids, whole.text), cut
        assert resumed.finish_reason == whole.finish_reason
        assert [*resumed.sources].count("resumed") == cut
        assert resumed.prompt_token_ids == whole.prompt_token_ids


def test_a_stop_string_that_the_cut_runs_through(first, second):
    whole = first.generate(PROMPT, SamplingParams(max_tokens=24))
    start = len(whole.text) // 2
    params = SamplingParams(max_tokens=24, stop=[whole.text[start : start + 9]])
    stopped = first.generate(PROMPT, params)
    assert stopped.stop_reason == params.stop[0]
    for cut in range(1, len(stopped.token_ids)):
        resumed = second.generate(PROMPT, params, resume_token_ids=[stopped.token_ids[:cut]])
        assert (resumed.text, resumed.stop_reason) == (stopped.text, stopped.stop_reason)


def test_a_stream_goes_on_where_it_was(first, second):
    """What was written is the first piece, whatever it holds back; the others are the rest."""
    params = SamplingParams(max_tokens=24, temperature=1.0, seed=8, stop=["zzzz"])
    chunks = list(first.stream(PROMPT, params))
    for cut in (1, 9):
        ids = [token for chunk in chunks[:cut] for token in chunk.token_ids]
        resumed = list(second.stream(PROMPT, params, resume_token_ids=[ids]))
        assert list(resumed[0].token_ids) == ids
        assert resumed[0].text == "".join(chunk.text for chunk in chunks[:cut])
        assert "".join(chunk.text for chunk in resumed) == "".join(chunk.text for chunk in chunks)


def test_a_stream_that_goes_on_tells_the_prompts_log_probabilities_once(first, second):
    params = SamplingParams(max_tokens=24, prompt_logprobs=1)
    whole = first.generate(PROMPT, params)
    chunks = list(second.stream(PROMPT, params, resume_token_ids=[list(whole.token_ids[:9])]))
    (told,) = [chunk.prompt_logprobs for chunk in chunks if chunk.prompt_logprobs is not None]
    assert [one.token for one in told[1:]] == [one.token for one in whole.prompt_logprobs[1:]]


def test_a_form_goes_on(first, second):
    pytest.importorskip("llguidance")
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
        "required": ["name", "age"],
    }
    params = SamplingParams(max_tokens=60, temperature=0.9, seed=4, structured_outputs={"json": schema})
    whole = first.generate(PROMPT, params)
    for cut in (1, 5, len(whole.token_ids) - 1):
        resumed = second.generate(PROMPT, params, resume_token_ids=[whole.token_ids[:cut]])
        assert resumed.text == whole.text


def test_several_texts_and_prompts_each_go_on(first, second):
    params = SamplingParams(max_tokens=12, temperature=1.0, seed=6, n=2)
    whole = first.generate([PROMPT, "def main("], params)
    texts = [text for one in whole for text in one.outputs]
    cuts = [list(text.token_ids[:cut]) for text, cut in zip(texts, (3, 0, 11, 1), strict=True)]
    resumed = second.generate([PROMPT, "def main("], params, resume_token_ids=cuts)
    assert [text.token_ids for one in resumed for text in one.outputs] == [text.token_ids for text in texts]


def test_neighbouring_cuts_read_the_written_text_in_one_pass(first):
    """It costs no pass for each token: the written text is read as a prompt is."""
    whole = first.generate(PROMPT, SETTINGS["seeded"])
    steps = [
        first.generate(PROMPT, SETTINGS["seeded"], resume_token_ids=[whole.token_ids[:cut]]).stats.num_steps
        for cut in (0, 8, 16)
    ]
    assert [before - after for before, after in pairwise(steps)] == [8, 8]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([[1], [2]], "resume_token_ids has 2 lists, and 1 texts are asked for"),
        ([1, 2], "must be a list, each a list"),
        ([[True]], "must be a list, each a list"),
        ([[10**6]], "outside the vocabulary"),
        ([[5] * 24], "ends the text with token 24 of 24"),
    ],
)
def test_what_cannot_go_on_is_refused_by_name(first, given, says):
    with pytest.raises(RequestError, match="resume_token_ids") as caught:
        first.generate(PROMPT, SETTINGS["greedy"], resume_token_ids=given)
    assert says in str(caught.value)
