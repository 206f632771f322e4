"""Long texts: read one after another, refused unread where they cannot fit; bodies are limited all together."""

import asyncio
import threading
from collections.abc import Iterator
from time import monotonic
from typing import Any

import httpx
import pytest
from serving import opened, serving

from outdraft import LLM
from outdraft.server.doors import body_limit
from outdraft.server.reading import LongTexts

http = httpx.Client(timeout=60)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", {"prompt": "word " * 400_000}, "prompt"),
        ("/v1/completions", {"prompt": ["a", "word " * 400_000]}, "prompt"),
        (
            "/v1/completions",
            {"prompt": "a", "negative_prompt": "word " * 400_000, "guidance_scale": 2},
            "negative_prompt",
        ),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "word " * 400_000}]}, "messages"),
        ("/v1/responses", {"input": "word " * 400_000}, "input"),
    ],
)
def test_a_text_that_cannot_fit_is_refused_unread(
    client: httpx.Client, llm: LLM, path: str, body: dict[str, Any], param: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec, read = llm.get_tokenizer(), list[int]()
    encode = codec.encode
    monkeypatch.setattr(codec, "encode", lambda text, **more: (read.append(len(text)), encode(text, **more))[1])
    error = client.post(path, json=body).json()["error"]
    assert "tokens at least" in error["message"] and "shorten" in error["message"]
    assert max(read, default=0) < 1000
    assert (error["code"], error["param"]) == ("context_length_exceeded", param)


LONG = "word " * 3000


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", {"prompt": LONG}, "prompt"),
        ("/v1/completions", {"prompt": "a", "negative_prompt": LONG, "guidance_scale": 2}, "negative_prompt"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": LONG}]}, "messages"),
        ("/v1/responses", {"input": LONG, "stream": True}, "input"),
        ("/inference/v1/generate", {"token_ids": [5] * 5000}, "token_ids"),
    ],
)
def test_one_that_was_read_and_does_not_fit_is_refused_alike(
    client: httpx.Client, path: str, body: dict[str, Any], param: str
) -> None:
    reply = client.post(path, json=body)
    error = reply.json()["error"]
    assert reply.status_code == 400 and "the context holds" in error["message"] and "shorten" in error["message"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", param)


def test_long_texts_are_read_one_after_another() -> None:
    """Each of them by the same thread; short ones beside them."""
    at_once, most, seen, goes_on = [0], [0], set[int](), threading.Event()

    def read(is_long: bool) -> None:
        if not is_long:
            goes_on.set()
            return
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        seen.add(threading.get_ident())
        assert goes_on.wait(30), "a short one does not wait for them"
        at_once[0] -= 1

    async def ask() -> None:
        reading = LongTexts(1024)
        await asyncio.gather(*(reading.read(1 << 20, read, True) for _ in range(5)), reading.read(100, read, False))

    asyncio.run(ask())
    assert most == [1] and len(seen) == 1


@pytest.fixture
def small(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(body_limit, "_BODIES", 3)
    with serving(llm, max_body_bytes=4096, body_timeout=60) as (address, _):
        yield address


def test_all_bodies_together_are_limited(small: str) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 4000\r\n\r\n"
    held = [opened(small, head + b" " * 3900) for _ in range(3)]
    body = b'{"prompt": "a", "max_tokens": 1}' + b" " * 2000
    headers = {"Content-Type": "application/json"}

    def status() -> int:
        return http.post(f"{small}/v1/completions", content=body, headers=headers).status_code

    reply, end = http.post(f"{small}/v1/completions", content=body, headers=headers), monotonic() + 60
    while reply.status_code == 200:  # until the three have come
        assert monotonic() < end, "there is no limit"
        reply = http.post(f"{small}/v1/completions", content=body, headers=headers)
    assert reply.status_code == 503 and reply.headers["retry-after"] and reply.json()["error"]["code"] == "overloaded"
    for one in held:
        one.close()
    while (found := status()) != 200:
        assert found == 503 and monotonic() < end
