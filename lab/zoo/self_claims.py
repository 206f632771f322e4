"""Claims about targets that are trained for their own drafters, on the zoo's target and its own texts.

    python -m lab.zoo.self_claims layerskip     the exit agrees with the full model by 0.15 more, loss + 2 % at most
    python -m lab.zoo.self_claims cllm          1.3 times the tokens a pass of Jacobi iteration, loss + 5 % at most
        --tokens 600000 --rates 0.005 --tries 1 --set rank=128      settings of the loop, and options of the kind

A rate is chosen on the first seed: that of the largest gain within the bound on the loss, or, where none is within it,
that of the least loss. The rates grow until the best is inside; the other seeds learn at it. The loss is that of
held-out texts which the original wrote at temperature 1, so it cannot fall but by chance. CLLM is judged by an engine,
greedy, on each target's own answers up to where they begin to loop: three tokens stand there for a second time.
"""

import argparse
import gzip
import json
import sys
from collections.abc import Callable
from collections.abc import Sequence as Seq
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import torch

from outdraft import LLM, SamplingParams
from outdraft.engine.callers.result import all_whole
from outdraft.nn.packed import PackedContext
from outdraft.training.course import Course, prepare
from outdraft.training.plan import make_plan
from outdraft.training.train import own_nats, save_draft

HOME = Path(__file__).parent / "claims"
GOALS = {"layerskip": (0.15, 0.02), "cllm": (1.3, 0.05)}  # the gain, and how much of the loss may be lost
OPTIONS: dict[str, dict[str, Any]] = {
    "layerskip": {"exit_layer": 3, "rank": 128, "alpha": 128.0, "exit_scale": 0.5, "dropout": 0.05},
    "cllm": {"rank": 32, "alpha": 32.0, "window": 8, "windows": 12, "own_weight": 10.0},
}
LOOP = {"seq_len": 192, "batch_tokens": 1536, "micro_tokens": 1536, "warmup": 10, "decay_share": 1.0}
PROMPTS, ANSWER, LEAST = 64, 32, 6  # answers that loop at once are left out


def train(kind: str, rate: float, seed: int, tokens: int, place: Path) -> Course:
    """A course that has learned at this rate of the changes; its weights are the last, not those of the best exam."""
    loop = {**LOOP, "muon_lr": rate, "eval_every": 1 << 30, "save_every": 1 << 30}
    given = {
        "kind": kind,
        "target": "zoo:target",
        "out": str(place),
        "tokens": tokens,
        "seed": seed,
        "dtype": "float32",
    }
    data = {"data": (str(HOME / "train.jsonl.gz"),), "valid": (str(HOME / "test.jsonl.gz"),)}
    course = prepare(make_plan({**given, **data, "options": OPTIONS[kind], "loop": loop}), lambda line: None)
    course.loop.run()
    return course


@torch.no_grad()
def agreement(course: Course) -> dict[str, float]:
    """How often the exit's likeliest token is the full model's, of the original and of the changed target."""
    learner: Any = course.learner
    teacher, same, count = course.teacher, {"before": 0, "after": 0}, 0
    for rows in course.judge.exam.batches:
        lesson = teacher.lesson(rows)
        for name, network in (("before", teacher.target), ("after", learner._taught.network)):
            read, context = lesson.ids[:, :-1].flatten(), PackedContext(*lesson.shape, lesson.documents[:, :-1])
            h = network.embed(read, lesson.positions)
            found = network.run(h, lesson.positions, context, taps=(learner.exit_layer,))
            exits, whole = (
                teacher.logits(one[lesson.counts]).argmax(-1) for one in (found.taps[learner.exit_layer], found.hidden)
            )
            same[name] += int((exits == whole).sum())
        count += int(lesson.counts.sum())
    return {name: number / count for name, number in same.items()}


