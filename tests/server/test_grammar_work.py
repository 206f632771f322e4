"""What a form may cost: the server and the other requests live on, and the request that asked too much gets one 400."""

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from serving import serving

from outdraft import LLM
from outdraft.codecs.grammar import prover
from outdraft.codecs.grammar.compile import Grammars
from outdraft.codecs.grammar.prover import Prover
from outdraft.options.errors import RequestError
from outdraft.options.structured import StructuredOutputsParams as Params

http = httpx.Client(timeout=120)
PROMPT = "It was late when"
AMBIGUOUS = {"grammar": "start: e\ne: e e | /[a-z ]/"}
CHAIN = "start: A0\n" + "\n".join(f"A{i}: A{i + 1}" for i in range(3900)) + '\nA3900: "x"\n'


@pytest.fixture(scope="module", params=["none", "ngram"])
def address(request: pytest.FixtureRequest, llm: LLM) -> Iterator[str]:
    with llm.with_drafter(request.param) as made, serving(made) as (address, _):
        yield address


def ask(address: str, **body: Any) -> httpx.Response:
    return http.post(f"{address}/v1/completions", json={"prompt": PROMPT, "max_tokens": 8, "temperature": 0, **body})


def test_an_ambiguous_grammar_ends_its_own_request(address: str) -> None:
    wanted = ask(address).json()["choices"][0]["text"]
    body = {"structured_outputs": AMBIGUOUS, "max_tokens": 900, "ignore_eos": True}
    reply = ask(address, **body)
    error = reply.json()["error"]
    assert reply.status_code == 400 and error["param"] == "structured_outputs"
    assert "takes too much work behind" in error["message"]
    events = ask(address, stream=True, **body).text.split("\n\n")
    last = json.loads([event for event in events if event.startswith("data: {")][-1][6:])
    assert last["error"]["param"] == "structured_outputs" and "takes too much work" in last["error"]["message"]
    assert ask(address).json()["choices"][0]["text"] == wanted


@pytest.fixture(scope="module")
def small() -> Prover:
    return Prover([bytes((i,)) for i in range(256)] + [b""])


def test_what_would_end_the_server_ends_a_fork_of_its_child(small: Prover, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stack, time and memory; the next form is compiled all the same, by the same child."""
    fine = "start: /[a-z]+/\n"
    assert small.prove("regex", fine).error == ""
    child = small._child
    with pytest.raises(RequestError, match=r"grammar of structured_outputs .* nested too deeply"):
        small.prove("grammar", CHAIN)
    schema = json.dumps({"type": "integer", "multipleOf": 99_999_989})
    with pytest.raises(RequestError, match=r"json of structured_outputs .* more than 1 s of processor time"):
        small.prove("json", f"start: %json {schema}\n")
    proof = small.prove("regex", fine)
    assert small._child is child and proof.error == "" and 0 < proof.num_bytes < 1 << 22 and proof.seconds < 1
    monkeypatch.setattr(prover, "MOST_BYTES", -(100 << 20))  # of 128 MiB that a thread may reserve
    other = Prover([bytes((i,)) for i in range(256)] + [b""])
    with pytest.raises(RequestError, match="MiB of memory"):
        other.prove("regex", "start: /" + r"\p{L}" * 9000 + "/\n")


def test_a_child_that_has_ended_is_started_anew(small: Prover) -> None:
    assert small.prove("regex", "start: /a/\n").error == ""
    assert small._child is not None
    os.kill(small._child.pid, signal.SIGKILL)
    assert small.prove("regex", "start: /a/\n").error == ""


def test_what_is_forced_without_end_is_looked_at_in_windows(llm: LLM) -> None:
    """Which took seconds and gigabytes at once: a text of 60,000 letters, again and again."""
    tokenizer = llm.get_tokenizer()
    grammars = Grammars(tokenizer, vocab_size=tokenizer.vocab_size, ends=tokenizer.eos_token_ids)
    form = grammars.constraint(Params(grammar='start: "' + "x" * 30_000 + '" start'), ignore_eos=False)()
    for _ in range(50):
        (token,) = form.allowed([]).nonzero().flatten().tolist()
        assert set(tokenizer.token_bytes(token)) == {ord("x")} and form.forced()[0] == token
        form.advance(token)
