"""What the drafts of `equal_data.py` do in the engine beside plain decoding: tokens a pass, drafting share, seconds.

    python -m lab.smollm2.equal_engine DATA OUT [--model smollm2] [--chats 10] [--tokens 96] [--kinds dflash,...]
    python -m lab.smollm2.equal_engine DATA OUT --model WHOLE --seconds bf16           # KIND.bf16.json: seconds alone

    DATA   mt-bench, gsm8k and humaneval, as `measure_methods.py` has them: no draft has learned from these prompts
    OUT    KIND/ the drafts; KIND.engine.json is written for each, and a kind that has one is left out

Tokens a pass are those of a fixed depth, as a chain and as a tree, at temperatures 0, 0.7 and 1, each with its standard
error over prompts. Seconds are those of the policy that users get, greedy: plain decoding writes the same text beside
it, in turns, and `speedup` is the median of the ratios. Exit code 1: a greedy text is not plain decoding's.
"""

import argparse
import json
import sys
from collections.abc import Sequence as Seq
from pathlib import Path
from statistics import median
from typing import Any

from lab.smollm2.measure_methods import SETS, prompts_of
from outdraft.bench.entrant import Ours
from outdraft.bench.machine import busy_note, describe
from outdraft.bench.suites.prompt import AskedPrompt
from outdraft.bench.trial import PLAIN, order
from outdraft.core.learner_registry import find_learner
from outdraft.core.registry import find, option_defaults
from outdraft.engine.llm import LLM
from outdraft.options.new_file import new_file
from outdraft.options.params import SamplingParams

DEPTH = 7
TEMPERATURES = (0.0, 0.7, 1.0)
SHAPES: dict[str, dict[str, Any]] = {"chain": {"width": 1}, "tree": {"width": 4, "nodes": 16}}
Asked = Seq[tuple[str, AskedPrompt]]


def main() -> int:
    """Each kind that has no figures yet."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--chats", type=int, default=10, help="prompts of each set")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--kinds", default="")
    parser.add_argument("--seconds", default="", metavar="NAME", help="measure seconds alone, into KIND.NAME.json")
    asked = parser.parse_args()
    kinds = (
        asked.kinds.split(",") if asked.kinds else sorted(one.parent.name for one in asked.out.glob("*/config.json"))
    )
    say(busy_note())
    with LLM(asked.model, drafter="none") as plain:
        prompts, wrong = prompts_of(asked.data, asked.chats, plain), 0
        about = {"machine": describe("cpu"), "variant": plain.config["variant"], "kernels": plain.config["kernels"]}
        for kind in kinds:
            place = asked.out / f"{kind}.{asked.seconds or 'engine'}.json"
            if not place.exists():
                found = figures(plain, kind, asked.out / kind, prompts, asked.tokens, shapes=not asked.seconds)
                with new_file(place) as beside:
                    beside.write_text(json.dumps({**about, **found}, indent=1) + "\n", encoding="utf-8")
            found = json.loads(place.read_text(encoding="utf-8"))
            wrong += found["wrong"]
            say(f"{kind}: {json.dumps({key: one for key, one in found.items() if key not in about})}")
    return int(wrong > 0)


def figures(plain: LLM, kind: str, draft: Path, prompts: Asked, tokens: int, *, shapes: bool) -> dict[str, Any]:
    """Of one draft. `shapes`: tokens a pass too."""
    kind = kind.partition(".")[0]  # of one of several seeds
    name = find_learner(kind).drafter or kind
    known = option_defaults(find("drafter", name))
    tau: dict[str, Any] = {}
    for shape, options in SHAPES.items() if shapes else ():
        if not set(options) <= set(known):  # a kind of one shape
            if shape == "tree":
                continue
            options = {}
        drafter = {"name": name, "model": str(draft), **options}
        with plain.with_speculation(drafter=drafter, num_speculative_tokens=DEPTH, policy="fixed") as llm:
            tau[shape] = {f"{one:g}": taus(llm, prompts, tokens, one) for one in TEMPERATURES}
    with plain.with_speculation(drafter={"name": name, "model": str(draft)}) as llm:
        return {**({"tau": tau} if shapes else {}), **seconds(plain, llm, prompts, tokens)}


def taus(llm: LLM, prompts: Asked, tokens: int, temperature: float) -> dict[str, list[float]]:
    """Of each set, tokens a pass and its standard error over prompts."""
    found = {}
    for name in SETS:
        pairs = []
        for number, (_, prompt) in enumerate(one for one in prompts if one[0] == name):
            params = SamplingParams(max_tokens=tokens, stop=prompt.stop, temperature=temperature, seed=number)
            stats = llm.generate({"prompt_token_ids": list(prompt.ids)}, params).stats
            pairs.append((stats.num_tokens, stats.num_steps))
        whole = sum(one for one, _ in pairs) / sum(passes for _, passes in pairs)
        mean = sum(passes for _, passes in pairs) / len(pairs)
        spread = sum((one - whole * passes) ** 2 for one, passes in pairs) / max(1, len(pairs) - 1)
        found[name] = [round(whole, 3), round((spread / len(pairs)) ** 0.5 / mean, 3)]
    return found


def seconds(plain: LLM, llm: LLM, prompts: Asked, tokens: int) -> dict[str, Any]:
    """Of each set, the speed-up; over all, the share of drafting, and how many texts were others than plain ones."""
    pair = {PLAIN: Ours(plain), "": Ours(llm)}
    for one in pair.values():  # the first passes of an engine pay for things that are done once
        one.time_text(prompts[0][1].ids, SamplingParams(max_tokens=24, ignore_eos=True))
    ratios: dict[str, list[float]] = {name: [] for name in SETS}
    stats, wrong = [], 0
    for number, (name, prompt) in enumerate(prompts):
        params = SamplingParams(max_tokens=tokens, stop=prompt.stop)
        took = {label: pair[label].time_text(prompt.ids, params) for label in order(list(pair), number)}
        wrong += took[""].token_ids != took[PLAIN].token_ids
        ratios[name].append(took[PLAIN].seconds / took[""].seconds)
        stats.append(took[""].stats)
    return {
        "speedup": {name: round(median(one), 3) for name, one in ratios.items()},
        "drafting share": round(sum(one.draft_seconds for one in stats) / sum(one.seconds for one in stats), 3),
        "wrong": wrong,
    }


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
