"""Record files made up by rule: what `outdraft bench` would write, with the figures that a test asks for."""

import json
import random
from pathlib import Path
from typing import Any

MACHINE = {
    "cpu": "Made-up CPU, AVX2",
    "cores": 2,
    "threads": 1,
    "memory_gb": 8.0,
    "system": "Linux x86_64",
    "python": "3.11.7",
    "torch": "2.9",
    "outdraft": "0.1.0",
}
MODEL = {"name": "zoo:target", "inflate": None, "weights": "abc", "parameters": 15_700_000}
SAMPLING = {"max_tokens": 64, "temperature": 0.0, "seed": None}
RATES = {"ngram k=8": 0.8, "draft_model k=4": 0.65, "eagle k=5": 0.72, "lookahead k=4": 0.5, "early_exit k=3": 0.3}
SPEEDS = {
    "none": 1.0,
    "ngram k=8": 2.2,
    "draft_model k=4": 1.4,
    "eagle k=5": 1.1,
    "lookahead k=4": 1.15,
    "early_exit k=3": 0.6,
}
BY_SUITE = {"copy": 1.4, "prose": 1.1, "code": 0.9, "log": 1.25}


def make_row(
    method: str,
    suite: str,
    prompt: str,
    *,
    speed: float,
    rounds: int = 3,
    noise: float = 0.04,
    rng: random.Random,
    **changes: Any,
) -> dict[str, Any]:
    plain = [0.25 * (1 + noise * rng.random()) for _ in range(rounds)]
    mine = plain if method == "none" else [seconds / speed * (1 + noise * rng.random()) for seconds in plain]
    k = int(method.split("=")[1].split()[0]) if "=" in method else 0
    rate = RATES.get(method, 0.5)
    reached = [round(40 * rate**i) for i in range(k)]
    draft = 0.0 if not k or "ngram" in method else 0.35
    whole = sum(mine) / rounds
    return {
        "kind": "row",
        "key": f"{method} {suite} {prompt}",
        "suite": suite,
        "category": suite,
        "prompt": prompt,
        "method": method,
        "identical": True,
        "difference": None,
        "num_prompt_tokens": 50,
        "num_tokens": 64,
        "num_steps": 64 if not k else 30,
        "num_draft_tokens": 30 * k,
        "num_accepted_tokens": 34 if k else 0,
        "num_rejections": 20 if k else 0,
        "tau": 64 / (30 if k else 64),
        "reached": reached,
        "rejected": [round(n * (1 - rate)) for n in reached],
        "tokens": [64] * rounds,
        "seconds": mine,
        "first_token_seconds": [0.02] * rounds,
        "plain_tokens": [64] * rounds,
        "plain_seconds": plain,
        "plain_first_token_seconds": [0.02] * rounds,
        "split": {"draft": whole * draft, "target": whole * (0.9 - draft), "rest": whole * 0.1},
        "peak_bytes": {"host": 500 << 20},
        "when": "2026-11-21T12:00:00+00:00",
        "load": 0.5,
        "model": MODEL,
        "machine": MACHINE,
        "config": {"model": "target", "dtype": "bfloat16"},
        "sampling": SAMPLING,
        **changes,
    }


def make_curve() -> dict[str, Any]:
    rows = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
    return {
        "kind": "curve",
        "key": "curve",
        "model": MODEL,
        "past": 128,
        "rows": rows,
        "seconds": [0.0034 * (1 + 0.012 * n + 0.0004 * n * n) for n in rows],
        "weight_bytes": 31 << 20,
        "kv_bytes": 4608,
        "flops": 31_500_000,
        "bandwidth": 1.5e10,
        "peak_flops": 6e11,
    }


def make_records(
    methods: dict[str, float] = SPEEDS,
    suites: dict[str, float] = BY_SUITE,
    *,
    prompts: int = 3,
    seed: int = 0,
    **changes: Any,
) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    made = [
        make_row(method, suite, str(prompt), speed=speed if method == "none" else speed * factor, rng=rng, **changes)
        for suite, factor in suites.items()
        for prompt in range(1, prompts + 1)
        for method, speed in methods.items()
    ]
    return [*made, make_curve()]


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path
