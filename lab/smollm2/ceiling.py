"""What offline training on a stream's requests would gain: the ceiling of a draft that keeps learning.

    python -m lab.smollm2.ceiling forms.jsonl valid.jsonl --out forms.json [--epochs 8] [--rates 1 3 10]

For each rate one run over the requests that are not held out, with the learner's own steps (`training/live.py`), and
checkpoints after 1, 2, 4 and 8 epochs: each is judged on the held-out requests and on held-out answers of the head's
training (`train_all.split` writes valid.jsonl). `--also` judges drafts that `outdraft adapt` wrote. An interrupted run
goes on, and so does one that is asked for more. The target's states are kept in memory: they are the same in every
epoch. Data out: a JSON record, and a table.
"""

import argparse
import json
import random
import sys
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import asdict, replace
from io import BytesIO
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch

from outdraft.adapt.learning import Learning
from outdraft.learn.save import put_back
from outdraft.options.new_file import new_file
from outdraft.training.computing import open_target
from outdraft.training.live import LiveDraft
from outdraft.training.served import ServedRequest, read_served
from outdraft.weights.hub import resolve
from outdraft.weights.known import usual_model

CHECKPOINTS = (1, 2, 4, 8)
LR, MUON_LR = 3e-4, 1e-3  # at a rate of 1
HEAD = Path(__file__).resolve().parents[2] / "src/outdraft/zoo/smollm2/eagle3"
_TOGETHER = 8  # requests of one pass
_AGAIN = 4000  # samples of a bootstrap

Record = dict[str, Any]


def main() -> int:
    """Train, judge, print."""
    asked = arguments().parse_args()
    settings = Learning(
        held_out=asked.held_out,
        depth=asked.depth,
        temperature=asked.temperature,
        states_bytes=asked.bytes,
        share=asked.share,
        rank=asked.rank,
        weigh=asked.weigh,
    )
    about = {**asdict(settings), "stream": asked.stream.name, "old": asked.old_count, "dtype": asked.dtype}
    about |= {"last": asked.last} if asked.last else {}
    record: Record = {"about": about, "judged": {}}
    if asked.out.exists():
        record = json.loads(asked.out.read_text(encoding="utf-8"))
        if record["about"] != about:
            raise SystemExit(f"{asked.out} holds a run with {record['about']}, not {about}: name another file")
    live = LiveDraft(open_target(resolve(asked.target), asked.dtype, "cpu"), asked.draft, settings)
    requests, old = read_served(asked.stream), read_served(asked.old)[: asked.old_count]
    held = [one for one in requests if one.number < settings.held_out]
    learned = [one for one in requests if one.number >= settings.held_out]
    if asked.last:
        learned, held = requests[: -asked.last], requests[-asked.last :]
    say(f"{live.line}; {len(learned)} requests to learn from, {len(held)} held out, {len(old)} of before")

    def keep(name: str, seconds: float) -> None:
        record["judged"][name] = {"held": judge(live, held), "old": judge(live, old), "seconds": round(seconds)}
        with new_file(asked.out) as beside:
            beside.write_text(json.dumps(record) + "\n", encoding="utf-8")
        say(line_of(name, record["judged"]))

    if "frozen" not in record["judged"]:
        keep("frozen", 0.0)
    for place in asked.also:
        put_back(live.learner.module, live.read(place))
        keep(place.name, 0.0)
    for rate in asked.rates:
        train(live, settings, rate, learned, asked, keep)
    sys.stdout.writelines(line_of(name, record["judged"]) + "\n" for name in record["judged"])
    return 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("stream", type=Path, help="what streams.py wrote")
    parser.add_argument("old", type=Path, help="held-out answers of the head's training")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--target", default=usual_model("smollm2")[0])
    parser.add_argument("--draft", type=Path, default=HEAD)
    parser.add_argument("--epochs", type=int, default=CHECKPOINTS[-1])
    parser.add_argument(
        "--rates", type=float, nargs="*", default=[1.0, 3.0, 10.0], help=f"times {LR:g} and {MUON_LR:g}"
    )
    parser.add_argument(
        "--also", type=Path, nargs="*", default=[], help="drafts that `outdraft adapt` wrote: judged too"
    )
    parser.add_argument("--held-out", type=float, default=Learning().held_out)
    parser.add_argument("--depth", type=int, default=Learning().depth)
    parser.add_argument("--last", type=int, default=0, help="hold out the last requests, in place of a share")
    parser.add_argument("--temperature", type=float, default=Learning().temperature)
    parser.add_argument("--share", type=float, default=1.0, help="judge a share of the way from the head to there, too")
    parser.add_argument("--rank", type=int, default=0, help="of what a matrix learns; 0: any")
    parser.add_argument("--weigh", default="even", help="positions of a guess: early, late, even")
    parser.add_argument("--old-count", type=int, default=60)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--bytes", type=int, default=1 << 30, help="of the target's states in memory")
    return parser


