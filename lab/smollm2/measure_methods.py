"""What every drafter gains on SmolLM2, for the pages and for `outdraft methods`: src/outdraft/bench/measured.json.

    python -m lab.smollm2.measure_methods DATA --draft DIR --head eagle3=DIR --head medusa=DIR     # on a quiet machine
    python -m lab.smollm2.measure_methods DATA --chats 1 --tokens 16 --out made.json               # whether all run

DATA has the folders mt-bench, gsm8k (of its training set the last 473, from which no draft has learned) and humaneval.
Each drafter writes the first turns of `--chats` prompts of each, greedily and with the default policy, as `--drafter`
does; plain decoding writes the same text beside it, in the same process, and the two take turns to be first. `speedup`
is the median of plain seconds / its own, `tau` tokens a pass. A drafter of another text is reported and has no row.
The file is written after each drafter, and a second run goes on behind the last one.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from outdraft.bench.contest import merge
from outdraft.bench.entrant import Ours
from outdraft.bench.identity import find_difference
from outdraft.bench.machine import busy_note, describe
from outdraft.bench.measured import FILE
from outdraft.bench.suites import Prompt, load_suite, spread
from outdraft.bench.suites.prompt import AskedPrompt, ask
from outdraft.bench.trial import PLAIN, order
from outdraft.core.registry import find, names, option_defaults
from outdraft.engine.llm import LLM
from outdraft.engine.naming.needs import REFERENCES, needs_of
from outdraft.options.base import NESTED
from outdraft.options.errors import OutdraftError
from outdraft.options.params import SamplingParams

HELD_OUT = 473  # of GSM8K
SETS = {
    "MT-Bench": "mt-bench/question.jsonl",
    "GSM8K": "gsm8k/train.jsonl",
    "HumanEval": "humaneval/HumanEval.jsonl.gz",
}
Row = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the user has for drafters: role -> drafter, or "" for any -> where it is."""

    roles: Mapping[str, Mapping[str, str]]

    def words(self, drafter: str) -> dict[str, Any] | str:
        """What `LLM.with_speculation` takes, or what is not given."""
        if drafter == "auto":
            return {}
        filled = {role: self.of(role, drafter) for role in sorted(needs_of(drafter))}
        if open_roles := [role for role, place in filled.items() if place is None]:
            return f"needs {' and '.join(open_roles)}".replace("_", " ")
        listed = option_defaults(find("drafter", drafter)).get("drafters")
        if listed and filled:  # a list of drafters has no roles of its own
            inner = [{NESTED: one, "model": self.of("draft_model", one)} if needs_of(one) else one for one in listed]
            return {"drafter": {"name": drafter, "drafters": inner}}
        return {"drafter": drafter, **filled}

    def of(self, role: str, drafter: str) -> str | None:
        """What fills a role of this drafter. A head fits one drafter only."""
        named = self.roles.get(role, {})
        return named.get(drafter, named.get(""))


def prompts_of(data: Path, chats: int, llm: LLM) -> list[tuple[str, AskedPrompt]]:
    """Set and prompt, one turn each, by the model's chat template."""
    codec, found = llm.tokenizer, list[tuple[str, AskedPrompt]]()
    assert codec is not None
    for name, path in SETS.items():
        every = load_suite(f"{name}={data / path}")
        for prompt in spread(every[-HELD_OUT:] if name == "GSM8K" else every, chats):
            turn = turn_of(prompt)
            found.append((name, ask(codec, replace(prompt, chat=True), [{"role": "user", "content": turn}])))
    return found


def turn_of(prompt: Prompt) -> str:
    """What the user asks: code to continue is asked for."""
    return prompt.turns[0] if prompt.chat else f"Complete this function.\n\n```python\n{prompt.turns[0]}```"


def measure(plain: Ours, drafts: Ours, asked: Seq[tuple[str, AskedPrompt]], tokens: int, rounds: int) -> Row | str:
    """The row, or how a text differs."""
    pair = {PLAIN: plain, "": drafts}
    for one in pair.values():  # the first passes of an engine pay for things that are done once
        one.time_text(asked[0][1].ids, SamplingParams(max_tokens=min(tokens, 24), ignore_eos=True))
    ratios: dict[str, list[float]] = {name: [] for name in SETS}
    stats: dict[str, list[Any]] = {name: [] for name in SETS}
    for number, (name, prompt) in enumerate([one for one in asked for _ in range(rounds)]):
        params = SamplingParams(max_tokens=tokens, stop=prompt.stop)
        took = {label: pair[label].time_text(prompt.ids, params) for label in order(list(pair), number)}
        if difference := find_difference(took[""].token_ids, took[PLAIN].token_ids):
            return f"another text on {name}: {difference}"
        ratios[name].append(took[PLAIN].seconds / took[""].seconds)
        stats[name].append(took[""].stats)
    return {
        name: {"tau": round(merge(stats[name]).tau, 3), "speedup": round(median(ratios[name]), 3)} for name in ratios
    }


