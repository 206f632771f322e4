"""Drafts of every family for SmolLM2, trained beside each other on one device on equal texts for equal seconds.

    python3 -m lab.smollm2.train_all MODEL ANSWERS... --out OUT --device cuda --seconds 270

    ANSWERS   what `answers.py` or `batch_answers.py` wrote: .jsonl, .jsonl.gz, .npz.xz, or directories of them
    OUT       parts/drafts.tar.00, .01, ...     all that comes of it, in files of 15 MB: `cat parts/* | tar -x`
              KIND.tar.xz                       one draft: config.json, model.safetensors (bfloat16), training.json
              KIND/, KIND.log, data/            the runs themselves
              summary.json                      a line of figures for each kind

A share of the answers is held out by a hash of their prompt; of these the greedy ones are also judged greedily. Every
kind is a process (`train_one.py`). It ends by itself; behind `--grace` seconds more it is asked to stop and to save its
best weights, and at last killed.
"""

import argparse
import gzip
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from lab.smollm2.kinds import LOOPS, OPTIONS, SHIPPED
from lab.smollm2.whole_rows import HELD_OUT, is_held_out

PART = 15_000_000  # bytes of a file that is carried home
THREADS = "2"
LAST = 45  # seconds from being asked to stop to being killed
LOOP = {  # small steps with a long decay taught the EAGLE family most (docs/training.md)
    "batch_tokens": 4096,
    "micro_tokens": 4096,
    "seq_len": 1024,
    "warmup": 50,
    "save_every": 1000,
    "decay_share": 4.0,
    "lr": 2e-3,
    "muon_lr": 6e-3,
}


def main() -> int:
    """Split the answers, train all kinds at once, pack what came of it."""
    asked = arguments().parse_args()
    out = asked.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    began = monotonic()
    say(f"answers: {split(asked.answers, out / 'data', asked.held_out)}, {monotonic() - began:.0f} s")
    limit = asked.grace + asked.seconds
    running = {kind: start(kind, asked, out) for kind in asked.kinds.split(",")}
    began, stopped = monotonic(), False
    while any(one.poll() is None for one in running.values()):
        sleep(1)
        late = monotonic() - began - limit
        if late > 0 and not stopped:
            stopped = True
            send(running, signal.SIGTERM)
        if late > LAST:
            send(running, signal.SIGKILL)
    say(f"codes: { {kind: one.returncode for kind, one in running.items()} }, {monotonic() - began:.0f} s")
    summary = {kind: figures(out / kind / "training.json") for kind in running}
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    for kind, found in summary.items():
        say(f"{kind}: {json.dumps(found)}")
        if found is None:
            say("".join((out / f"{kind}.log").read_text(encoding="utf-8").splitlines(keepends=True)[-30:]))
    parts = pack(out, [*running])
    say(f"packed: {len(parts)} files, {sum(part.stat().st_size for part in parts) / 1e6:.1f} MB")
    return 0 if all(summary.values()) else 1


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("answers", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--seconds", type=float, default=270, help="of training steps, for each kind")
    parser.add_argument("--grace", type=float, default=150, help="seconds for loading, evaluations and saving")
    parser.add_argument("--held-out", type=float, default=HELD_OUT, help="share of the prompts")
    parser.add_argument("--kinds", default=",".join(SHIPPED), help=f"of {', '.join(OPTIONS)}")
    parser.add_argument("--plan", default="{}", help='JSON that changes plans: {"all": {...}, "eagle3": {...}}')
    return parser


def start(kind: str, asked: argparse.Namespace, out: Path) -> subprocess.Popen[bytes]:
    """A process that trains this kind, its words in OUT/KIND.log."""
    given = json.loads(asked.plan)
    more, also = given.get("all", {}), given.get(kind, {})
    plan = {
        "kind": kind,
        "target": str(Path(asked.model).resolve()),
        "out": str(out / kind),
        "data": [str(out / "data" / "train.jsonl")],
        "valid": [str(out / "data" / "valid.jsonl")],
        "depth": 4 if kind in ("hydra", "medusa") else 5,
        "device": asked.device,
        "dtype": asked.dtype,
        "held_out_texts": 32,
        **more,
        **also,
        "options": {**OPTIONS[kind], **also.get("options", {})},
        "loop": {
            **LOOP,
            "seconds": asked.seconds,
            **LOOPS.get(kind, {}),
            **more.get("loop", {}),
            **also.get("loop", {}),
        },
    }
    root = Path(__file__).resolve().parents[2]
    paths = [str(root / "src"), str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": THREADS,
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    }
    with ExitStack() as files:
        log = files.enter_context((out / f"{kind}.log").open("wb"))
        command = [sys.executable, str(root / "lab" / "smollm2" / "train_one.py"), json.dumps(plan)]
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=root)


