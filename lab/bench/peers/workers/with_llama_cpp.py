"""llama.cpp (https://github.com/ggml-org/llama.cpp): its own server, `llama-server`, with one slot, asked over HTTP.

    plain     as it is          assisted    a draft model, k tokens always
    lookup    prompt look-up    ngram-mod   its pool of n-grams, by its own defaults

The pool of n-grams outlives a text, so there every text has a server of its own, started before the clock. The whole
answer comes at once, so that nothing but the engine works while it writes; `llama-quantize`, beside the server, rounds
weights. Needs no library.
"""

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

_PATIENCE = 120.0  # seconds until the server must answer


def versions(*, program: str | None) -> dict[str, str]:
    """Package -> version of what this worker runs."""
    told = subprocess.run([find(program), "--version"], capture_output=True, text=True, check=True)
    line = next((line for line in (told.stderr + told.stdout).splitlines() if line.startswith("version")), "")
    return {"llama.cpp": line.removeprefix("version:").strip() or "unknown"}


def export(*, source: str, out: str, rounding: str, program: str | None) -> None:
    """A GGUF file rounded by llama.cpp's own tool: `rounding` is Q8_0, Q4_0, ..."""
    tool = Path(find(program)).with_name("llama-quantize")
    if not tool.is_file():
        raise FileNotFoundError(f"{tool} (build the target llama-quantize too)")
    subprocess.run([tool, source, out, rounding], check=True)


def find(program: str | None) -> str:
    """Where the server program is: at the path given, or in PATH."""
    found = shutil.which(program or "llama-server")
    if found is None:
        raise FileNotFoundError(program or "llama-server")
    return found


class Engine:
    """A server on a free port of this machine."""

    def __init__(
        self,
        *,
        model: str,
        draft: str | None,
        mode: str,
        k: int,
        threads: int,
        max_len: int,
        program: str | None,
        **_: Any,
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._url = f"http://127.0.0.1:{port}"
        words = [find(program), "--model", model, "--ctx-size", str(max_len + 32), "--parallel", "1"]
        words += ["--threads", str(threads), "--threads-batch", str(threads), "--threads-http", "1"]
        words += ["--host", "127.0.0.1", "--port", str(port), "--no-webui"]
        words += ["--cache-ram", "0", "--fit", "off", "--load-mode", "none"]  # weights in memory that has large pages
        if mode == "assisted":
            words += ["--spec-type", "draft-simple", "--spec-draft-model", str(draft)]
            words += ["--spec-draft-n-max", str(k), "--spec-draft-n-min", "0", "--spec-draft-p-min", "0"]
            words += ["--spec-draft-threads", str(threads)]
        elif mode == "lookup":
            words += ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3"]
            words += ["--spec-ngram-simple-size-m", str(k)]
        elif mode != "plain":
            words += ["--spec-type", mode]
        self._words, self._renews, self._is_new = words, mode == "ngram-mod", True
        self.pids: list[int] = []
        self._start()

    def _start(self) -> None:
        self._server = subprocess.Popen(self._words, stdin=subprocess.DEVNULL)
        self.pids[:] = [self._server.pid]
        self._wait()

    def _wait(self) -> None:
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until and self._server.poll() is None:
            try:
                with urllib.request.urlopen(f"{self._url}/health", timeout=5):
                    return
            except OSError:  # not listening yet, or 503 while it loads
                time.sleep(0.1)
        self.close()
        raise RuntimeError(f"llama-server did not start (exit {self._server.poll()})")

    def generate(self, *, prompt: list[int], max_tokens: int) -> dict[str, Any]:
        """Greedy, `max_tokens` long; the prompt is read anew each time."""
        if self._renews and not self._is_new:
            self.close()
            self._start()
        self._is_new = False
        body = {
            "prompt": prompt,
            "n_predict": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "cache_prompt": False,
            "return_tokens": True,
        }
        asked = urllib.request.Request(f"{self._url}/completion", json.dumps(body).encode())
        began = time.perf_counter()
        with urllib.request.urlopen(asked) as answered:
            told = json.load(answered)
        seconds = time.perf_counter() - began
        timings = told["timings"]
        return {
            "tokens": told["tokens"],
            "seconds": seconds,
            "first_seconds": timings["prompt_ms"] / 1000,
            "num_first": 1,
            "passes": len(told["tokens"]) - timings.get("draft_n_accepted", 0),
            "drafted": timings.get("draft_n", 0),
            "accepted": timings.get("draft_n_accepted", 0),
            "pids": self.pids,
        }

    def close(self) -> None:
        self._server.terminate()
        try:
            self._server.wait(10)
        except subprocess.TimeoutExpired:
            self._server.kill()
