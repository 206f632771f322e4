"""`python -m lab.bench.start MODEL ...`: seconds to the first and the tenth token of a fresh process, and the
memory of its own that it takes.

Each run is a process of its own that has imported torch; its clock begins there and counts our own imports.
Beside them stand the processor's seconds to the first token, of all threads: they vary less on a shared machine.
Memory is what is not mapped from a file, sampled every few milliseconds, above what the process held at that moment.
"packed": with the packed weights that the run before left. "anew": without (`OUTDRAFT_CACHE=off`). The median counts.
Python's bytecode is kept, as it is for an installed package (`PYTHONDONTWRITEBYTECODE` is not handed on).
"""

import argparse
import json
import os
import subprocess
import sys
from statistics import median

from outdraft.bench.made import make_model
from outdraft.bench.shelf import Shelf
from outdraft.options.errors import OutdraftError

_CHILD = """
import json, sys, threading, time
import torch

def private():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))

held = most = private()
going = True
def sample():
    global most
    while going:
        most = max(most, private())
        time.sleep(0.003)
watch = threading.Thread(target=sample)
watch.start()
try:
    began, processor = time.perf_counter(), time.process_time()
    from outdraft import LLM, SamplingParams
    imported = time.perf_counter() - began
    llm = LLM(sys.argv[1], dtype="bfloat16")
    loaded = time.perf_counter() - began
    passes, used = [], []
    for _ in llm.stream({"prompt_token_ids": [5, 6, 7, 8]}, SamplingParams(max_tokens=10, ignore_eos=True)):
        passes.append(time.perf_counter() - began)
        used.append(time.process_time() - processor)
    from outdraft.engine.assembly.variant import network_of

    size = network_of(llm.engine.parts).pass_bytes
finally:
    going = False
    watch.join()
print(json.dumps({"imported": imported, "loaded": loaded, "first": passes[0], "tenth": passes[-1], "processor": used[0],
                  "private": (most - held) * 1024, "weights": size}))
"""


def run_fresh(model: str, *, kept: bool) -> dict[str, float]:
    """Seconds and bytes of one process. Raises `subprocess.CalledProcessError` where it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    if not kept:
        environment["OUTDRAFT_CACHE"] = "off"
    words = [sys.executable, "-c", _CHILD, model]
    told = subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(json.loads(told.splitlines()[-1]))


def main(words: list[str] | None = None) -> int:
    """Measure the seconds to a first text and the memory of a fresh process, and print both."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.start", description="How soon a process writes.")
    parser.add_argument("model", nargs="+", help="a directory, a GGUF file, or zoo:NAME[@WIDTHxDEPTH][@int8]")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="processes of each kind (default: 3)")
    parser.add_argument("--cache", metavar="DIR", help="where made models are kept")
    asked = parser.parse_args(words)
    try:
        made = [(name, str(make_model(name, Shelf(asked.cache)).path)) for name in asked.model]
    except OutdraftError as error:
        sys.stderr.write(f"outdraft: {error}\n")
        return 2
    sys.stdout.write(f"{'':32} imported  loaded   first   tenth  processor   private memory over packed weights\n")
    try:
        for name, path in made:
            _show(name, path, asked.rounds)
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"outdraft: a process that loads the model ended with status {error.returncode}\n")
        return 1
    return 0


def _show(name: str, path: str, rounds: int) -> None:
    run_fresh(path, kept=True)  # leaves the packed weights
    runs: dict[str, list[dict[str, float]]] = {"packed": [], "anew": []}
    for _ in range(rounds):
        for label, mine in runs.items():
            mine.append(run_fresh(path, kept=label == "packed"))
    for label, mine in runs.items():
        middle = {key: median(run[key] for run in mine) for key in mine[0]}
        seconds = "".join(f"{middle[key]:7.2f}s" for key in ("imported", "loaded", "first", "tenth"))
        seconds += f"{middle['processor']:10.2f}s"
        ratio = middle["private"] / middle["weights"]
        memory = f"{middle['private'] / 2**20:6.0f} MiB = {ratio:.2f} x {middle['weights'] / 2**20:.0f} MiB"
        sys.stdout.write(f"{name:24} {label:7} {seconds}   {memory}\n")


if __name__ == "__main__":
    sys.exit(main())
