"""A stream that was cut off, sent again with what it had written: the rest comes, and the whole is the same."""

import json

import pytest


def streamed(client, path, body):
    with client.stream("POST", path, json={**body, "stream": True, "return_token_ids": True}) as reply:
        assert reply.status_code == 200
        return [json.loads(line[6:]) for line in reply.iter_lines() if line.startswith("data: {")]


def choices(events):
    return [one["choices"][0] for one in events if one["choices"] and one["choices"][0].get("token_ids")]


BODY = {"seed": 7, "max_tokens": 20, "temperature": 0.8}
COMPLETION = ("/v1/completions", {**BODY, "prompt": "It was late when"})
CHAT = ("/v1/chat/completions", {**BODY, "messages": [{"role": "user", "content": "Tell me of the sea."}]})


@pytest.mark.parametrize(("path", "body"), [COMPLETION, CHAT], ids=["completion", "chat"])
def test_what_comes_behind_the_cut_is_what_would_have_come(client, path, body):
    whole = choices(streamed(client, path, body))
    cut = len(whole) // 2
    given = [token for one in whole[:cut] for token in one["token_ids"]]
    first, *rest = choices(streamed(client, path, {**body, "resume_token_ids": [given]}))
    assert first["token_ids"] == given and set(first["token_sources"]) == {"resumed"}

    def text(pieces):
        return "".join(one["text"] if "text" in one else one["delta"].get("content", "") for one in pieces)

    assert text([first]) == text(whole[:cut])
    assert text(rest) == text(whole[cut:])
    assert rest[-1]["finish_reason"] == whole[-1]["finish_reason"]


def test_usage_counts_all_that_was_written(client):
    path, body = COMPLETION
    whole = client.post(path, json={**body, "return_token_ids": True}).json()
    given = whole["choices"][0]["token_ids"][:9]
    resumed = client.post(path, json={**body, "resume_token_ids": [given]}).json()
    assert resumed["choices"][0]["text"] == whole["choices"][0]["text"]
    for count in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert resumed["usage"][count] == whole["usage"][count]


def test_token_ids_go_on_too(client):
    body = {"token_ids": [298, 267], "sampling_params": {"max_tokens": 12, "seed": 3}}
    whole = client.post("/inference/v1/generate", json=body).json()["choices"][0]["token_ids"]
    resumed = client.post("/inference/v1/generate", json={**body, "resume_token_ids": [whole[:5]]}).json()
    assert resumed["choices"][0]["token_ids"] == whole


def test_a_text_that_is_over_is_refused_by_name(client):
    path, body = COMPLETION
    reply = client.post(path, json={**body, "resume_token_ids": [[5] * 20]})
    assert reply.status_code == 400
    assert "resume_token_ids ends the text" in reply.json()["error"]["message"]


def test_a_text_without_its_form_is_refused_by_name(client):
    pytest.importorskip("llguidance")
    path, body = COMPLETION
    form = {"structured_outputs": {"json": {"type": "integer"}}, "resume_token_ids": [[65, 66]]}
    reply = client.post(path, json={**body, **form})
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, "resume_token_ids")
    assert error["message"].startswith("resume_token_ids has token 65 at 0, which the form of this request forbids")
