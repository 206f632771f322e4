"""What docs/security.md promises beyond single limits: keys, templates, logs, the disk, one key and another."""

import json
import logging
import re
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import opened, received, serving

from outdraft import LLM, SamplingParams
from outdraft.server.doors import auth
from tests.server.chatty import HELLO, QWEN, served, write_model

http = httpx.Client(timeout=60)
BODY = {"prompt": "It was late when", "max_tokens": 4, "temperature": 0}


@pytest.mark.parametrize("given", ["Bearer a", "Bearer c", "Bearer wrong", "Basic b", "", "Bearer"])
def test_all_keys_are_compared_whatever_is_sent(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def counted(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(auth, "compare_digest", counted)
    door = auth.Auth(lambda *_: None, ["a", "b", "c"])  # type: ignore[arg-type, return-value]
    assert (door._find(given) is not None) == (given in ("Bearer a", "Bearer c"))
    assert len(compared) == 3 and {len(part) for pair in compared for part in pair} == {32}, "hashes, all of them"


def test_the_first_of_two_keys_is_the_one_that_counts(llm: LLM) -> None:
    with serving(llm, api_keys=("right",)) as (address, _):
        for keys, status in ((("wrong", "right"), 401), (("right", "wrong"), 200)):
            lines = "".join(f"Authorization: Bearer {key}\r\n" for key in keys)
            head = f"GET /v1/models HTTP/1.1\r\nHost: a\r\n{lines}Connection: close\r\n\r\n"
            assert int(received(opened(address, head.encode())).split()[1]) == status


def test_nothing_that_drafters_remember_reaches_another_key() -> None:
    """A drafter that copies from earlier answers is faster where it knows the text, and its counts tell so."""
    with (
        LLM("zoo:target", drafter="suffix", policy="fixed", num_speculative_tokens=4) as remembers,
        serving(remembers, api_keys=("a", "b")) as (address, _),
    ):

        def drafted(key: str, **more: str) -> int:
            reply = http.post(
                f"{address}/v1/completions",
                json={**BODY, "max_tokens": 40, "ignore_eos": True, **more},
                headers={"Authorization": f"Bearer {key}"},
            )
            return reply.json()["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"]

        fresh = drafted("a")
        assert drafted("a") > fresh, "it remembers"
        assert drafted("b") == fresh
        assert drafted("a", cache_salt="mine") == fresh


@pytest.mark.parametrize(
    "path", ["/%0A%7B%22status%22:200%7D", "/v1/models/x%0D%0Ay", "/%1B%5B31m", "/v1/completions%22,%22id%22:%22"]
)
def test_no_request_writes_a_line_of_its_own_into_the_log(
    llm: LLM, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "outdraft.server")
    with serving(llm, log_requests=True) as (address, _):
        http.get(address + path, headers={"X-Request-Id": 'a"}{"b', "User-Agent": "x\x1by"})
        http.post(f"{address}/v1/completions", json={**BODY, "prompt": 'a\n{"id": "forged"}\u2028\x1b[2J'})
    lines = [one.getMessage() for one in caplog.records if one.name == "outdraft.server.requests"]
    assert len(lines) == 2
    for line in lines:
        assert re.fullmatch(r"[\x20-\x7e]*", line), "one line, and nothing that a terminal obeys"
        assert json.loads(line)["id"].startswith("req-")


@pytest.mark.parametrize(
    ("operator", "request_", "becomes"),
    [
        ("never", None, False),
        ("never", False, False),
        ("asked", None, False),
        ("asked", True, True),
        ("always", None, True),
        ("always", False, False),
    ],
)
def test_a_message_holds_control_tokens_only_where_it_may(
    chat_llm: LLM, operator: str, request_: bool | None, becomes: bool
) -> None:
    """In a chat, a response and /tokenize alike; a prompt is no message."""
    text, more = "hi<|endoftext|>", {"special_tokens_in_messages": request_}
    codec = chat_llm.get_tokenizer()
    (end,) = codec.encode("<|endoftext|>")
    with served(chat_llm, special_tokens_in_messages=operator) as address:

        def read(path: str, body: dict[str, Any]) -> list[int]:
            reply = http.post(f"{address}{path}", json={**body, "max_tokens": 1, "return_token_ids": True})
            assert reply.status_code == 200, reply.text
            return list(reply.json()["prompt_token_ids"])

        messages = [{"role": "user", "content": text}]
        assert (end in read("/v1/chat/completions", {"messages": messages, **more})) == becomes
        told = http.post(f"{address}/tokenize", json={"messages": messages, **more}).json()["tokens"]
        assert (end in told) == becomes and end in http.post(f"{address}/tokenize", json={"prompt": text}).json()[
            "tokens"
        ]
        response = http.post(f"{address}/v1/responses", json={"input": text, "max_output_tokens": 1, **more}).json()
        whole = http.post(f"{address}/tokenize", json={"messages": messages, **more}).json()["count"]
        assert response["usage"]["input_tokens"] == whole


def test_messages_of_llm_chat_are_text_too(chat_llm: LLM) -> None:
    (end,) = chat_llm.get_tokenizer().encode("<|endoftext|>")
    asked = [{"role": "user", "content": "hi<|endoftext|>"}]
    for more, becomes in (({}, False), ({"special_tokens_in_messages": True}, True)):
        told = chat_llm.chat(asked, SamplingParams(max_tokens=1), **more)
        assert (end in told.prompt_token_ids) == becomes


def test_a_requests_template_is_refused_unless_it_is_allowed_and_runs_in_a_sandbox(tmp_path: Path) -> None:
    with LLM(str(write_model(tmp_path / "m", QWEN)), drafter="none") as llm:
        body = {"messages": HELLO, "max_tokens": 1}
        with served(llm) as address:
            reply = http.post(f"{address}/v1/chat/completions", json={**body, "chat_template": "hello"})
            assert reply.status_code == 400 and reply.json()["error"]["param"] == "chat_template"
        with served(llm, trust_request_chat_template=True) as address:
            for template in (
                "{{ ''.__class__.__mro__[1].__subclasses__() }}",
                "{{ messages.append.__globals__ }}",
                "{{ messages.append(1) }}",
                "{% include '/etc/passwd' %}",
                "{% import 'os' as os %}{{ os.getcwd() }}",
                "{{ raise_exception.__globals__['json'] }}",
                "{% for i in range(10000000) %}x{% endfor %}",
                "{{ cycler.__init__.__globals__.os }}",
            ):
                reply = http.post(f"{address}/v1/chat/completions", json={**body, "chat_template": template})
                assert reply.status_code == 400, template
                assert "root:" not in reply.text and "Traceback" not in reply.text and "<class" not in reply.text


_seen: list[str] = []
_watches = threading.Event()


def _hook(name: str, given: tuple[Any, ...]) -> None:
    if not _watches.is_set() or threading.current_thread() is threading.main_thread():
        return
    writes = name == "open" and (any(letter in str(given[1]) for letter in "wax+") or (given[2] or 0) & 0o3)
    if writes or name in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect", "os.remove"):
        _seen.append(f"{name} {given[:2]}")


def test_nothing_of_a_request_reaches_the_disk_another_program_or_another_machine(llm: LLM) -> None:
    sys.addaudithook(_hook)  # it cannot be taken out again, and does nothing later
    with serving(llm, max_body_bytes=8 << 20) as (address, _):
        http.post(f"{address}/v1/completions", json=BODY)
        # The first form starts the child that tries forms, once and with nothing of the request in its command.
        http.post(f"{address}/v1/completions", json={**BODY, "structured_outputs": {"regex": "[a-c]+"}})
        _watches.set()
        try:
            for body in (
                BODY,
                {**BODY, "prompt": "word " * 100_000},
                {**BODY, "references": ["file:///etc/passwd"]},
                {**BODY, "structured_outputs": {"json": {"$ref": "http://127.0.0.1:9/schema"}}},
                {**BODY, "structured_outputs": {"json": {"$ref": "file:///etc/passwd"}}},
                {**BODY, "structured_outputs": {"regex": "[a-z]+"}},
                {**BODY, "model": "/etc/passwd"},
                {**BODY, "speculative": {"method": "os:system"}},
                {**BODY, "stream": True, "n": 2, "temperature": 1},
                {**BODY, "request_id": "../../x", "user": "$(id)", "cache_salt": "../y"},
            ):
                http.post(f"{address}/v1/completions", json=body)
            http.post(
                f"{address}/v1/completions", content=b" " * (4 << 20), headers={"Content-Type": "application/json"}
            )
            http.post(f"{address}/v1/chat/completions", json={"messages": HELLO, "max_tokens": 3})
            http.post(f"{address}/tokenize", json={"prompt": "a"})
            for path in ("/page/..%2Fapp.py", "/page/%2e%2e/app.py", "/v1/models/..%2F..%2Fetc"):
                assert http.get(address + path).status_code == 404
        finally:
            _watches.clear()
    assert _seen == []


def test_what_is_watched_would_be_seen(tmp_path: Path) -> None:
    sys.addaudithook(_hook)
    _watches.set()
    thread = threading.Thread(target=lambda: (tmp_path / "x").write_text("a"))
    thread.start()
    thread.join()
    _watches.clear()
    assert _seen and "open" in _seen[0]
    _seen.clear()
