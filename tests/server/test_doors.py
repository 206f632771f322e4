"""Keys, sizes, times, rates and origins: what is refused before an endpoint is reached, and in which words."""

import json
from collections.abc import Iterator

import httpx
import pytest
from serving import opened, received, serving

from outdraft import LLM
from outdraft.server.doors.rate_limit import RateLimit

http = httpx.Client(timeout=60)
BODY = {"prompt": "It was late when", "max_tokens": 2}


@pytest.fixture(scope="module")
def guarded(llm: LLM) -> Iterator[str]:
    with serving(
        llm,
        api_keys=("first-key", "schlüssel"),
        max_body_bytes=2048,
        body_timeout=0.3,
        allow_origins=("https://example.org",),
    ) as (address, _):
        yield address


@pytest.mark.parametrize(
    "given",
    [
        None,
        "Bearer",
        "Bearer wrong",
        "Bearer first-ke",
        "Bearer first-key2",
        "Basic first-key",
        "first-key",
        "Bearer first-key,schlüssel",
        "Bearer FIRST-KEY",
        "bearer: first-key",
    ],
)
@pytest.mark.parametrize(
    "path", ["/v1/completions", "/inference/v1/generate", "/tokenize", "/v1/models", "/load", "/v1/"]
)
def test_a_wrong_key_opens_nothing(guarded: str, path: str, given: str | None) -> None:
    headers = {} if given is None else {b"Authorization": given.encode()}
    reply = http.post(guarded + path, json=BODY, headers=headers)
    error = reply.json()["error"]
    assert reply.status_code == 401 and reply.headers["www-authenticate"] == "Bearer"
    assert error["type"] == "authentication_error" and error["code"] == "invalid_api_key"
    assert "Authorization: Bearer KEY" in error["message"] and "first" not in reply.text


@pytest.mark.parametrize("given", ["Bearer first-key", "bearer first-key", "Bearer schlüssel"])
def test_every_key_is_compared(guarded: str, given: str) -> None:
    assert http.post(f"{guarded}/v1/completions", json=BODY, headers={b"Authorization": given.encode()}).is_success


@pytest.mark.parametrize("path", ["/live", "/ready", "/health", "/metrics"])
def test_health_needs_no_key(guarded: str, path: str) -> None:
    assert http.get(guarded + path).is_success


@pytest.mark.parametrize(
    "path",
    [
        "//v1/completions",
        "/V1/completions",
        "/./v1/completions",
        "/x/../v1/completions",
        "/%76%31/completions",
        "/v1/completions/",
        "/v1%2Fcompletions",
        "/v1/completions%00",
        "/;/v1/completions",
        "/v1\\completions",
        "/health/../v1/completions",
        "/v1/completions?api_key=first-key",
        "http://other/v1/completions",
    ],
)
def test_no_spelling_of_a_path_goes_round_the_door(guarded: str, path: str) -> None:
    data = json.dumps(BODY).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    answer = received(opened(guarded, head.encode() + b"Connection: close\r\n\r\n" + data))
    assert int(answer.split()[1]) in (400, 401, 404), answer
    assert b'"choices"' not in answer


def test_a_body_that_says_it_is_too_large_is_not_read(guarded: str) -> None:
    head = (
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer first-key\r\nContent-Length: 99999\r\n\r\n"
    )
    connection = opened(guarded, head)
    answer = received(connection)
    assert b" 413 " in answer and b"larger than the 2048 bytes" in answer


def test_a_body_that_grows_too_large_is_refused(guarded: str) -> None:
    reply = http.post(
        f"{guarded}/v1/completions",
        content=iter([b"x" * 1000] * 4),
        headers={"Authorization": "Bearer first-key", "Content-Type": "application/json"},
    )
    assert reply.status_code == 413 and reply.json()["error"]["code"] == "body_too_large"


def test_a_body_that_never_ends_is_refused(guarded: str) -> None:
    head = (
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer first-key\r\nContent-Type: application/json"
    )
    answer = received(opened(guarded, head + b'\r\nContent-Length: 900\r\n\r\n{"prompt": '))
    assert b" 408 " in answer and b"did not come within 0.3 seconds" in answer


