"""The official client, unmodified: what it gets is what the engine writes for the same request."""

import openai
import pytest
from serving import serving

from outdraft import LLM, SamplingParams

PROMPT = "It was late when"


@pytest.fixture
def official(address: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)


def test_completion(official: openai.OpenAI, llm: LLM) -> None:
    reply = official.completions.create(model="target", prompt=PROMPT, max_tokens=12, temperature=0)
    plain = llm.generate(PROMPT, SamplingParams(max_tokens=12), num_speculative_tokens=0)
    assert reply.choices[0].text == plain.text
    assert reply.choices[0].finish_reason == "length"
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (len(plain.prompt_token_ids), 12)


def test_streamed_pieces_join_to_the_same_text(official: openai.OpenAI, llm: LLM) -> None:
    pieces = list(
        official.completions.create(
            model="target", prompt=PROMPT, max_tokens=20, seed=7, stream=True, stream_options={"include_usage": True}
        )
    )
    plain = llm.generate(PROMPT, SamplingParams(max_tokens=20, seed=7, temperature=1.0), num_speculative_tokens=0)
    assert "".join(piece.choices[0].text for piece in pieces if piece.choices) == plain.text
    assert [piece.usage is None for piece in pieces] == [True] * (len(pieces) - 1) + [False]
    assert pieces[-1].choices == []
    assert pieces[-1].usage is not None and pieces[-1].usage.completion_tokens == len(plain.token_ids)


def test_several_prompts_and_texts_keep_their_places(official: openai.OpenAI, llm: LLM) -> None:
    prompts = [PROMPT, "The house"]
    reply = official.completions.create(model="target", prompt=prompts, max_tokens=6, n=2, seed=3)
    plain = llm.generate(prompts, SamplingParams(max_tokens=6, n=2, seed=3, temperature=1.0), num_speculative_tokens=0)
    assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in reply.choices] == [text.text for one in plain for text in one.outputs]


def test_chat_with_log_probabilities(official: openai.OpenAI, llm: LLM) -> None:
    messages = [{"role": "user", "content": "How are you?"}]
    reply = official.chat.completions.create(
        model="target", messages=messages, max_tokens=8, seed=5, logprobs=True, top_logprobs=2
    )
    plain = llm.chat(
        messages, SamplingParams(max_tokens=8, seed=5, temperature=1.0, logprobs=2), num_speculative_tokens=0
    )
    choice = reply.choices[0]
    assert choice.message.content == plain.text
    assert choice.logprobs is not None and choice.logprobs.content is not None and plain.logprobs is not None
    assert [one.logprob for one in choice.logprobs.content] == [one.logprob for one in plain.logprobs]
    assert [len(one.top_logprobs) for one in choice.logprobs.content] == [2] * 8
    assert b"".join(bytes(one.bytes or ()) for one in choice.logprobs.content).decode() == plain.text


def test_an_unknown_field_is_refused_by_name(official: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="did you mean 'temperature'") as caught:
        official.completions.create(model="target", prompt=PROMPT, extra_body={"temprature": 0})
    assert caught.value.param == "temprature"


def test_an_unknown_model_is_not_found(official: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="not served here; served: target"):
        official.completions.create(model="gpt", prompt=PROMPT)


def test_a_model_whose_name_has_a_slash_is_retrieved(llm: LLM) -> None:
    """As names of Hugging Face and paths have."""
    with serving(llm, served_model_name=("someone/model",)) as (address, _):
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        assert client.models.retrieve("someone/model").id == "someone/model"
        with pytest.raises(openai.NotFoundError, match="'model' is not served here"):
            client.models.retrieve("model")
