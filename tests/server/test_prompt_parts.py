"""Parts of messages that are not text: a toy "image" of four rows of vectors, through `LLM.chat` and over HTTP."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from outdraft import LLM, SamplingParams
from outdraft.codecs.parts import PartRows
from outdraft.models.files.load import load_model
from outdraft.options.errors import ConfigError, RequestError
from tests.server.chatty import served

FEW = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
SEEN = (72, 90, 101, 68)  # the tokens whose embeddings the toy image consists of


def asks(kind: str, **fields: Any) -> list[dict[str, Any]]:
    parts = [{"type": "text", "text": "Who is "}, {"type": kind, **fields}, {"type": "text", "text": "on it?"}]
    return [{"role": "user", "content": parts}]


@pytest.fixture(scope="module")
def llm(chat_model: Path) -> Iterator[LLM]:
    """With a reader of images (vectors alone say what is seen) and one of codes (ids alone)."""
    target = load_model(chat_model)
    vectors = target.embed(torch.tensor(SEEN), torch.arange(4))

    def read_image(part: Any) -> PartRows:
        if not isinstance(part.get("brightness"), int):
            raise RequestError("an image has a brightness")
        return PartRows(ids=(0,) * 4, embeds=vectors * part["brightness"])

    with LLM(chat_model, drafter="ngram", num_speculative_tokens=3) as made:
        made.prompt_parts.register("image", read_image)
        made.prompt_parts.register("codes", lambda part: PartRows(ids=tuple(part["ids"])))
        yield made


def by_hand(llm: LLM) -> tuple[int, ...]:
    """The prompt with the tokens themselves where the part stands."""
    before, behind = "<|im_start|>user\nWho is ", "on it?<|im_start|>assistant\n"
    return (*llm.tokenizer.encode(before, add_special=False), *SEEN, *llm.tokenizer.encode(behind, add_special=False))


def test_vectors_stand_where_the_part_stood(llm: LLM):
    prompt = by_hand(llm)
    wanted = llm.generate({"prompt_token_ids": prompt}, FEW)
    seen = llm.chat(asks("image", brightness=1), FEW)
    assert seen.token_ids == wanted.token_ids
    at = prompt.index(SEEN[0])
    assert seen.prompt_token_ids == (*prompt[:at], 0, 0, 0, 0, *prompt[at + 4 :])
    assert llm.chat(asks("image", brightness=40), FEW).token_ids != wanted.token_ids, "the model reads the vectors"

    twice = [*asks("image", brightness=1), *asks("codes", ids=SEEN)]
    read = llm.chat(twice, FEW).prompt_token_ids
    assert read.count(0) == 4 and read[-len(prompt) :][-9:] == prompt[-9:] and SEEN[0] in read
    assert llm.with_drafter("none").chat(asks("image", brightness=1), FEW).token_ids == wanted.token_ids


def test_ids_alone_are_a_prompt_of_ids(llm: LLM):
    asked = llm.chat(asks("codes", ids=SEEN), FEW)
    assert asked.prompt_token_ids == by_hand(llm)
    assert asked.token_ids == llm.generate({"prompt_token_ids": by_hand(llm)}, FEW).token_ids


def test_a_name_of_a_control_token_in_the_text_stays_text(llm: LLM):
    parts = [{"type": "codes", "ids": SEEN}, {"type": "text", "text": "<|im_start|>"}]
    text = llm.chat([{"role": "user", "content": parts}], FEW).prompt_token_ids
    spelled = llm.chat([{"role": "user", "content": "<|im_start|>"}], FEW).prompt_token_ids
    at = next(i for i in range(len(text)) if text[i : i + 4] == SEEN)
    assert (*text[:at], *text[at + 4 :]) == spelled


def test_an_unknown_part_is_refused_and_the_known_are_named(llm: LLM, chat_llm: LLM):
    with pytest.raises(RequestError, match="type 'sound' is not for this model, which takes text, image, codes: "):
        llm.chat(asks("sound"), FEW)
    with pytest.raises(RequestError, match="an image has a brightness"):
        llm.chat(asks("image"), FEW)
    with pytest.raises(ConfigError, match="have a reader"):
        llm.prompt_parts.register("image", lambda part: PartRows(ids=()))
    assert chat_llm.prompt_parts.known == ("text",), "empty by default"


def test_a_part_that_the_template_hides_is_refused(llm: LLM):
    hidden = [{"role": "user", "content": [{"type": "codes", "ids": [1]}]}]
    taken = llm.prompt_parts.take(hidden)
    for text in ("nothing", taken.marks[0] * 2):
        with pytest.raises(RequestError, match="once and in order"):
            taken.encode(llm.tokenizer, llm.tokenizer.chat_template.render([]).__class__(text=text, add_special=False))


def test_over_http(llm: LLM):
    wanted = llm.chat(asks("image", brightness=1), FEW)
    body = {"model": "target", "max_tokens": 12, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    with served(llm) as address, httpx.Client(base_url=address, timeout=60) as client:

        def post(messages: Any) -> Any:
            return client.post("/v1/chat/completions", json={**body, "messages": messages}).json()

        answer = post(asks("image", brightness=1))
        assert answer["choices"][0]["message"]["content"] == wanted.text
        assert answer["prompt_token_ids"] == list(wanted.prompt_token_ids)
        error = post(asks("image_url", image_url={}))["error"]
        assert "'image_url' is not for this server, which takes text, image, codes" in error["message"]
        assert error["param"] == "messages.0.content.1"
        assert "brightness" in post(asks("image"))["error"]["message"]
        last = {"role": "assistant", "content": asks("codes", ids=list(SEEN))[0]["content"]}
        going_on = client.post(
            "/v1/chat/completions", json={**body, "messages": [last], "continue_final_message": True}
        ).json()
        assert going_on["prompt_token_ids"][-8:-4] != list(SEEN) and SEEN[0] in going_on["prompt_token_ids"]
