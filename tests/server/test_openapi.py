"""/openapi.json tells the truth: each endpoint is there with what it answers, and errors as they are sent."""

from typing import Any

import httpx
import pytest

from lab.fuzz_http import faults_of_answer

MESSAGES = [{"role": "user", "content": "Hello"}]
ASKED: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "a", "max_tokens": 2},
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 2},
    "/v1/responses": {"input": "a", "max_output_tokens": 2},
    "/inference/v1/generate": {"token_ids": [1], "sampling_params": {"max_tokens": 2}},
    "/tokenize": {"prompt": "a"},
    "/detokenize": {"tokens": [1]},
}


@pytest.fixture(scope="module")
def told(address: str) -> dict[str, Any]:
    return httpx.get(f"{address}/openapi.json").json()


def fits(value: Any, schema: dict[str, Any], place: str = "") -> None:
    """As much of JSON Schema as the replies are described with."""
    if "const" in schema:
        assert value == schema["const"], place
    if "enum" in schema:
        assert value in schema["enum"], place
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": int | float, "null": type(None)}
    if "type" in schema:
        named = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        assert any(isinstance(value, kinds[one]) for one in named), f"{place} is {value!r}, no {named}"
    if isinstance(value, dict):
        assert {*schema.get("required", ())} <= {*value}, place
        for name, inner in schema.get("properties", {}).items():
            if name in value:
                fits(value[name], inner, f"{place}.{name}")
    if isinstance(value, list):
        for one in value:
            fits(one, schema.get("items", {}), f"{place}[]")


def test_every_reply_is_of_its_schema(client: httpx.Client, told: dict[str, Any]) -> None:
    for path, operations in told["paths"].items():
        (method,) = operations
        if method == "post":
            reply = client.post(path, json=ASKED[path])
        else:
            reply = client.get(here := path.replace("{model}", "target"))
            head = client.head(here)
            assert (head.status_code, head.content) == (reply.status_code, b""), path
            assert head.headers["content-type"] == reply.headers["content-type"] and int(head.headers["content-length"])
        if path in ("/kv_events", "/v1/adapt"):  # which are turned off
            assert reply.status_code == 404 and "404" in operations[method]["responses"]
            continue
        assert reply.status_code == 200, path
        content = operations[method]["responses"]["200"]["content"]
        kind = reply.headers["content-type"].partition(";")[0]
        assert kind in content, path
        if kind == "application/json":
            fits(reply.json(), content[kind]["schema"], path)


def test_what_takes_get_says_that_it_takes_head(client: httpx.Client) -> None:
    reply = client.put("/health")
    assert (reply.status_code, reply.headers["allow"]) == (405, "GET, HEAD")
    assert client.put("/openapi.json").headers["allow"] == "GET, HEAD"
    assert client.head("/v1/completions").headers["allow"] == "POST"


def test_health_is_declared_as_it_is_answered(client: httpx.Client, told: dict[str, Any]) -> None:
    """A process that answers is alive; only whether it takes requests varies."""
    assert client.get("/live").json() == client.get("/ready").json() == {"status": "ready"}
    found = {path: "503" in told["paths"][path]["get"]["responses"] for path in ("/live", "/ready", "/health")}
    assert found == {"/live": False, "/ready": True, "/health": True}
    assert "dead" not in str(told)


@pytest.mark.parametrize("path", [path for path in ASKED if "tokenize" not in path])
def test_a_stream_is_declared(client: httpx.Client, told: dict[str, Any], path: str) -> None:
    reply = client.post(path, json={**ASKED[path], "stream": True})
    assert reply.headers["content-type"].partition(";")[0] == "text/event-stream"
    assert "text/event-stream" in told["paths"][path]["post"]["responses"]["200"]["content"]


def test_errors_are_declared_as_they_are(client: httpx.Client, told: dict[str, Any]) -> None:
    error = told["components"]["schemas"]["Error"]
    for path, operations in told["paths"].items():
        for method, operation in operations.items():
            assert "422" not in operation["responses"]
            if method == "post":
                for status, reply in (
                    (400, client.post(path, json={"no such field": 1})),
                    (415, client.post(path, content=b"a=b", headers={"Content-Type": "text/plain"})),
                ):
                    assert reply.status_code == status and str(status) in operation["responses"], path
                    fits(reply.json(), error)
    assert client.get("/v1/models/other").status_code == 404
    assert "404" in told["paths"]["/v1/models/{model}"]["get"]["responses"]
    assert not [name for name in told["components"]["schemas"] if "Validation" in name]


def test_the_fuzz_sees_errors_that_no_schema_forbids() -> None:
    kind, stream = {"content-type": ["application/json"]}, {"content-type": ["text/event-stream; charset=utf-8"]}
    told = b'{"error": {"message": "%s", "type": "t", "param": null, "code": null}}'
    assert faults_of_answer(400, kind, told % b"say it otherwise") == []
    assert faults_of_answer(400, kind, told % b"/usr/lib/python3/x.py failed badly")
    assert faults_of_answer(200, stream, b"data: " + told % b"" + b"\n\ndata: [DONE]\n\n")
    assert faults_of_answer(200, stream, b'data: {"choices": []}\n\ndata: [DONE]\n\n') == []


@pytest.mark.slow
@pytest.mark.logs_faults
def test_the_fuzz_finds_what_is_wrong_and_nothing_else(
    address: str, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("schemathesis")
    from lab.fuzz_http import Fuzz

    good = Fuzz(address, 1)
    assert good.run(150) >= 100 and good.faults == {}

    def raises(*given: object, **named: object) -> None:
        raise ValueError("planted")

    monkeypatch.setattr("outdraft.server.endpoints.tokenize.spelled", raises)
    bad = Fuzz(address, 1)
    bad.run(150)
    assert any("/detokenize" in where and "error" in where.lower() for where in bad.faults), bad.faults
