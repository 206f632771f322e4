"""A server over HTTP: what it is asked, how its tokens are counted, and its failures in words."""

import asyncio
import os

import pytest
from bench.load.made_up import http_server, make_job

from outdraft.bench.load import over_http
from outdraft.bench.load.clients import serve
from outdraft.bench.load.over_http import HttpServer, PeerError, parse_server
from outdraft.options.errors import ConfigError


@pytest.mark.parametrize("how", ["ids", "usage", "unchunked", "bare"])
def test_tokens_are_counted_and_pieces_are_not(how: str):
    with http_server(how) as (url, asked):
        server = HttpServer("made", url, {"dtype": "float32"}, {})
        answer = asyncio.run(server.ask(make_job(5, length=7)))
    assert answer.num_tokens == 7 and len(answer.arrivals) == 4 and answer.num_first == 2
    assert answer.text == "éx" * 3 + "é", "a letter of two bytes survives being cut"
    assert answer.token_ids == (tuple(range(7)) if how == "ids" else None) and answer.stats is None
    assert list(answer.arrivals) == sorted(answer.arrivals) and answer.arrivals[0] > 0
    ((path, body),) = asked
    assert path == "/v1/completions" and body["prompt"] == [1, 2, 5] and body["max_tokens"] == 7
    assert body["temperature"] == 0 and body["stream"] is True and body["model"] == "made-up"
    assert body["ignore_eos"] is True and body["cache_prompt"] is False
    assert server.config["peer"]["owner"] == "a-person" and server.config["dtype"] == "float32"


def test_every_round_has_a_salt_of_its_own():
    """Else a server that keeps what it wrote, as look-up drafters do, copies its answers of the round before."""
    with http_server("bare") as (url, asked):
        for server in (HttpServer("made", url, {}, {}), HttpServer("made", url, {}, {"cache_salt": "mine"})):
            for _ in range(2):
                serve(server, [make_job(1), make_job(2)], 2)
    salts = [body["cache_salt"] for _, body in asked]
    assert salts[0] == salts[1] != salts[2] == salts[3] and set(salts[4:]) == {"mine"}


def test_passes_are_counted_where_draft_tokens_are_given():
    with http_server("timings") as (url, _):
        answer = asyncio.run(HttpServer("made", url, {}, {}).ask(make_job(1, length=7)))
    assert answer.stats is not None and answer.stats.num_steps == 4 and answer.stats.tau == 7 / 4
    assert (answer.stats.num_draft_tokens, answer.stats.num_accepted_tokens) == (6, 3) and len(answer.arrivals) == 4


def test_fields_are_added_and_left_out():
    with http_server("bare") as (url, asked):
        server = HttpServer("made", url, {}, {"cache_prompt": None, "top_k": 1})
        serve(server, [make_job(1), make_job(2)], 2)
    assert all(body["top_k"] == 1 and "cache_prompt" not in body for _, body in asked)
    assert server.config["peer"]["top_k"] == 1


@pytest.mark.parametrize(
    "how, says",
    [
        ("refuses", "answers 400 to /v1/completions: .*no such field"),
        ("breaks off", "the connection broke off"),
        ("fails", "out of memory"),
    ],
)
def test_failures_are_quoted(how: str, says: str):
    with http_server(how) as (url, _):
        server = HttpServer("made", url, {}, {})
        with pytest.raises(PeerError, match=f"peer made at {url}: .*{says}"):
            serve(server, [make_job(1)], 1)


def test_its_work_is_known_where_its_processes_are(monkeypatch):
    with http_server("bare") as (url, _):
        server = HttpServer("made", url, {}, {})
        assert server.work_seconds() is None, "it is a thread of this process, so nothing is its own"
        used = iter([10.0, 12.5])
        monkeypatch.setattr(over_http, "find_processes", lambda url: [4, 5])
        monkeypatch.setattr(over_http, "processor_seconds", lambda pids: next(used) if pids == [4, 5] else None)
        waited = []
        monkeypatch.setattr(over_http, "wait_until_idle", waited.append)
        served = serve(HttpServer("made", url, {}, {}), [make_job(1)], 1)
    assert served.work_seconds is not None and served.work_seconds >= 2.5 and waited == [[4, 5, os.getpid()]]


def test_no_server_there():
    with http_server("bare") as (url, _):
        pass
    with pytest.raises(PeerError, match=r"no connection .*start its server, or leave --peer out"):
        HttpServer("made", url, {}, {})


def test_how_a_server_is_spelled():
    assert parse_server("a.b=http://host:8080/v1/") == ("a.b", "http://host:8080")
    assert parse_server("a=https://host/x") == ("a", "https://host/x")
    for wrong in ("http://host", "a=host:80", "a=ftp://host", "llama_cpp", "a b=http://h"):
        with pytest.raises(ConfigError, match="write NAME=URL"):
            parse_server(wrong)


def test_our_own_server_is_a_peer_too():
    """It refuses fields that it does not know, and tells its passes; the ids are those that the engine writes."""
    pytest.importorskip("uvicorn")
    from serving import serving

    from outdraft import LLM, SamplingParams

    job = make_job(5, length=12)
    with LLM("zoo:target", drafter="ngram", num_speculative_tokens=4) as llm, serving(llm) as (url, _):
        answer = asyncio.run(HttpServer("ours", url, {}, {}).ask(job))
        whole = llm.generate({"prompt_token_ids": job.ids}, SamplingParams(max_tokens=12, ignore_eos=True))
    assert answer.token_ids == whole.token_ids and answer.text == whole.text
    assert answer.stats is not None and answer.stats.num_steps == whole.stats.num_steps == len(answer.arrivals)
    assert answer.stats.num_accepted_tokens == whole.stats.num_accepted_tokens