@pytest.mark.parametrize(
    ("content", "kind", "status", "says"),
    [
        (b'{"prompt": "a"', "application/json", 400, "the body is no JSON"),
        (b"[" * 2000, "application/json", 400, "body"),
        (b"", "application/json", 400, "the body is missing"),
        (b"null", "application/json", 400, "body"),
        (b'"a"', "application/json", 400, "body"),
        (b'{"prompt": "a", "max_tokens": ' + b"9" * 1900 + b"}", "application/json", 400, ""),
        (
            b'{"prompt": "a", "temperature": NaN}',
            "application/json",
            400,
            "NaN and Infinity are none), at character 31",
        ),
        (b'{"prompt": "a", "metadata": {"b": -Infinity}}', "application/json", 400, "the body is no JSON"),
        (b'{"prompt": "a", "temperature": 1e999}', "application/json", 400, "a number in it is too large"),
        (b'{"prompt": "a", "metadata": ' + b"[" * 1500, "application/json", 400, "too deeply"),
        (b'{"prompt": "a", "request_id": "\\udfff"}', "application/json", 400, "half a character"),
        (b'{"prompt": "\xff"}', "application/json", 400, "it is not UTF-8"),
        (b'{"prompt": "\\ud800"}', "application/json", 400, "half a character"),
        (b"\xff\xfe", "application/json", 400, "JSON"),
        (b'{"prompt": "a"}', "text/plain", 415, "Content-Type: application/json"),
        (b"prompt=a", "application/x-www-form-urlencoded", 415, "Content-Type: application/json"),
    ],
)
def test_a_body_that_is_none(guarded: str, content: bytes, kind: str, status: int, says: str) -> None:
    reply = http.post(
        f"{guarded}/v1/completions",
        content=content,
        headers={"Authorization": "Bearer first-key", "Content-Type": kind},
    )
    assert (reply.status_code, says in reply.json()["error"]["message"]) == (status, True), reply.text
    assert reply.json()["error"]["message"].strip()


@pytest.mark.parametrize(("coding", "status"), [("gzip", 415), ("br, gzip", 415), ("identity", 200), ("Identity", 200)])
def test_a_compressed_body_is_refused_by_its_coding(guarded: str, coding: str, status: int) -> None:
    headers = {"Authorization": "Bearer first-key", "Content-Encoding": coding}
    reply = http.post(f"{guarded}/v1/completions", json=BODY, headers=headers)
    assert reply.status_code == status, reply.text
    if status == 415:
        assert f"Content-Encoding: {coding} is not read here" in reply.json()["error"]["message"]
        assert reply.headers["accept-encoding"] == "identity"
    assert http.get(f"{guarded}/v1/models", headers=headers).is_success  # there is no body
    two = [("Authorization", "Bearer first-key"), ("Content-Encoding", "identity"), ("Content-Encoding", coding)]
    assert http.post(f"{guarded}/v1/completions", json=BODY, headers=two).status_code == status


def test_origins_that_are_not_named_may_not_ask(guarded: str) -> None:
    def asked(origin: str) -> httpx.Response:
        return http.options(
            f"{guarded}/v1/completions", headers={"Origin": origin, "Access-Control-Request-Method": "POST"}
        )

    assert asked("https://example.org").headers["access-control-allow-origin"] == "https://example.org"
    for other in ("https://example.org.evil.net", "http://example.org", "null"):
        assert "access-control-allow-origin" not in asked(other).headers


def test_the_rate_is_counted_for_each_key(llm: LLM) -> None:
    with serving(llm, api_keys=("a", "b"), rate_limit=2) as (address, _):

        def ask(key: str) -> httpx.Response:
            return http.post(f"{address}/v1/completions", json=BODY, headers={"Authorization": f"Bearer {key}"})

        assert [ask("a").status_code for _ in range(3)] == [200, 200, 429]
        refused = ask("a")
        assert refused.json()["error"]["type"] == "rate_limit_error" and int(refused.headers["retry-after"]) >= 1
        assert ask("b").is_success and http.get(f"{address}/ready").is_success
        assert ask("wrong").status_code == 401


def test_a_bucket_fills_steadily() -> None:
    now = [0.0]
    door = RateLimit(lambda *_: None, 6, clock=lambda: now[0])  # type: ignore[arg-type, return-value]
    assert [door._take("a", 6) for _ in range(7)] == [0] * 6 + [10]
    now[0] = 10.0
    assert [door._take("a", 6) for _ in range(2)] == [0, 10]
    now[0] = 1000.0
    assert [door._take("a", 6) for _ in range(7)] == [0] * 6 + [10]


def test_the_wait_that_is_given_is_long_enough() -> None:
    now = [0.0]
    door = RateLimit(lambda *_: None, 7, clock=lambda: now[0])  # type: ignore[arg-type, return-value]
    waits = [door._take("a", 7) for _ in range(8)]
    assert waits == [0] * 7 + [9]  # 8.57 s
    now[0] = 9.0
    assert door._take("a", 7) == 0


def test_one_keys_texts_are_not_found_by_another(llm: LLM) -> None:
    prompt = list(range(1, 65))
    with (
        LLM("zoo:target", drafter="none", kv_cache="paged", enable_prefix_caching=True) as cached,
        serving(cached, api_keys=("a", "b")) as (address, _),
    ):

        def taken_over(key: str, **more: str) -> int:
            reply = http.post(
                f"{address}/v1/completions",
                json={"prompt": prompt, "max_tokens": 2, **more},
                headers={"Authorization": f"Bearer {key}"},
            )
            return reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

        assert taken_over("a") == 0 < taken_over("a")
        assert taken_over("b") == 0 < taken_over("b")
        assert taken_over("a", cache_salt="mine") == 0 < taken_over("a", cache_salt="mine")
        assert taken_over("b", cache_salt="mine") == 0