def tokens_a_pass(course: Course) -> dict[str, float]:
    """Of the drafter `jacobi`, greedy, on each target's own answers up to where they begin to loop."""
    out, found = Path(course.plan.out), {}
    save_draft(course, out)
    for name, place in (("before", course.source), ("after", out / "target")):
        plain = LLM(place, drafter="none", dtype="float32")
        prompts = [{"prompt_token_ids": line["prompt_token_ids"]} for line in _lines(HOME / "test.jsonl.gz")[:PROMPTS]]
        written = all_whole(plain.generate(prompts, SamplingParams(max_tokens=ANSWER, ignore_eos=True)))
        lengths = [straight(one.token_ids) for one in written]
        asked = [(prompt, length) for prompt, length in zip(prompts, lengths, strict=True) if length >= LEAST]
        iterating = plain.with_drafter({"name": "jacobi", "window": 16}, num_speculative_tokens=16)
        settings = [SamplingParams(max_tokens=length, ignore_eos=True) for _, length in asked]
        stats = [one.stats for one in all_whole(iterating.generate([prompt for prompt, _ in asked], settings))]
        found[name] = sum(one.num_tokens - 1 for one in stats) / max(1, sum(one.num_steps - 1 for one in stats))
        found[f"tokens {name}"] = float(sum(one.num_tokens for one in stats))
    return found


def straight(ids: Seq[int]) -> int:
    """The tokens before three of them stand there for a second time."""
    seen = set[tuple[int, ...]]()
    for i in range(len(ids) - 2):
        if (gram := tuple(ids[i : i + 3])) in seen:
            return i + 2
        seen.add(gram)
    return len(ids)


def _lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def judged(kind: str, rate: float, seed: int, tokens: int) -> dict[str, Any]:
    """One run: what it gained, and what it cost."""
    began = process_time()
    with TemporaryDirectory() as place:
        course = train(kind, rate, seed, tokens, Path(place))
        seconds = process_time() - began
        seen = agreement(course) if kind == "layerskip" else tokens_a_pass(course)
        before, after = own_nats(course.learner, course.teacher, course.judge.exam)
    gain = seen["after"] - seen["before"] if kind == "layerskip" else seen["after"] / max(seen["before"], 1e-9)
    run = {"kind": kind, "rate": rate, "seed": seed, "tokens": tokens, "seconds": round(seconds), "gain": gain}
    return {**run, "seen": seen, "nats": [before, after], "worse": after / before - 1}


def chosen(runs: dict[float, dict[str, Any]], most: float) -> float:
    """The rate of the largest gain within the bound; where there is none, the one that is nearest to it."""
    within = [rate for rate, run in runs.items() if run["worse"] <= most]
    if within:
        return max(within, key=lambda rate: runs[rate]["gain"])
    return min(runs, key=lambda rate: runs[rate]["worse"])


def search(run: Callable[[float], dict[str, Any]], rates: list[float], most: float, tries: int) -> float:
    """Try the rates, and beyond the edge at which the best is, so often at most."""
    runs = {rate: run(rate) for rate in rates}
    while len(runs) < tries and (best := chosen(runs, most)) in (min(runs), max(runs)):
        rate = best * 2 if best == max(runs) else best / 2
        runs[rate] = run(rate)
    return chosen(runs, most)


def main() -> None:
    """A line of JSON for each run, then the mean of three seeds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kind", choices=sorted(GOALS))
    parser.add_argument("--rates", type=float, nargs="+", default=[0.01, 0.02, 0.04])
    parser.add_argument("--tries", type=int, default=6, help="rates at most")
    parser.add_argument("--tokens", type=int, default=60_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=NUMBER", help="an option of the kind")
    asked = parser.parse_args()
    OPTIONS[asked.kind] |= {name: json.loads(number) for name, _, number in (one.partition("=") for one in asked.set)}
    torch.set_num_threads(1)
    kind, (goal, most) = asked.kind, GOALS[asked.kind]
    made: dict[tuple[float, int], dict[str, Any]] = {}

    def run(rate: float, seed: int = 0) -> dict[str, Any]:
        if (rate, seed) not in made:
            made[rate, seed] = judged(kind, rate, seed, asked.tokens)
            sys.stdout.write(json.dumps(made[rate, seed]) + "\n")
            sys.stdout.flush()
        return made[rate, seed]

    rate = search(run, asked.rates, most, asked.tries)
    runs = [run(rate, seed) for seed in range(asked.seeds)]
    for name in ("gain", "worse"):
        values = [one[name] for one in runs]
        error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
        sys.stdout.write(f"{name} at rate {rate:g}: {mean(values):.4f} ± {error:.4f}\n")
    sys.stdout.write(f"goal: gain {goal}, worse by {most} at most\n")


if __name__ == "__main__":
    main()
