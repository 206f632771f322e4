"""`python -m lab.bench.peer_files FILE.gguf ... --peer DIR`: GGUF files in outdraft and in llama.cpp, side by side.

`DIR` holds llama.cpp's programs `llama-bench` and `llama-batched-bench`. Both engines open the same file in a new
process each time, in turn, on the same number of threads, with the file in the page cache: tokens a second of plain
decoding, milliseconds of a pass of 5 and 9 rows and of a prompt, the most memory above a process that has loaded no
model, seconds of loading. Medians over the rounds; ratios are medians of each round's own.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence as Seq
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from outdraft.bench.memory import forget_peak, read_peak
from outdraft.weights.gguf import GgufFile

ROWS = (5, 9)
PROMPT = 661  # tokens


def measure_ours(path: str, threads: int, num_tokens: int) -> dict[str, float]:
    """In this process: seconds and bytes of outdraft."""
    import torch

    from outdraft.bench.curve import measure_curve
    from outdraft.engine.llm import LLM
    from outdraft.options.params import SamplingParams

    torch.set_num_threads(threads)
    forget_peak("cpu")
    before = read_peak("cpu")["host"]
    began = perf_counter()
    llm = LLM(path, drafter="none")
    found = {"load": perf_counter() - began}
    llm.generate({"prompt_token_ids": [5]}, SamplingParams(max_tokens=4, ignore_eos=True))
    began = perf_counter()
    llm.generate({"prompt_token_ids": [1]}, SamplingParams(max_tokens=num_tokens, ignore_eos=True))
    found["tokens"] = num_tokens / (perf_counter() - began)
    llm.forget()
    began = perf_counter()
    llm.generate(
        {"prompt_token_ids": [7 + i * 7 % 997 for i in range(PROMPT)]}, SamplingParams(max_tokens=1, ignore_eos=True)
    )
    found[str(PROMPT)] = perf_counter() - began
    curve = measure_curve(llm, rows=(1, *ROWS), past=16, budget=2)
    found |= {str(count): seconds for count, seconds in zip(curve.rows, curve.seconds, strict=True)}
    found["read"] = curve.weight_bytes / curve.bandwidth
    return found | {"memory": read_peak("cpu")["host"] - before}


def measure_theirs(programs: Path, path: str, threads: int, num_tokens: int) -> dict[str, float]:
    """Seconds and bytes of llama.cpp, by its own two measuring programs, each run once."""
    alone = ["-r", "1", "-o", "json", "-p", str(PROMPT), "-n", str(num_tokens)]
    rows, memory = _run(programs / "llama-bench", path, threads, alone)
    found = {str(row["n_prompt"]): row["avg_ns"] / 1e9 for row in json.loads(rows) if row["n_prompt"]}
    found["tokens"] = next(row["avg_ts"] for row in json.loads(rows) if row["n_gen"])
    many = ["-c", "2048", "-npp", "16", "-ntg", "16", "-npl", ",".join(map(str, ROWS)), "--output-format", "jsonl"]
    lines, _ = _run(programs / "llama-batched-bench", path, threads, many)
    steps = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    return found | {str(step["pl"]): step["t_tg"] / step["tg"] for step in steps} | {"memory": memory}


def _run(program: Path, path: str, threads: int, words: list[str]) -> tuple[str, float]:
    """What it prints, and the most bytes that it held."""
    command = [str(program), "-m", path, "-t", str(threads), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        assert running.stdout
        text = running.stdout.read()
        _, status, used = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode:
        raise SystemExit(f"{program} ended with {running.returncode} on {path}")
    return text, used.ru_maxrss * 1024.0


def shares(path: str) -> str:
    """The share of each type in a file that has one per cent or more: "Q4_K 70 %, Q6_K 30 %"."""
    found = GgufFile(Path(path)).shares()
    return ", ".join(f"{name} {round(100 * share)} %" for name, share in found.items() if share >= 0.01)


def measure(path: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Rounds of both on one file."""
    ours, theirs = [], []
    for _ in range(asked.rounds):
        words = [sys.executable, "-m", "lab.bench.peer_files", path, "--ours", "--threads", str(asked.threads)]
        told = subprocess.run([*words, "--tokens", str(asked.tokens)], capture_output=True, text=True, check=True)
        ours.append(json.loads(told.stdout))
        if asked.peer:
            theirs.append(measure_theirs(asked.peer, path, asked.threads, asked.tokens))
    return {"file": path, "bytes": Path(path).stat().st_size, "shares": shares(path), "ours": ours, "theirs": theirs}


def show(found: dict[str, Any]) -> str:
    """One line of the table."""
    ours, theirs = found["ours"], found["theirs"]

    def middle(rounds: Seq[dict[str, float]], name: str) -> float:
        return median(one[name] for one in rounds)

    name = re.sub(r"\.gguf$", "", Path(found["file"]).name)
    cells = [f"{name} ({found['shares']})", f"{found['bytes'] / 1e6:.0f}"]
    for what in ("tokens", *map(str, ROWS), str(PROMPT)):
        scale, digits = (1, 1) if what == "tokens" else (1000, 1)
        cell = f"{middle(ours, what) * scale:.{digits}f}"
        if theirs:
            ratio = median(a[what] / b[what] for a, b in zip(ours, theirs, strict=True))
            ratio = ratio if what == "tokens" else 1 / ratio
            cell += f" / {middle(theirs, what) * scale:.{digits}f} ({ratio:.2f}x)"
        cells.append(cell)
    cells.append(f"{median(one['9'] / one['1'] for one in ours):.2f}")
    cells.append(f"{median(one['read'] / one['1'] for one in ours):.2f}")
    cells.append(f"{middle(ours, 'memory') / 1e6:.0f}" + (f" / {middle(theirs, 'memory') / 1e6:.0f}" if theirs else ""))
    cells.append(f"{middle(ours, 'load'):.2f}")
    return "| " + " | ".join(cells) + " |"


def main(words: list[str] | None = None) -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.peer_files", description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("files", nargs="+", help="GGUF files")
    parser.add_argument("--peer", type=Path, help="the folder of llama.cpp's programs")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64, help="that plain decoding writes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="a JSON line for each file is added to it")
    parser.add_argument("--ours", action="store_true", help=argparse.SUPPRESS)  # in a process of its own
    asked = parser.parse_args(words)
    if asked.ours:
        sys.stdout.write(json.dumps(measure_ours(asked.files[0], asked.threads, asked.tokens)))
        return 0
    titles = ["file (share of each type)", "MB", "tokens/s", *(f"{count} rows, ms" for count in ROWS)]
    titles += [f"prompt of {PROMPT}, ms", "9 rows over 1", "of the read limit", "memory, MB", "load, s"]
    sys.stdout.write("| " + " | ".join(titles) + " |\n|" + " --- |" * len(titles) + "\n")
    for path in asked.files:
        found = measure(path, asked)
        sys.stdout.write(show(found) + "\n")
        sys.stdout.flush()
        if asked.out:
            with asked.out.open("a") as out:
                out.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