def train(
    live: LiveDraft, settings: Learning, rate: float, requests: Seq[ServedRequest], asked: argparse.Namespace, keep: Any
) -> None:
    """One run, from its last epoch on."""
    live.settings = replace(settings, lr=LR * rate, muon_lr=MUON_LR * rate)
    live.go_back()
    place, done, seconds = asked.out.with_suffix(f".{rate:g}.pt"), 0, 0.0
    if place.exists():
        saved = torch.load(place, weights_only=True)
        done, seconds = saved["epochs"], saved["seconds"]
        put_back(live.learner.module, saved["weights"])
        live.optimizer.load_state(saved["optimizer"])
    for epoch in range(done, asked.epochs):
        began, losses = monotonic(), list[float]()
        for some in steps(live, requests, epoch):
            losses.append(live.step(some))
            if len(losses) % 10 == 0:
                say(f"rate {rate:g}, epoch {epoch + 1}, {len(losses)} steps, {monotonic() - began:.0f} s")
        seconds += monotonic() - began
        remembered = BytesIO()
        torch.save(live.optimizer.state(), remembered)
        told = f"loss {sum(losses) / len(losses):.4f}, {seconds:.0f} s, the optimiser {remembered.tell()} bytes"
        say(f"rate {rate:g}: {epoch + 1} epochs, {told}")
        if epoch + 1 in CHECKPOINTS:
            keep(f"rate {rate:g}, {epoch + 1} epochs", seconds)
            if asked.share < 1:
                now = live.weights()
                put_back(live.learner.module, live.candidate())
                keep(f"rate {rate:g}, {epoch + 1}, a share of {asked.share:g}", seconds)
                put_back(live.learner.module, now)
        with new_file(place) as beside:
            state = {"weights": dict(live.weights()), "optimizer": live.optimizer.state()}
            torch.save({**state, "epochs": epoch + 1, "seconds": seconds}, beside)


def steps(live: LiveDraft, requests: Seq[ServedRequest], epoch: int) -> Iterator[list[ServedRequest]]:
    """All requests in an order of this epoch, in steps of the learner's size."""
    order = random.Random(epoch).sample(requests, len(requests))
    while order:
        some, room = list[ServedRequest](), live.settings.step_tokens
        while order and room > 0:
            some.append(order.pop())
            room -= live.length(some[-1])
        yield some


def judge(live: LiveDraft, requests: Seq[ServedRequest]) -> list[float]:
    """Accepted tokens a round on each, by what was learned."""
    now = live.weights()
    parts = [requests[start : start + _TOGETHER] for start in range(0, len(requests), _TOGETHER)]
    return [one for part in parts for one in live.judge(part, [now])[0]]


def line_of(name: str, judged: Record) -> str:
    """The gain on held-out requests, and the change of tokens a pass on answers of before, in shares."""
    one, frozen = judged[name], judged["frozen"]
    gain = interval(one["held"], frozen["held"], lambda new, old: (new - old).mean(-1))
    told = [("gain", gain)]
    if one["old"]:
        lost = interval(one["old"], frozen["old"], lambda new, old: (new.mean(-1) + 1) / (old.mean(-1) + 1) - 1)
        told.append(("before", lost))
    shown = "; ".join(f"{what} {mean:+.3f} ({low:+.3f} to {high:+.3f})" for what, (mean, low, high) in told)
    level = sum(one["held"]) / len(one["held"])
    return f"{name:20s} {level:.3f} accepted a round, {shown}; {one['seconds']} s"


def interval(new: Seq[float], old: Seq[float], statistic: Any) -> tuple[float, float, float]:
    """The statistic of both, and 95 % of its bootstrap over requests."""
    a, b = np.array(new), np.array(old)
    chosen = np.random.default_rng(0).integers(len(a), size=(_AGAIN, len(a)))
    low, high = np.quantile(statistic(a[chosen], b[chosen]), [0.025, 0.975])
    return float(statistic(a, b)), float(low), float(high)


def say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
