"""`--server URL`: the text and the figures of an engine of one's own, and one sentence for what fails."""

import json
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
from serve_command import certified, command
from serving import serving

from outdraft import LLM
from outdraft.cli.streamed import Laid
from outdraft.core.events import Source
from outdraft.server.service import Service

PROMPT = "ab ab ab ab ab ab"


@pytest.fixture(scope="module")
def llm(tiny: Path) -> Iterator[LLM]:
    with LLM(tiny, drafter="ngram", num_speculative_tokens=4) as made:
        yield made


@pytest.fixture(scope="module")
def served(llm: LLM) -> Iterator[tuple[str, Service]]:
    with serving(llm, api_keys=("secret",)) as made:
        yield made


@pytest.fixture
def at(served: tuple[str, Service]) -> tuple[str, ...]:
    return "--server", served[0], "--api-key", "secret"


@pytest.fixture
def here(tiny: Path) -> tuple[str, ...]:
    return "--model", str(tiny), "--drafter", "ngram", "-k", "4"


def test_generate_writes_the_same(outdraft, at, here):
    words = ("generate", PROMPT, "--max-tokens", 20, "--stats")
    ours, theirs = outdraft(*words, *here), outdraft(*words, *at)
    assert theirs.code == 0 and theirs.out == ours.out != "\n"

    def counted(told: str) -> list[str]:
        return [re.sub(r"[0-9.]+ s, \d+ tokens/s|after [0-9.]+ s|; about .*", "", line) for line in told.splitlines()]

    assert "accepted by position" in ours.err and "drafted by ngram" in ours.err
    assert counted(theirs.err) == counted(ours.err), "passes, tokens a pass, who drafted, acceptance by position"
    assert ("plain (estimated" in theirs.err) == ("plain (estimated" in ours.err)
    words = ("generate", PROMPT, "--max-tokens", 9, "--temperature", 1, "--seed", 5, "--logit-bias", "97=2", "--json")
    ours, theirs = json.loads(outdraft(*words, *here).out), json.loads(outdraft(*words, *at).out)
    assert theirs.keys() == ours.keys()
    for name in ("text", "token_ids", "sources", "finish_reason", "variant", "lossless"):
        assert theirs[name] == ours[name], name


def test_flags_become_fields(outdraft, at):
    words = ("generate", PROMPT, "--max-tokens", 12, "--json", *at)
    for more in ((), ("-k", 3)):
        told = json.loads(outdraft(*words, "--drafter", "none", *more).out)
        assert set(told["sources"]) == {"plain"}
    told = json.loads(outdraft(*words, "--choice", "yes", "--choice", "no", "-k", 2).out)
    assert told["text"] in ("yes", "no") and told["metrics"]["speculative_decoding"]["num_spec_tokens"] == 2


def test_a_chat_is_the_same(outdraft, at, here):
    talk = "hello\nagain\n/stats\n/quit\n"
    words = ("chat", "--max-tokens", 12, "--seed", 3, "--color")
    ours, theirs = outdraft(*words, *here, stdin=talk), outdraft(*words, *at, stdin=talk)
    assert theirs.code == 0, theirs.err

    def shown(text: str) -> list[str]:
        lines = text.splitlines()
        return [
            re.sub(r"after [\d.]+ s", "after some time", line)
            for line in lines[lines.index(next(one for one in lines if one.startswith("/help"))) :]
            if " tokens in " not in line
        ]

    assert shown(theirs.out) == shown(ours.out)
    assert "no chat template" in theirs.out.replace("\n", " ") and "target at http://127.0.0.1" in theirs.out


def test_the_key_is_in_the_environment(outdraft, served, monkeypatch):
    monkeypatch.setenv("OUTDRAFT_API_KEY", "secret,other")
    address = served[0].removeprefix("http://")
    for url in (address, f"http://{address}/", f"http://{address}/v1/"):
        assert outdraft("generate", PROMPT, "--max-tokens", 1, "--server", url).code == 0


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--server", "127.0.0.1:FREE"), "no server answers at http://127.0.0.1:FREE (Connection refused): start one"),
        (("--server", "http://no-such-host.invalid"), "no server answers at http://no-such-host.invalid"),
        (("--server", "http://"), "write an address such as http://127.0.0.1:8000"),
        (("--server", "ftp://a"), "write an address such as"),
        (("--server", "http://a:b"), "write an address such as"),
        (("--api-key", "a"), "api_key is for a server"),
        (("--server", "SERVED"), "this server wants a key: give the key as --api-key KEY, or in OUTDRAFT_API_KEY"),
        (("--server", "SERVED", "--api-key", "wrong"), "the key is not known here: give the key as"),
        (("--server", "SERVED", "--api-key", "secret", "--model", "gpt"), "'gpt' is not served here; served: target"),
        (("--server", "SERVED", "--api-key", "secret", "--kv-cache", "paged"), "--kv-cache is of an engine"),
        (("--server", "SERVED", "--api-key", "secret", "--drafter", "eagle"), "'eagle' is not held here"),
        (("--server", "SERVED", "--api-key", "se cr\n"), "api_key holds a sign"),
    ],
)
def test_errors_are_one_line(outdraft, served, monkeypatch, words, says):
    monkeypatch.delenv("OUTDRAFT_API_KEY", raising=False)
    port = str(free_port())
    said = [word.replace("FREE", port).replace("SERVED", served[0]) for word in words]
    ran = outdraft("generate", PROMPT, *said)
    assert ran.code == 2 and says.replace("FREE", port) in ran.err and ran.err.count("\n") == 1, ran.err


class Stranger(BaseHTTPRequestHandler):
    """A web server that knows nothing of models, and one that dies in the middle of an answer."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>" if "dies" not in self.path else b'{"data": [{"id": "m"}]}')

    def do_POST(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'data: {"choices": [{"text": "half"}]}\n\n')

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_a_stranger_and_an_answer_that_breaks_off(outdraft):
    with HTTPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        assert "is no server with OpenAI's API" in outdraft("generate", PROMPT, "--server", url).err
        ran = outdraft("generate", PROMPT, "--server", f"{url}/dies")
        assert ran.code == 2 and "ended before the answer did" in ran.err
        ran = outdraft("chat", "--server", f"{url}/dies", stdin="hello\n")
        assert "ended before the answer did" in ran.out.replace("\n", " ") and ran.code == 0
        server.shutdown()


def test_a_certificate_of_ones_own(outdraft, tiny, tmp_path, monkeypatch):
    certificate, key = certified(tmp_path)
    with command("--model", tiny, "--ssl-certfile", certificate, "--ssl-keyfile", key) as address:
        words = ("generate", PROMPT, "--max-tokens", 2, "--server", address)
        assert "is not trusted here" in outdraft(*words).err
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert outdraft(*words).code == 0


@pytest.mark.parametrize(
    ("pieces", "wanted"),
    [
        ([("ab", ["ab", "cd"]), ("c", []), ("d", [])], ["ab", "cd"]),  # a part of a token is held back
        ([("", ["<think>"]), ("so", ["so"]), ("", ["</think>"]), ("yes", ["yes"])], ["so", "yes"]),  # marks taken out
        ([("ab", ["ab", "cSTOP"]), ("c", [])], ["ab", "c"]),  # cut at a stop
        ([("ab", [])], ["ab"]),  # no tokens are given
    ],
)
def test_tokens_are_laid_along_the_text(pieces, wanted):
    laid = Laid()
    found = [run for text, tokens in pieces for run in laid.take(text, [(token, Source.BONUS) for token in tokens])]
    assert [text for text, _ in [*found, *laid.finish()]] == wanted
