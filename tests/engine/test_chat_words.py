"""`LLM.chat`: the prompt that the chat template writes, and what stands beside the messages."""

import re
from pathlib import Path

import pytest

from outdraft import LLM, SamplingParams
from outdraft.options.errors import RequestError


@pytest.fixture(scope="module")
def llm(model_dir: Path) -> LLM:
    return LLM(model_dir, dtype="float32")


def test_chat_is_generate_over_the_template(llm: LLM):
    talk = [{"role": "user", "content": "hello"}]
    params = SamplingParams(max_tokens=8, stop=("q",))
    codec = llm.get_tokenizer()
    ids = codec.apply_chat_template(talk)
    expected = llm.generate({"prompt_token_ids": ids}, SamplingParams(max_tokens=8, stop=("q", "\nUser:")))
    assert llm.chat(talk, params).token_ids == expected.token_ids
    assert [one.token_ids for one in llm.chat([talk, talk], sampling_params=params)] == [expected.token_ids] * 2
    assert codec.apply_chat_template(talk, tokenize=False) == "User: hello\nAssistant:"
    for words, says in (
        ({"tools": [{}]}, "tools= is for a chat template"),
        ({"tools": "abc"}, "tools='abc' must be"),
        ({"chat_template_kwargs": {"tools": [{}]}}, "chat_template_kwargs holds tools"),
        ({"chat_template_kwargs": "x"}, "chat_template_kwargs='x' must be"),
        ({"chat_template_kwargs": {1: 2}}, "chat_template_kwargs={1: 2} must be"),
        ({"chat_template_kwargs": {"control": 5}}, "control= is for a chat template"),
        ({"special_tokens_in_messages": "no"}, "special_tokens_in_messages='no' must be true or false"),
        ({"add_generation_prompt": "no"}, "add_generation_prompt='no' must be true or false"),
    ):
        with pytest.raises(RequestError, match=re.escape(says)):
            llm.chat(talk, **words)
    with pytest.raises(RequestError, match="messages is the conversation itself"):
        llm.chat(talk, chat_template_kwargs={"messages": []})
    with pytest.raises(RequestError, match="conversation is empty"):
        llm.chat([])
    with pytest.raises(RequestError, match="must be a list of tables"):
        llm.chat("hello")


def test_an_answer_ends_where_the_transcript_goes_on(llm: LLM, monkeypatch: pytest.MonkeyPatch):
    asked: list[SamplingParams] = []

    def record(self: LLM, prompts: list, params: list[SamplingParams], **words: object) -> list:
        asked.extend(params)
        return []

    monkeypatch.setattr(LLM, "generate", record)
    llm.chat([[{"role": "user", "content": "hello"}]], SamplingParams(stop=("q",)))
    assert [one.stop for one in asked] == [("q", "\nUser:")]
