"""The line to a peer: answers, errors, a peer that is not there, one that dies, one that does not leave."""

import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

from lab.bench.peers import process as line
from lab.bench.peers.process import PeerMissing, Process
from outdraft.bench.load.over_http import PeerError
from outdraft.options.errors import ConfigError


@pytest.fixture
def process(workers: Path):
    process = Process("fake", None, [str(workers / "serve.py"), "with_transformers"], threads=1)
    yield process
    process.close()


def test_a_peer_that_prints_is_understood(process: Process, workers: Path):
    assert process.ask("hello")["versions"] == {"fake": "1.0"}
    assert len(process.ask("load", model="m", mode="plain")["pids"]) == 1
    assert process.ask("generate", prompt=[1], max_tokens=3)["tokens"] == [7, 7, 7]
    process.close()
    assert (workers / "closed").exists(), "the end of stdin is the end of the engine"


def test_an_error_is_printed_and_the_line_goes_on(process: Process):
    process.ask("hello")
    with pytest.raises(PeerError, match=r"failed at 'load': ValueError: no look-up today"):
        process.ask("load", model="m", mode="lookup")
    with pytest.raises(PeerMissing, match="No module named 'fake'"):
        process.ask("hello", program="absent")
    assert process.ask("hello")["versions"]


def test_last_words(process: Process):
    process.ask("hello")
    process.ask("load", model="m", mode="plain")
    with pytest.raises(PeerError, match=r"stopped at 'generate' \(exit code 1\); the end of its output: out of luck"):
        process.ask("generate", prompt=[1], max_tokens=13)
    with pytest.raises(PeerError, match="stopped at 'hello'"):
        process.ask("hello")


def test_one_that_does_not_leave_is_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(line, "_PATIENCE", 0.05)
    stubborn = Process("stubborn", sys.executable, ["-c", "import time; time.sleep(600)"], threads=1)
    stubborn.close()
    assert stubborn._child.returncode is not None


def test_what_it_has_started_and_left_is_ended_too():
    """A server that a peer's program runs, where the program itself has failed."""
    leaves = "import subprocess, sys; print('{\"pid\": %d}' % subprocess.Popen(['sleep', '600']).pid, flush=True)"
    process = Process("leaves", sys.executable, ["-c", f"{leaves}; sys.stdin.readline()"], threads=1)
    status = Path(f"/proc/{process.ask('hello')['pid']}/stat")
    process.close()
    end = monotonic() + 10
    while status.exists() and ") Z " not in status.read_text():
        assert monotonic() < end, "it still runs"
        sleep(0.01)


def test_another_python_that_is_none():
    with pytest.raises(ConfigError, match="python=/no/such/python cannot be run"):
        Process("fake", "/no/such/python", [], threads=1)