def run(asked: argparse.Namespace, given: Given) -> int:
    """Measure what has no row yet; 1 if a text was another one."""
    plain = LLM(asked.model, drafter="none")
    head = {
        "target": asked.model,
        "machine": describe("cpu")["cpu"] + f", {describe('cpu')['cores']} cores",
        "command": command(asked),
        "sets": list(SETS),
    }
    made = read(asked.out, head)
    drafters = ["auto", *(name for name in names("drafter") if name != PLAIN)]
    missing = [name for name in asked.only or drafters if name not in made["rows"]]
    prompts, failed, began = prompts_of(asked.data, asked.chats, plain), False, time.monotonic()
    say(f"{len(missing)} drafters of {len(drafters)}, {len(prompts)} prompts. {busy_note()}")
    for number, name in enumerate(missing):
        words = given.words(name)
        try:
            if isinstance(words, str):
                raise OutdraftError(words)
            row = measure(Ours(plain), Ours(plain.with_speculation(**words)), prompts, asked.tokens, asked.rounds)
        except OutdraftError as error:
            say(f"{name}: left out: {error}")
            continue
        left = (time.monotonic() - began) / (number + 1) * (len(missing) - number - 1)
        told = row if isinstance(row, str) else ", ".join(f"{one}: {it['speedup']:.2f}x" for one, it in row.items())
        say(f"{name}: {told} ({number + 1} of {len(missing)}, about {left / 60:.0f} minutes more)")
        if isinstance(row, str):
            failed = True
            continue
        made["rows"] = dict(sorted({**made["rows"], name: row}.items()))
        made["made"] = date.today().isoformat()
        asked.out.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    return int(failed)


def read(path: Path, head: Mapping[str, Any]) -> dict[str, Any]:
    """What is there of the same command on the same machine, else nothing yet."""
    held = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    same = all(held.get(key) == value for key, value in head.items())
    return {**head, "made": None, "rows": {}} | (held if same else {})


def command(asked: argparse.Namespace) -> str:
    """How it was called, without this machine's places."""
    words = [f"--chats {asked.chats} --tokens {asked.tokens} --rounds {asked.rounds}"]
    for role in ("draft", "head"):
        words += [f"--{role} {short(place)}" for place in getattr(asked, role)]
    words += [f"--datastore {short(asked.datastore)}"] if asked.datastore else []
    return " ".join(["python -m lab.smollm2.measure_methods DATA", *words])


def short(place: str) -> str:
    """The last part of a path, behind the drafter that it is for."""
    drafter, equals, path = place.rpartition("=")
    return f"{drafter}{equals}{Path(path).name}"


def by_drafter(places: Seq[str]) -> Iterator[tuple[str, str]]:
    """ "DRAFTER=DIR", or "DIR" for all."""
    for place in places:
        drafter, _, path = place.rpartition("=")
        yield drafter, path


def say(text: str) -> None:
    """Write one line of progress with the time."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


def main(words: Seq[str] | None = None) -> int:
    """Read the command line, and measure."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.smollm2.measure_methods", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("data", type=Path, help="a directory with mt-bench, gsm8k and humaneval")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--draft", action="append", default=[], metavar="DIR", help="a smaller model; also DRAFTER=DIR")
    parser.add_argument("--head", action="append", default=[], metavar="DRAFTER=DIR")
    parser.add_argument("--datastore", metavar="FILE")
    parser.add_argument("--only", action="append", metavar="DRAFTER")
    parser.add_argument("--chats", type=int, default=10, metavar="N", help="prompts of each set (default: 10)")
    parser.add_argument("--tokens", type=int, default=128, metavar="N")
    parser.add_argument("--rounds", type=int, default=2, metavar="N")
    parser.add_argument("--out", type=Path, default=FILE)
    asked = parser.parse_args(words)
    heads = {drafter: path for drafter, path in by_drafter(asked.head) if drafter}
    store = {"": asked.datastore} if asked.datastore else {}
    given = Given(
        roles={"draft_model": dict(by_drafter(asked.draft)), "head": heads, "datastore": store, REFERENCES: {}}
    )
    return run(asked, given)


if __name__ == "__main__":
    sys.exit(main())
