"""SpecDec++'s head on a real pair: SmolLM2 and the draft model that ships for it, against the draft's own probability.

    python -m lab.smollm2.stop_head train.jsonl valid.jsonl --out stops.json [--texts 64] [--prompts 24]

Two heads, one of which reads the draft's probability too, learn from the same examples of `train.jsonl` (answers as
ids). Then greedy answers to the prompts of `valid.jsonl` are written with chains of `--depth` tokens, one text at a
time, and of every chain each token's state, probability and fate is kept. A rule that ends chains is judged on these
chains: tokens a pass, and tokens a second at the price of a draft token and of a pass by its rows, both measured here.
Half of the texts choose each rule's threshold (and the best fixed depth), the other half judge it, and the other way
round. Data out: a JSON record, and a table.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from outdraft import LLM, SamplingParams
from outdraft.control.acceptance_head.examples import Examples, examples_of
from outdraft.control.acceptance_head.learn import LEARN, AcceptanceLearner, AcceptanceLearning, auc
from outdraft.core.policy import Budget, StateJudge
from outdraft.core.sequence import Sequence
from outdraft.training.computing import open_target
from outdraft.training.lessons import Teacher
from outdraft.training.packing import PackedRows
from outdraft.weights.hub import resolve
from outdraft.weights.known import usual_model

DRAFT = Path(__file__).resolve().parents[2] / "src/outdraft/zoo/smollm2/draft_model"
WARM = 3  # rounds of a text whose times do not count
LENGTH = 192  # tokens of a text that are learned from, at most


@dataclass(frozen=True, slots=True)
class Chain:
    """One round's chain of K tokens."""

    states: Tensor  # [K - 1, W] that have read each token but the last
    told: list[float]  # [K - 1] the draft's probability of each
    accepted: int  # of the K

    def ended(self, chances: Seq[float], least: float, shortest: int) -> int:
        """How many tokens are drafted where a chain ends once the product of its chances falls below `least`."""
        survival = 1.0
        for drafted, chance in enumerate(chances, start=1):
            survival *= chance
            if drafted >= shortest and survival < least:
                return drafted
        return len(chances) + 1


class Judge:
    """Lets every token pass and keeps what it was shown."""

    def __init__(self) -> None:
        self.states: list[Tensor] = []
        self.told: list[float] = []

    def __call__(self, states: Tensor, told: Tensor) -> Tensor:
        self.states.append(states[0].float().clone())
        self.told += told.tolist()
        return torch.ones(len(states))

    def taken(self) -> tuple[list[Tensor], list[float]]:
        states, told = self.states, self.told
        self.states, self.told = [], []
        return states, told


def main() -> int:
    """Learn, write, judge."""
    asked = arguments().parse_args()
    torch.set_num_threads(asked.threads)
    place = resolve(asked.target)
    target, _ = open_target(place, "auto", "cpu")
    lessons = list(taught(Path(asked.train), asked.texts))
    record: dict[str, Any] = {"texts": asked.texts, "prompts": asked.prompts, "depth": asked.depth, "heads": {}}
    heads, examples = {}, None
    for name, reads in (("states", False), ("states and probability", True)):
        options = AcceptanceLearning(
            draft=str(asked.draft), kind="draft_model", temperature=0.0, reads_probability=reads, rejection_weight=1.0
        )
        learner: Any = LEARN.new(options, target, 0)
        examples = examples or gathered(learner, Teacher(target, learner.taps), lessons)
        heads[name], record["heads"][name] = learned(learner, *examples, asked.steps)
        say(f"head of {name}: {record['heads'][name]}")
    chains, prices = written(asked, place)
    record |= {"prices": prices, "judged": judged(chains, heads, prices, asked.depth)}
    Path(asked.out).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    say("| rule | drafted a pass | tokens a pass | tokens a second | plain = 1 |\n| --- | ---: | ---: | ---: | ---: |")
    for name, row in record["judged"].items():
        say(f"| {name} | {row['drafted']:.2f} | {row['tokens']:.2f} | {row['rate']:.1f} | {row['speedup']:.3f} |")
    return 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("train", help="answers that the heads learn from")
    parser.add_argument("valid", help="answers to whose prompts others are written")
    parser.add_argument("--out", required=True)
    parser.add_argument("--target", default=usual_model("smollm2")[0])
    parser.add_argument("--draft", type=Path, default=DRAFT)
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=64, help="of an answer")
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--threads", type=int, default=1)
    return parser


