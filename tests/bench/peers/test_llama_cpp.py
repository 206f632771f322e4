"""llama.cpp's worker against a made-up llama-server: how it is started, asked, read and ended."""

import json
import sys
from pathlib import Path

import pytest

from lab.bench.peers.process import WORKERS, PeerMissing, Process
from outdraft.bench.load.over_http import PeerError

SERVER = """#!{python}
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

words, here = sys.argv[1:], Path(__file__).parent
if words == ["--version"]:
    sys.exit(print("version: 12 (abc)", file=sys.stderr))
if "broken.gguf" in words:
    sys.exit(3)
(here / "words").write_text(json.dumps(words))

class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        (here / "asked").write_text(json.dumps(asked))
        timings = {{"prompt_ms": 1.5, "draft_n": 12, "draft_n_accepted": 6}} if "--spec-type" in words else {{"prompt_ms": 1.5}}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({{"tokens": [5] * asked["n_predict"], "timings": timings}}).encode())

HTTPServer(("127.0.0.1", int(words[words.index("--port") + 1])), Answer).serve_forever()
"""  # noqa: E501


@pytest.fixture
def server(tmp_path: Path) -> Path:
    path = tmp_path / "llama-server"
    path.write_text(SERVER.format(python=sys.executable))
    path.chmod(0o755)
    return path


@pytest.fixture
def process():
    process = Process("llama_cpp", None, [str(WORKERS / "serve.py"), "with_llama_cpp"], threads=2)
    yield process
    process.close()


def load(process: Process, server: Path, mode: str, model: str = "big.gguf") -> list[int]:
    draft = "small.gguf" if mode == "assisted" else None
    setting = {"mode": mode, "k": 6, "threads": 2, "max_len": 64, "program": str(server)}
    return process.ask("load", model=model, draft=draft, **setting)["pids"]


def test_plain(process: Process, server: Path):
    assert process.ask("hello", program=str(server))["versions"] == {"llama.cpp": "12 (abc)"}
    (pid,) = load(process, server, "plain")
    told = process.ask("generate", prompt=[1, 2], max_tokens=9)
    assert told["tokens"] == [5] * 9 and told["passes"] == 9 and told["first_seconds"] == 0.0015
    asked = json.loads((server.parent / "asked").read_text())
    assert asked["prompt"] == [1, 2] and asked["temperature"] == 0 and asked["ignore_eos"] and not asked["cache_prompt"]
    words = json.loads((server.parent / "words").read_text())
    assert words[words.index("--threads") + 1] == "2" and "--spec-type" not in words
    process.close()
    with pytest.raises(OSError):
        (Path("/proc") / str(pid) / "stat").read_text()


def test_assisted(process: Process, server: Path):
    process.ask("hello", program=str(server))
    load(process, server, "assisted")
    told = process.ask("generate", prompt=[1, 2], max_tokens=9)
    assert (told["passes"], told["drafted"], told["accepted"]) == (3, 12, 6)
    words = json.loads((server.parent / "words").read_text())
    assert words[words.index("--spec-draft-model") + 1] == "small.gguf"
    assert words[words.index("--spec-draft-n-max") + 1] == "6"


def test_look_up(process: Process, server: Path):
    process.ask("hello", program=str(server))
    load(process, server, "lookup")
    words = json.loads((server.parent / "words").read_text())
    assert words[words.index("--spec-type") + 1] == "ngram-simple"
    assert words[words.index("--spec-ngram-simple-size-m") + 1] == "6"


def test_a_pool_of_n_grams_is_new_for_every_text(process: Process, server: Path):
    process.ask("hello", program=str(server))
    loaded = load(process, server, "ngram-mod")
    first, second = (process.ask("generate", prompt=[1, 2], max_tokens=9)["pids"] for _ in range(2))
    assert loaded == first != second
    words = json.loads((server.parent / "words").read_text())
    assert words[words.index("--spec-type") + 1] == "ngram-mod"


def test_a_server_that_ends_and_tools_that_are_not_there(process: Process, server: Path):
    process.ask("hello", program=str(server))
    with pytest.raises(PeerError, match=r"did not start \(exit 3\)"):
        load(process, server, "plain", model="broken.gguf")
    with pytest.raises(PeerMissing, match="llama-quantize"):
        process.ask("export", source="a", out="b", rounding="Q8_0", program=str(server))
    tool = server.with_name("llama-quantize")
    tool.write_text('#!/bin/sh\necho "$3 of $1" > "$2"\n')
    tool.chmod(0o755)
    out = server.with_name("small.gguf")
    process.ask("export", source="a.gguf", out=str(out), rounding="Q8_0", program=str(server))
    assert out.read_text() == "Q8_0 of a.gguf\n"
