"""transformers for real, on a tiny model in float32: every mode writes our own greedy text, and tells its passes."""

from pathlib import Path

import pytest

from lab.bench.peers.process import WORKERS, Process
from outdraft import LLM, SamplingParams

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.fixture(scope="module")
def process():
    process = Process("transformers", None, [str(WORKERS / "serve.py"), "with_transformers"], threads=1)
    assert set(process.ask("hello")["versions"]) == {"transformers", "torch"}
    yield process
    process.close()


@pytest.mark.parametrize("mode", ["plain", "static", "assisted", "lookup"])
def test_every_mode(mode: str, process: Process, tiny_directory: Path):
    draft = str(tiny_directory) if mode == "assisted" else None
    process.ask("load", model=str(tiny_directory), draft=draft, mode=mode, k=3, threads=1, max_len=64, program=None)
    told = process.ask("generate", prompt=PROMPT, max_tokens=20)
    params = SamplingParams(max_tokens=20, ignore_eos=True)
    assert told["tokens"] == list(LLM(tiny_directory).generate({"prompt_token_ids": PROMPT}, params).token_ids)
    assert 0 < told["first_seconds"] <= told["seconds"]
    if mode in ("plain", "static"):
        assert (told["passes"], told["num_first"]) == (20, 1)
    elif mode == "assisted":
        assert (told["passes"], told["num_first"]) == (5, 4), "a draft of itself: all three, and one more, every pass"
    else:
        assert told["passes"] <= 20
    again = process.ask("generate", prompt=PROMPT, max_tokens=20)
    assert (again["tokens"], again["passes"]) == (told["tokens"], told["passes"]), "nothing is left of the first text"