def taught(path: Path, count: int) -> Iterator[PackedRows]:
    """One text each; only the answer counts."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for line in lines[:: max(1, len(lines) // count)][:count]:  # of files that are sorted by length, too
        said = json.loads(line)
        prompt, answer = said["prompt_token_ids"], said["token_ids"]
        ids = torch.tensor([(prompt + answer)[-LENGTH - 1 :]])
        counts = torch.ones(1, ids.shape[1] - 1, dtype=torch.bool)
        counts[:, : max(0, ids.shape[1] - 1 - len(answer))] = False
        yield PackedRows(ids=ids, documents=torch.zeros_like(ids), counts=counts)


@torch.no_grad()
def gathered(
    learner: AcceptanceLearner, teacher: Teacher, lessons: Seq[PackedRows]
) -> tuple[list[Examples], list[Examples]]:
    """Examples to learn from, and of every fifth text to stop by."""
    found = []
    for at, rows in enumerate(lessons):
        own = examples_of(learner._draft, teacher.lesson(rows), teacher.logits, mixing=0.15, temperature=0.0)
        found.append(own)
        if at % 16 == 15:
            say(f"{at + 1} of {len(lessons)} texts read")
    return [one for at, one in enumerate(found) if at % 5], found[::5]


def learned(
    learner: AcceptanceLearner, known: Seq[Examples], held: Seq[Examples], steps: int
) -> tuple[Any, dict[str, float]]:
    """The head with the least loss on held texts, and what it is worth there."""
    net, (train, exam) = learner._net, (joined(known), joined(held))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.1)
    generator, best, kept = torch.Generator().manual_seed(0), float("inf"), {}
    for step in range(steps):
        at = torch.randint(len(train.labels), (256,), generator=generator)
        optimizer.zero_grad()
        logits = net(train.states[at], train.told[at])
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, train.labels[at])
        torch.autograd.backward(loss)
        optimizer.step()
        if step % 20 == 19:
            with torch.no_grad():
                held_loss = float(learner._losses(exam).mean())
            if held_loss < best:
                best, kept = held_loss, {name: one.clone() for name, one in net.state_dict().items()}
    net.load_state_dict(kept)
    with torch.no_grad():
        areas = auc(net(exam.states, exam.told), exam.labels), auc(exam.told, exam.labels)
    return net.eval(), {
        "examples": len(train.labels),
        "held_out_loss": round(best, 4),
        "auc": round(areas[0], 4),
        "auc_of_probabilities": round(areas[1], 4),
    }


def joined(parts: Seq[Examples]) -> Examples:
    return Examples(*(torch.cat(column) for column in zip(*parts, strict=True)))


def written(asked: argparse.Namespace, place: Path) -> tuple[list[list[Chain]], dict[str, Any]]:
    """The chains of each answer, and seconds of a draft token and of a pass by its rows."""
    llm = LLM(
        str(place),
        drafter={"name": "draft_model", "model": str(asked.draft)},
        policy="fixed",
        num_speculative_tokens=asked.depth,
    )
    policy: Any = llm.engine.parts.policy
    while hasattr(policy, "inner"):
        policy = policy.inner
    judge, depth = Judge(), asked.depth
    watching = StateJudge(chances=judge, reads_probability=True)
    wanted: dict[str, Any] = {"depth": depth, "judge": watching}
    chains: list[list[Chain]] = []
    times: dict[int, list[tuple[float, float]]] = {}

    def plan(seqs: Seq[Sequence]) -> list[Budget]:
        judge.taken()
        own: dict[str, Any] = {"survival": 1e-30, "judge": watching} if wanted["judge"] else {}
        return [Budget(depth=max(0, min(wanted["depth"], seq.room - 1)), **own) for seq in seqs]

    def update(events: Seq[Any]) -> None:
        (event,) = events
        if event.num_certain:
            return
        if wanted["judge"] and event.draft_depth == depth:
            states, told = judge.taken()
            chains[-1].append(Chain(torch.stack(states), told, event.num_accepted))
        elif event.draft_depth == wanted["depth"]:
            times.setdefault(event.draft_depth, []).append((event.times.draft, event.times.target + event.times.rest))

    policy.plan, policy.update = plan, update
    params = SamplingParams(temperature=0.0, max_tokens=asked.tokens)
    lines = Path(asked.valid).read_text(encoding="utf-8").splitlines()[: asked.prompts]
    prompts = [json.loads(line)["prompt_token_ids"] for line in lines]
    for at, prompt in enumerate(prompts):
        chains.append([])
        llm.generate({"prompt_token_ids": prompt}, params)
        if at % 8 == 7:
            say(f"{at + 1} of {len(prompts)} answers written")
    wanted["judge"] = None
    for k in (0, 1, 2, 4, depth):
        wanted["depth"] = k
        for prompt in prompts[:3]:
            llm.generate({"prompt_token_ids": prompt}, params)
    llm.close()
    seconds = {k: [median(part) for part in zip(*own[WARM:], strict=True)] for k, own in times.items()}
    deep = seconds[depth][0]
    prices = {
        "draft_token": (deep - seconds[1][0]) / (depth - 1),
        "first_token": seconds[1][0],
        "pass": {str(1 + k): own[1] for k, own in sorted(seconds.items())},
    }
    say(f"prices in ms: {json.dumps(prices)}")
    return chains, prices


def judged(chains: Seq[Seq[Chain]], heads: dict[str, Any], prices: dict[str, Any], depth: int) -> dict[str, Any]:
    """Each rule at the threshold that the other half of the texts chose for it."""
    rows = {int(key): seconds for key, seconds in prices["pass"].items()}

    def passing(num_rows: int) -> float:
        below = max(one for one in rows if one <= num_rows)
        above = min(one for one in rows if one >= num_rows)
        share = 0.0 if above == below else (num_rows - below) / (above - below)
        return float(rows[below] + share * (rows[above] - rows[below]))

    def seconds_of(drafted: int, fed: int) -> float:
        return float(prices["first_token"] + (fed - 1) * prices["draft_token"] + passing(1 + drafted))

    def worth(half: Seq[Chain], ends: Callable[[Chain], tuple[int, int]]) -> tuple[float, float, float]:
        drafted = tokens = seconds = 0.0
        for one in half:
            count, fed = ends(one)
            drafted, tokens = drafted + count, tokens + 1 + min(count, one.accepted)
            seconds += seconds_of(count, fed)
        return drafted / len(half), tokens / len(half), tokens / seconds

    grid = [0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8, 0.9]
    said: dict[str, dict[int, list[float]]] = {"draft's probability": {id(c): c.told for own in chains for c in own}}
    for name, net in heads.items():
        said[f"head of {name}"] = {
            id(c): net.chances(c.states, torch.tensor(c.told)).tolist() for own in chains for c in own
        }

    def of_rule(values: dict[int, list[float]], least: float, *, reads: bool) -> Callable[[Chain], tuple[int, int]]:
        def ends(one: Chain) -> tuple[int, int]:
            count = one.ended(values[id(one)], least, 1)
            return count, count + (reads and count < depth)  # the token that a state judges has been fed

        return ends

    def fixed(k: int) -> Callable[[Chain], tuple[int, int]]:
        return lambda one: (k, k)

    ways = {"fixed": [fixed(k) for k in range(1, depth + 1)]}
    for name, values in said.items():
        ways[name] = [of_rule(values, least, reads=name.startswith("head")) for least in grid]
    halves = [[c for own in chains[k::2] for c in own] for k in (0, 1)]
    plain, found = 1 / rows[1], {}
    for name, tried in ways.items():
        both = []
        for own, other in (halves, halves[::-1]):
            best = max(tried, key=lambda way: worth(other, way)[2])
            both.append((worth(own, best), tried.index(best)))
        drafted, tokens, rate = (sum(one[0][i] for one in both) / 2 for i in range(3))
        found[name] = {
            "drafted": drafted,
            "tokens": tokens,
            "rate": rate,
            "speedup": rate / plain,
            "chosen": [k + 1 if name == "fixed" else grid[k] for _, k in both],
            "halves": [one[0][2] for one in both],
        }
    labels = torch.tensor([float(i < c.accepted) for own in chains for c in own for i in range(judged_of(c))])
    for name, values in said.items():
        scores = [values[id(c)][i] for own in chains for c in own for i in range(judged_of(c))]
        found[name]["auc"] = auc(torch.tensor(scores), labels)
    return found


def judged_of(one: Chain) -> int:
    """Tokens whose fate is known, of those that have a state."""
    return min(one.accepted + 1, len(one.told))


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
