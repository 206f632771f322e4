"""Requests that are broken, each in its own way, and the statuses that may answer them.

A request is broken in its body (no JSON, wrong types, numbers that are none, too large), in its head (no HTTP, no such
path or method), or in what it asks for (schemas that nothing can meet, ids that no vocabulary has).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from lab.soak_http.asked import Kind
from lab.soak_http.wire import request

MIB = 1 << 20
_WRONG: tuple[Any, ...] = (
    [],
    {},
    "x",
    "",
    True,
    1.5,
    -7,
    10**30,
    [None],
    {"a": []},
    [[1]],
    "\ud800",
    float("nan"),
    float("-inf"),
)
_NUMBERS = ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" * 400, "0x10", "1_000", "01", "--1", "٣", "1.5.2")
_PATHS = (
    "/",
    "/v1",
    "/v1/",
    "/v1/completions/",
    "//v1/completions",
    "/v1/../v1/completions",
    "/%2e%2e/etc/passwd",
    "/v1/completions%00",
    "/v1/models/%2e%2e%2f",
    "/v1/" + "x" * 3000,
    "/page/../app.py",
    "/page/%2e%2e%2fapp.py",
    "/v1/models/" + "%F0%9F%98%80" * 40,
    "/v1/completions;a=b",
    "/\\v1\\completions",
)
_BOMBS: tuple[Mapping[str, Any], ...] = (
    {"structured_outputs": {"json": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}}},
    {"structured_outputs": {"json": {"$ref": "file:///etc/passwd"}}},
    {"structured_outputs": {"json": "{"}},
    {"structured_outputs": {"regex": "(" * 3000}},
    {"structured_outputs": {"grammar": "start: a\na: b\nb: a"}},
    {"structured_outputs": {"grammar": "start: " + "a " * 70000}},
    {"structured_outputs": {"choice": []}},
    {"structured_outputs": {"json": {"properties": {f"property {i}": {"type": "string"} for i in range(9000)}}}},
    {"response_format": {"type": "json_schema"}},
    {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "no such type"}}}},
)
_ASKS: tuple[Mapping[str, Any], ...] = (
    {"prompt": [10**9]},
    {"prompt": [-1]},
    {"prompt": [2**70]},
    {"prompt": []},
    {"prompt": ""},
    {"prompt": [[]]},
    {"prompt": ["a"] * 65},
    {"n": 65},
    {"n": 10**12},
    {"logprobs": 21},
    {"prompt_logprobs": 10**9},
    {"max_tokens": 0},
    {"stop": ["x"] * 100_000},
    {"stop": [""]},
    {"temperature": 1e308, "top_p": 1e-320},
    {"temprature": 1},
    {"logit_bias": {"a": 1}},
    {"logit_bias": {"99999999": 1}},
    {"allowed_token_ids": []},
    {"bad_words": [""]},
    {"seed": 2**64},
    {"seed": -(2**70)},
    {"model": "no such model"},
    {"model": "/etc/passwd"},
    {"timeout": -1},
    {"speculative": {"method": "os.system"}},
    {"speculative": {"verifier": "../rule"}},
    {"speculative": True},
    {"prompt": "\ud800"},
    {"prompt": "a" * 200_000},
    {"prompt": list(range(1, 900)) * 40},
    {"chat_template": "{{ x }}"},
    {"request_id": "a\r\nSet-Cookie: b"},
    {"priority": 10**40},
    {"suffix": "b"},
    {"echo": "yes"},
    {"stream": "yes"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """What to send, and which statuses are right."""

    name: str
    data: bytes
    statuses: frozenset[int]


def broken(rng: Random, kinds: list[Kind]) -> Broken:
    """A request with one thing wrong, drawn at random."""
    return rng.choice(_MAKERS)(rng, rng.choice(kinds))


def _post(name: str, path: str, body: bytes, *statuses: int, **headers: str) -> Broken:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return Broken(name=name, data=request("POST", path, body, named), statuses=frozenset(statuses))


def _cut_json(rng: Random, kind: Kind) -> Broken:
    body = json.dumps(kind.body).encode()
    return _post("cut JSON", kind.path, body[: rng.randrange(len(body))], 400)


def _spoilt_json(rng: Random, kind: Kind) -> Broken:
    """A few bytes are others; what is left may still be a request."""
    body = bytearray(json.dumps({**kind.body}).encode())
    for _ in range(rng.randrange(1, 6)):
        body[rng.randrange(len(body))] = rng.randrange(256)
    return _post("spoilt JSON", kind.path, bytes(body), 200, 400, 404)


def _no_json(rng: Random, kind: Kind) -> Broken:
    bodies = (
        b"",
        b"null",
        b"[]",
        b'"a"',
        b"7",
        b"\xff\xfe{\x00}\x00",
        b"[" * 50_000,
        b'{"prompt":' * 9000,
        rng.randbytes(300),
        b"prompt=a",
        b"\x00" * 100,
        b'{"prompt": "\xed\xa0\x80"}',
    )
    return _post("no JSON", kind.path, rng.choice(bodies), 400)


def _other_kind(rng: Random, kind: Kind) -> Broken:
    told = rng.choice(
        ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "a/b/c")
    )
    return _post("other content type", kind.path, json.dumps(kind.body).encode(), 400, 415, Content_Type=told)


def _no_number(rng: Random, kind: Kind) -> Broken:
    """A number that JSON does not have, or that no machine holds; as text in place of a field's value."""
    names = ("temperature", "top_p", "min_p", "frequency_penalty", "max_tokens", "n", "seed", "timeout", "priority")
    body = json.dumps({**kind.body, rng.choice(names): "HERE"}).replace('"HERE"', rng.choice(_NUMBERS))
    return _post("no number", kind.path, body.encode(), 200, 400)


