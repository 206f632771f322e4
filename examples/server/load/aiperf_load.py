"""Servers under load side by side, by NVIDIA's load tool AIPerf: a table of throughput, waiting times and errors.

    pip install 'aiperf==0.13.0'                                # in an environment of its own
    python aiperf_load.py --tokenizer DIR outdraft=http://127.0.0.1:8000 llama=http://127.0.0.1:8080 ...

Each server is asked for streams by so many clients at once, each of which asks anew when its answer is whole. Tokens
are counted by AIPerf's own tokenizer (DIR of the model), not by pieces of the stream. Servers take turns at every load.
"""

import argparse
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

BEGINNINGS = (
    "It was late in the evening when", "The old man looked at the sea and", "def main(args):", "Once upon a time",
    "She opened the letter, and", "class Reader:\n    def read(self, path):", "The king had three sons. The",
)  # fmt: skip
COLUMNS = (  # of the record, its unit there, what it is called here
    ("output_token_throughput", "avg", "tokens/s"), ("time_to_first_token", "p50", "first token, ms"),
    ("time_to_first_token", "p99", "p99"), ("inter_token_latency", "p50", "ms/token"),
    ("inter_chunk_latency", "p99", "gap p99, ms"), ("request_count", "avg", "answers"),
    ("error_request_count", "avg", "errors"),
)  # fmt: skip


def read_words() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("servers", nargs="+", metavar="NAME=URL")
    parser.add_argument("--tokenizer", required=True, metavar="DIR")
    parser.add_argument("--model", default="target", help="what all of them call the model")
    parser.add_argument("--load", default="1,4,16,64", help="numbers of clients")
    parser.add_argument("--max-tokens", type=int, default=48)
    return parser.parse_args()


def measure(url: str, clients: int, words: argparse.Namespace, folder: Path) -> dict[str, dict[str, float]]:
    """One run's record."""
    requests = max(8, 2 * clients)
    prompts = [f"{BEGINNINGS[i % len(BEGINNINGS)]} {i}" for i in range(requests)]  # no two are alike
    (folder / "prompts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in prompts))
    asked = [
        "aiperf", "profile", "--model", words.model, "--url", url, "--endpoint-type", "completions", "--streaming",
        "--tokenizer", words.tokenizer, "--input-file", folder / "prompts.jsonl", "--custom-dataset-type",
        "single_turn", "--concurrency", str(clients), "--request-count", str(requests), "--ui", "none",
        "--artifact-dir", folder / "made", "--extra-inputs", f"max_tokens:{words.max_tokens}",
        "--extra-inputs", "temperature:0", "--extra-inputs", "ignore_eos:true",
    ]  # fmt: skip
    shutil.rmtree(folder / "made", ignore_errors=True)
    subprocess.run(asked, check=True, stdout=subprocess.DEVNULL)
    told: dict[str, dict[str, float]] = json.loads((folder / "made/profile_export_aiperf.json").read_text())
    return told


def main() -> None:
    words = read_words()
    print("| clients | server |", *(f"{title} |" for *_, title in COLUMNS))
    print("| --- | --- |", *("--- |" for _ in COLUMNS))
    with tempfile.TemporaryDirectory() as folder:
        for clients in map(int, words.load.split(",")):
            for name, url in (server.split("=", 1) for server in words.servers):
                told = measure(url, clients, words, Path(folder))
                cells = [(told.get(key) or {}).get(column, 0) for key, column, _ in COLUMNS]
                shown = (f"{cell:.0f} |" if cell >= 100 else f"{cell:.3g} |" for cell in cells)
                print(f"| {clients} | {name} |", *shown, flush=True)


if __name__ == "__main__":
    main()
