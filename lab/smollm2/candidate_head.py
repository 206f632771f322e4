"""Would a low-rank candidate head pay for SmolLM2's drafts? Recall of the whole head's best token, and milliseconds.

    python -m lab.smollm2.candidate_head valid.jsonl --out candidates.json [--texts 20]

    whole        h [n, D] -- W [V', D] --> scores; the best token
    candidates   h -- A [r, D] -- B [V', r] --> the C best ids -- rows of W of these ids --> exact scores of C tokens

SlimSpec, 2026, https://arxiv.org/abs/2605.10453, has such a head. B A is the best map of rank r for the states at hand:
the truncated SVD of W S, S the root of the states' second moments, from half of the texts; the other half is judged.
The head that ships with SmolLM2 (EAGLE-3, 8192 tokens) and its draft model (49152). Times are those of one row and of
eight, on the native kernels with bytes as drafts are served, gather and choice by PyTorch. Data out: JSON, and a table.
"""

import argparse
import gc
import json
import sys
from collections.abc import Callable
from collections.abc import Sequence as Seq
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from lab.smollm2.stop_head import taught
from outdraft import LLM, SamplingParams
from outdraft.core.events import StepEvent
from outdraft.core.learner_registry import find_learner
from outdraft.drafters.shared.networks.prepare import prepare
from outdraft.models.networks.port import TargetPort
from outdraft.nn.linear import Linear
from outdraft.training.computing import open_target
from outdraft.training.lessons import Teacher
from outdraft.weights.hub import resolve
from outdraft.weights.known import usual_model

HOME = Path(__file__).resolve().parents[2] / "src/outdraft/zoo/smollm2"
DEPTH = 3  # drafted tokens of a round
RANKS, COUNTS, ROWS = (32, 64, 128, 256), (32, 128, 512), (1, 8)


