"""NVIDIA's load tool AIPerf reads our statistics by its own adapter, and counts the tokens that `usage` tells.

It is heavy and no part of `make test`: pip install 'aiperf==0.13.0' beside outdraft, then run this file with `-m ''`.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from outdraft.weights.hub import resolve

adapters = pytest.importorskip("aiperf.spec_decode.vllm_adapter", reason="needs aiperf")
endpoints = pytest.importorskip("aiperf.endpoints.base_endpoint")
models = pytest.importorskip("aiperf.common.models")

TEXT = "def add(a, b):\n    return a + b\n\ndef add(a, b):\n    return"
MESSAGES = [{"role": "user", "content": TEXT}]
PROMPTS = ("It was late in the evening when the letter came. She opened it and", "The old man looked at", TEXT, "Once")


def parsed(told: dict[str, Any]) -> Any:
    """As its endpoints do it."""
    stats = endpoints.BaseEndpoint.extract_spec_decode_stats(told)
    return models.ParsedResponse(perf_ns=0, usage=told.get("usage"), spec_decode_stats=stats)


@pytest.mark.parametrize("speculative", [None, False, {"num_speculative_tokens": 7}])
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("path", "asked"), [("completions", {"prompt": TEXT}), ("chat/completions", {"messages": MESSAGES})]
)
def test_its_adapter_accepts_our_statistics(
    client: httpx.Client, path: str, asked: dict[str, Any], streams: bool, speculative: Any
) -> None:
    body = {**asked, "max_tokens": 24, "temperature": 0, "stream": streams, "speculative": speculative}
    reply = client.post(f"/v1/{path}", json=body | ({"stream_options": {"include_usage": True}} if streams else {}))
    lines = [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: {")]
    pieces = [json.loads(line) for line in lines] if streams else [reply.json()]
    responses = [parsed(piece) for piece in pieces]
    assert adapters.VLLMSpecDecodeAdapter.can_adapt(responses)
    record = adapters.VLLMSpecDecodeAdapter.adapt(responses)
    assert record is not None, "it was taken for malformed"
    told = pieces[-1]["metrics"]["speculative_decoding"]
    assert record.completion_tokens == pieces[-1]["usage"]["completion_tokens"] == 24
    assert record.num_spec_tokens == {None: 4, False: 0}.get(speculative if speculative in (None, False) else 1, 7)
    assert (record.num_spec_steps, record.num_draft_tokens) == (told["num_spec_steps"], told["num_draft_tokens"])
    assert sum(record.acceptance_histogram.values()) == record.num_spec_steps
    assert speculative is False or record.num_accepted_draft_tokens > 0


@pytest.mark.slow
def test_it_counts_the_tokens_of_usage(address: str, tmp_path: Path) -> None:
    """The whole tool against the server, with a tokenizer of its own: both counts of every request are equal."""
    program = shutil.which("aiperf", path=str(Path(sys.executable).parent)) or shutil.which("aiperf")
    if program is None:
        pytest.skip("the program aiperf is not here")
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in PROMPTS))
    done = subprocess.run(
        [
            program,
            "profile",
            "--model",
            "target",
            "--url",
            address,
            "--endpoint-type",
            "completions",
            "--streaming",
            "--tokenizer",
            resolve("zoo:target"),
            "--input-file",
            tmp_path / "prompts.jsonl",
            "--custom-dataset-type",
            "single_turn",
            "--extra-inputs",
            "max_tokens:40",
            "--extra-inputs",
            "temperature:0",
            "--concurrency",
            "4",
            "--request-count",
            "16",
            "--ui",
            "simple",
            "--export-level",
            "records",
            "--artifact-dir",
            tmp_path / "made",
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    lines = (tmp_path / "made/profile_export.jsonl").read_text().splitlines()
    records = [{name: one["value"] for name, one in json.loads(line)["metrics"].items()} for line in lines]
    assert len(records) == 16
    for one in records:
        assert one["output_sequence_length"] == one["usage_completion_tokens"] == 40
        assert one["input_sequence_length"] == one["usage_prompt_tokens"]
        assert one["spec_decode_accepted_draft_tokens"] >= one["usage_accepted_prediction_tokens"]
        assert one["spec_decode_steps"] > 0
