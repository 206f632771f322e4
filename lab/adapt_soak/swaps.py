"""Texts that are written while versions of the draft are swapped: the same, or of the same distribution."""

import shutil
import threading
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from lab.adapt_soak.ground import BATCH, HEAD, Record, plain_texts, requests
from outdraft import LLM, SamplingParams, zoo
from outdraft.core.drafter import inner
from outdraft.drafters.shared.renewing import RenewingDrafter
from outdraft.engine.between_steps import adopt
from outdraft.testing.statistics import detectable_shift
from outdraft.testing.token_distribution import BINS, judge_tokens


def swaps(out: Path, count: int) -> Record:
    """Texts of ragged batches that others join as they end, through `count` swaps in their midst."""
    rng = Random(1)
    asked = requests(rng, 96, 48)
    wanted, tally = plain_texts(asked), {"texts": 0, "wrong": 0}
    most = 0
    with adopting() as llm, swapping(llm, versions_in(out / "versions")) as told:
        while told["while requests ran"] < count:
            some = rng.sample(range(len(asked)), BATCH)
            found = llm.generate([asked[i][0] for i in some], [asked[i][1] for i in some])
            tally["texts"] += len(some)
            tally["wrong"] += sum(one.token_ids != wanted[i] for i, one in zip(some, found, strict=True))
            most = max(most, len({version for one in found for version in one.stats.rounds_by_version}))
    return {**told, **tally, "most versions in a batch": most}


def audit(out: Path, texts: int) -> Record:
    """The p-value of unseeded texts that were written through swaps, and of such with a fault: must be tiny."""
    prompts = [prompt for prompt, _ in requests(Random(2), texts, 8)]
    params, found = SamplingParams(max_tokens=32, temperature=1.0, ignore_eos=True), dict[str, Any]()
    with LLM("zoo:target", drafter="none") as plain:
        for name in ("honest", "planted"):
            with adopting() as llm, swapping(llm, versions_in(out / "versions")) as told:
                if name == "planted":
                    mislabel(llm)
                results = llm.generate(prompts, params)
                while not told["while requests ran"]:  # a swap in the midst is what this is about
                    results = llm.generate(prompts, params)
            judged = judge_tokens(plain, results, params)
            found[name] = {"p": judged.p_value, "tokens": judged.num_tokens, "forbidden": judged.forbidden, **told}
            found[name]["would find"] = round(
                detectable_shift((judged.num_tokens, 10**12), BINS - 1, alpha=5e-4, power=0.95), 4
            )
    found["wrong"] = int(found["honest"]["p"] < 1e-3) + int(found["planted"]["p"] > 1e-6)
    return found


def versions_in(place: Path) -> list[Path]:
    """The head that ships, its negative, and two with noise."""
    weights, made = load_file(zoo.path("eagle3") / "model.safetensors"), list[Path]()
    for name, sign, noise in (("own", 1, 0.0), ("negative", -1, 0.0), ("near", 1, 0.1), ("far", 1, 0.5)):
        generator = torch.Generator().manual_seed(len(made))
        other = {
            key: sign * one + noise * one.float().std() * torch.randn(one.shape, generator=generator)
            if one.is_floating_point() and one.numel() > 1
            else one
            for key, one in weights.items()
        }
        shutil.copytree(zoo.path("eagle3"), place / name, dirs_exist_ok=True)
        save_file({key: one.to(weights[key].dtype) for key, one in other.items()}, place / name / "model.safetensors")
        made.append(place / name)
    return made


@contextmanager
def swapping(llm: LLM, places: Seq[Path]) -> Iterator[dict[str, int]]:
    """Inside, versions are adopted one after the other; yields how many were, and how many in the midst of requests."""
    over, told, rng = threading.Event(), {"swaps": 0, "while requests ran": 0}, Random(0)

    def swap() -> None:
        while not over.wait(rng.random() * 0.05):
            num_running = llm._thread.ask(lambda engine: len(engine.running))
            adopt(llm, places[told["swaps"] % len(places)])
            told["swaps"] += 1
            told["while requests ran"] += bool(num_running)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield told
    finally:
        over.set()
        thread.join()


def adopting() -> LLM:
    return LLM("zoo:target", drafter={"name": "eagle3", "model": "zoo:eagle3", "adopts": True}, **HEAD)


def mislabel(llm: LLM) -> None:
    """Plant a fault: guesses travel with a distribution that is half another one than they were drawn from."""
    (renewing,) = (one for one in inner(llm.engine.parts.drafter) if isinstance(one, RenewingDrafter))
    honest = renewing.propose

    def propose(seqs: Any, budgets: Any) -> Any:
        return [
            one if one.q is None else replace(one, q=(one.q + one.q.roll(1, -1)) / 2) for one in honest(seqs, budgets)
        ]

    renewing.propose = propose  # type: ignore[method-assign]