def main() -> int:
    """Look at both drafts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("valid")
    parser.add_argument("--out", required=True)
    parser.add_argument("--target", default=usual_model("smollm2")[0])
    parser.add_argument("--texts", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    place = resolve(asked.target)
    target, _ = open_target(place, "auto", "cpu")
    record: dict[str, Any] = {"texts": asked.texts}
    for kind in ("eagle3", "draft_model"):
        drafter = {"name": kind, "model": str(HOME / kind), **({"width": 1} if kind == "eagle3" else {})}
        llm = LLM(str(place), drafter=drafter, policy="fixed", num_speculative_tokens=DEPTH)
        rounds, port = round_of(llm, Path(asked.valid)), port_of(llm)
        llm.close()
        weight, states = seen(kind, target, asked)
        record[kind] = {"round": rounds, **judged(weight, states, port)}
        for line in table(kind, record[kind]):
            sys.stdout.write(line + "\n")
    Path(asked.out).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return 0


def round_of(llm: LLM, path: Path) -> dict[str, float]:
    """Milliseconds of a round with `DEPTH` drafted tokens: of drafting, and of everything."""
    policy: Any = llm.engine.parts.policy
    while hasattr(policy, "inner"):
        policy = policy.inner
    taken: list[tuple[float, float]] = []

    def update(events: Seq[StepEvent]) -> None:
        times = events[0].times
        if events[0].draft_depth == DEPTH:
            taken.append((times.draft, times.draft + times.target + times.rest))

    policy.update = update
    for line in path.read_text(encoding="utf-8").splitlines()[:4]:
        prompt = {"prompt_token_ids": json.loads(line)["prompt_token_ids"]}
        llm.generate(prompt, SamplingParams(temperature=0.0, max_tokens=96))
    draft, whole = (1000 * median(part) for part in zip(*taken, strict=True))
    return {"draft": draft, "whole": whole}


def port_of(llm: LLM) -> TargetPort:
    """The native target, by which maps are packed."""
    return next(one for one in gc.get_objects() if isinstance(one, TargetPort) and llm is not None)


@torch.no_grad()
def seen(kind: str, target: Any, asked: argparse.Namespace) -> tuple[Tensor, list[Tensor]]:
    """The head's matrix [V', D], and of each text the normed states that it reads [n, D]."""
    method = find_learner(kind)
    learner: Any = method.load(method.options(), target, HOME / kind)
    teacher, found = Teacher(target, learner.taps), []
    for rows in taught(Path(asked.valid), asked.texts):
        lesson = teacher.lesson(rows)
        guess = learner.look(lesson).guesses[0]
        states = guess.states[lesson.counts[guess.rows]]
        norm = learner.module.final_norm if kind == "draft_model" else learner.module.norm
        found.append(norm(states).float())
    matrix = learner.module.head_matrix() if kind == "draft_model" else learner.module.lm_head.weight
    return matrix.detach().float(), found


@torch.no_grad()
def judged(weight: Tensor, states: Seq[Tensor], port: TargetPort) -> dict[str, Any]:
    """Recall by rank and number of candidates, and milliseconds."""
    learned, held = torch.cat(list(states[::2])), torch.cat(list(states[1::2]))
    values, vectors = torch.linalg.eigh(learned.T @ learned / len(learned))
    root = vectors * values.clamp_min(1e-6 * float(values[-1])).sqrt()  # S [D, D]
    left = torch.linalg.svd(weight @ root, full_matrices=False)[0]
    whole = held @ weight.T
    best = whole.argmax(-1)
    probs = whole.softmax(-1)
    found: dict[str, Any] = {"rows": len(held), "tokens": len(weight), "whole": timed(weight, None, 0, port), "low": []}
    for rank in RANKS:
        up = left[:, :rank]  # B
        down = up.T @ weight  # A: what W says in these directions
        guessed = held @ down.T @ up.T
        for count in COUNTS:
            top = guessed.topk(count, -1).indices
            found["low"].append(
                {
                    "rank": rank,
                    "count": count,
                    "recall": float((top == best[:, None]).any(-1).float().mean()),
                    "mass": float(probs.gather(-1, top).sum(-1).mean()),
                    "ms": timed(weight, (down, up), count, port),
                }
            )
    return found


class Maps(nn.Module):
    """What a head multiplies by."""

    def __init__(self, *matrices: Tensor) -> None:
        super().__init__()
        self.maps = nn.ModuleList()
        for matrix in matrices:
            linear = Linear(matrix.shape[1], matrix.shape[0], False, torch.bfloat16, torch.device("cpu"))
            linear.weight.data.copy_(matrix)
            self.maps.append(linear)


def timed(weight: Tensor, low: tuple[Tensor, Tensor] | None, count: int, port: TargetPort) -> dict[str, float]:
    """Milliseconds of the choice of a best token, for one row and for several."""
    maps = Maps(*((weight,) if low is None else low))
    prepare(maps, port, "auto")
    rows_of = weight.bfloat16()

    def whole(h: Tensor) -> Tensor:
        best: Tensor = maps.maps[0](h).argmax(-1)
        return best

    def candidates(h: Tensor) -> Tensor:
        top = maps.maps[1](maps.maps[0](h)).topk(count, -1).indices  # [n, C]
        exact = torch.matmul(rows_of[top], h[:, :, None])[:, :, 0]  # [n, C]
        best: Tensor = top.gather(-1, exact.argmax(-1, keepdim=True))[:, 0]
        return best

    way = whole if low is None else candidates
    return {str(n): 1000 * seconds(way, torch.randn(n, weight.shape[1]).bfloat16()) for n in ROWS}


def seconds(way: Callable[[Tensor], Tensor], h: Tensor) -> float:
    """The median of some calls."""
    taken = []
    with torch.inference_mode():
        for _ in range(25):
            began = perf_counter()
            way(h)
            taken.append(perf_counter() - began)
    return median(taken[5:])


def table(kind: str, found: dict[str, Any]) -> list[str]:
    whole = found["whole"]
    lines = [
        f"{kind}: {found['tokens']} tokens, whole head {whole['1']:.2f} ms a row, {whole['8']:.2f} ms eight rows",
        f"a round of {DEPTH} drafted tokens {found['round']['whole']:.1f} ms, "
        f"{found['round']['draft']:.1f} ms of it drafting",
    ]
    lines += ["| rank | candidates | recall of the best | mass of q | ms, 1 row | ms, 8 rows |", "| --: " * 6 + "|"]
    for one in found["low"]:
        lines.append(
            f"| {one['rank']} | {one['count']} | {one['recall']:.3f} | {one['mass']:.3f} "
            f"| {one['ms']['1']:.2f} | {one['ms']['8']:.2f} |"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
