"""Servers under load side by side, by the load tool GuideLLM: a table of throughput, waiting times and errors.

    pip install 'guidellm==0.8.1'                               # in an environment of its own
    python guidellm_load.py --tokenizer DIR outdraft=http://127.0.0.1:8000 llama=http://127.0.0.1:8080 ...

Each server is asked for streams by so many clients at once, each of which asks anew when its answer is whole. Servers
take turns at every load. GuideLLM asks from one process, which takes little of the machine; AIPerf's takes a whole
core, which servers on the same machine miss.
"""

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

BEGINNINGS = (
    "It was late in the evening when",
    "The old man looked at the sea and",
    "def main(args):",
    "Once upon a time",
    "She opened the letter, and",
    "class Reader:\n    def read(self, path):",
    "The king had three sons. The",
)
COLUMNS = (  # of the report, which number of it, and what it is called here; times are of whole answers
    ("time_to_first_token_ms", "p50", "first token, ms"),
    ("time_to_first_token_ms", "p99", "p99"),
    ("inter_token_latency_ms", "p50", "ms/token then"),
    ("inter_token_latency_ms", "p99", "p99"),
)


def read_words() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("servers", nargs="+", metavar="NAME=URL")
    parser.add_argument("--tokenizer", required=True, metavar="DIR")
    parser.add_argument("--model", default="target", help="what all of them call the model")
    parser.add_argument("--load", default="1,4,16,64", help="numbers of clients")
    parser.add_argument("--max-tokens", type=int, default=48)
    return parser.parse_args()


def measure(url: str, clients: int, words: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One run's figures."""
    requests = max(16, 2 * clients)
    prompts = [f"{BEGINNINGS[i % len(BEGINNINGS)]} {i}" for i in range(requests)]  # no two are alike
    (folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": text}) + "\n" for text in prompts))
    backend = {
        "kind": "openai_http",
        "target": url,
        "model": words.model,
        "request_format": "/v1/completions",
        "http2": False,
        "max_tokens": words.max_tokens,
        "extras": {"body": {"temperature": 0, "ignore_eos": True}},
    }
    asked = [
        "guidellm",
        "run",
        "--backend",
        json.dumps(backend),
        "--profile",
        f"kind=concurrent,streams={clients}",
        "--constraint",
        f"kind=max_requests,count={requests}",
        "--tokenizer",
        f"kind=hf_auto,model={words.tokenizer}",
        "--data",
        f"kind=json_file,path={folder / 'prompts.jsonl'}",
        "--output",
        f"kind=json,path={folder / 'report.json'}",
        "--disable-console",
    ]
    subprocess.run(
        asked, check=True, stderr=subprocess.DEVNULL, env={**os.environ, "GUIDELLM__MAX_WORKER_PROCESSES": "1"}
    )
    (run,) = json.loads((folder / "report.json").read_text())["benchmarks"]
    answers = run["requests"]["successful"]
    seconds = max(one["request_end_time"] for one in answers) - min(one["request_start_time"] for one in answers)
    tokens = sum(one["output_tokens"] for one in answers)
    told = {"tokens": tokens / seconds, "answers": len(answers), "errors": run["metrics"]["request_totals"]["errored"]}
    for name, number, _ in COLUMNS:
        told[f"{name} {number}"] = run["metrics"][name]["successful"]["percentiles"][number]
    return told


def main() -> None:
    words = read_words()
    print("| clients | server | tokens/s |", *(f"{title} |" for *_, title in COLUMNS), "answers | errors |")
    print("| --- " * (5 + len(COLUMNS)) + "|")
    with tempfile.TemporaryDirectory() as made:
        for clients in map(int, words.load.split(",")):
            for name, _, url in (one.partition("=") for one in words.servers):
                told = measure(url, clients, words, Path(made))
                shown = (f"{told[f'{column} {number}']:.3g}" for column, number, _ in COLUMNS)
                row = [str(clients), name, f"{told['tokens']:.0f}", *shown, str(told["answers"]), str(told["errors"])]
                print("|", *(f"{cell} |" for cell in row), flush=True)


if __name__ == "__main__":
    main()