def _wrong_type(rng: Random, kind: Kind) -> Broken:
    """In place of a field, or within one."""
    changed = json.loads(json.dumps(kind.body))
    table = changed
    while (inner := [value for value in table.values() if isinstance(value, dict) and value]) and rng.random() < 0.5:
        table = rng.choice(inner)
    table[rng.choice([*table])] = rng.choice(_WRONG)
    return _post("wrong type", kind.path, json.dumps(changed).encode(), 200, 400, 404)


def _too_large(rng: Random, kind: Kind) -> Broken:
    """A prompt of ten megabytes, which is refused by its size, or of almost as much as may be sent."""
    if rng.random() < 0.5:
        text, status = "word " * (2 * MIB), 413
    else:
        text, status = rng.choice(("word ", "a", "\u00e9", "\n")) * (3 * MIB // 5), 400
    if kind.is_chat:
        return _post(
            "too large", kind.path, json.dumps({"messages": [{"role": "user", "content": text}]}).encode(), status
        )
    return _post("too large", "/v1/completions", json.dumps({"prompt": text}).encode(), status)


def _schema_bomb(rng: Random, kind: Kind) -> Broken:
    body = json.dumps({"prompt": "a", "max_tokens": 3, **rng.choice(_BOMBS)}).encode()
    return _post("schema bomb", "/v1/completions", body, 400)


def _bad_ask(rng: Random, kind: Kind) -> Broken:
    body = json.dumps({"prompt": "a", "max_tokens": 2, **rng.choice(_ASKS)}).encode()
    return _post("bad ask", "/v1/completions", body, 200, 400, 404)


def _bad_path(rng: Random, kind: Kind) -> Broken:
    method = rng.choice(("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "BREW"))
    data = request(method, rng.choice(_PATHS), None if method == "HEAD" else json.dumps(kind.body).encode())
    return Broken(name="bad path", data=data, statuses=frozenset((200, 400, 404, 405)))


def _bad_head(rng: Random, kind: Kind) -> Broken:
    """No HTTP, or a head that is too long, or one that contradicts itself."""
    heads = (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1.1\r\nHost: a\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nBad Header: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://[::1 HTTP/1.1\r\n\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n{}",
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\nzz\r\n",
    )
    return Broken(name="bad head", data=rng.choice(heads), statuses=frozenset((400, 404, 431)))


_MAKERS: tuple[Callable[[Random, Kind], Broken], ...] = (
    _cut_json,
    _spoilt_json,
    _no_json,
    _other_kind,
    _no_number,
    _no_number,
    _wrong_type,
    _wrong_type,
    _wrong_type,
    _too_large,
    _schema_bomb,
    _bad_ask,
    _bad_ask,
    _bad_path,
    _bad_head,
)