def send(running: dict[str, subprocess.Popen[bytes]], number: signal.Signals) -> None:
    for one in running.values():
        if one.poll() is None:
            one.send_signal(number)


def split(paths: list[Path], place: Path, held_out: float) -> dict[str, int]:
    """train.jsonl, valid.jsonl and greedy.jsonl (of the held-out ones) in `place`; how many answers each has."""
    place.mkdir(parents=True, exist_ok=True)
    counts = {"train": 0, "valid": 0, "greedy": 0, "tokens": 0}
    with ExitStack() as files:
        outs = {
            name: files.enter_context((place / f"{name}.jsonl").open("w", encoding="utf-8"))
            for name in ("train", "valid", "greedy")
        }
        for record in answers(paths):
            prompt, own = record["prompt_token_ids"], record["token_ids"]
            if len(own) < 2:
                continue
            is_held = is_held_out(prompt, held_out)
            names = ["valid"] if is_held else ["train"]
            if is_held and record.get("temperature", (record.get("asked") or [1.0])[0]) == 0:
                names.append("greedy")
            for name in names:
                outs[name].write(json.dumps({"prompt_token_ids": prompt, "token_ids": own}) + "\n")
                counts[name] += 1
            counts["tokens"] += len(prompt) + len(own)
    return counts


def answers(paths: list[Path]) -> Iterator[dict[str, Any]]:
    """Every answer of the files. Of a file that was cut while it was written, the answers before the cut."""
    for path in paths:
        ends = (".jsonl", ".jsonl.gz", ".npz.xz")
        inside = sorted(file for file in path.rglob("*") if file.name.endswith(ends)) if path.is_dir() else [path]
        for file in inside:
            try:
                if file.name.endswith(".npz.xz"):
                    from lab.smollm2.packed import examples

                    yield from examples(file)
                    continue
                opened = gzip.open if file.suffix == ".gz" else open
                with opened(file, "rt", encoding="utf-8") as lines:
                    yield from map(json.loads, lines)
            except (EOFError, OSError, ValueError) as error:
                say(f"{file}: {error}; what stands before is taken")


def figures(record: Path) -> dict[str, Any] | None:
    """The figures of a record; None where there is none."""
    if not record.exists():
        return None
    found: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
    return {key: found[key] for key in ("steps", "tokens", "seconds", "exams")}


def pack(out: Path, kinds: list[str]) -> list[Path]:
    """One archive of all drafts, logs and figures, cut into parts."""
    place = out / "parts"
    place.mkdir(exist_ok=True)
    whole = place / "drafts.tar"
    with tarfile.open(whole, "w") as archive:
        for name in ("summary.json", *(f"{kind}.{end}" for kind in kinds for end in ("log", "tar.xz"))):
            if (out / name).exists():
                archive.add(out / name, name)
    parts: list[Path] = []
    with whole.open("rb") as file:
        while piece := file.read(PART):
            parts.append(place / f"drafts.tar.{len(parts):02d}")
            parts[-1].write_bytes(piece)
    whole.unlink()
    return parts


def say(line: str) -> None:
    sys.stdout.write(line.rstrip("\n") + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
