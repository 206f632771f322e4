"""Real faults of the zoo's EAGLE-3 head, and what the diagnosis calls them: a confusion matrix.

    python -m lab.adapt_faults [--runs 5] [--rounds 2000] [--temperature 1] [FAULT ...]

The head's directory is copied and a fault planted in the copy, or the traffic is other text. The record is what the
sound head does on other samples of the same prose, in four times as many rounds. Chains of 7 tokens; each run has seeds
of its own.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from outdraft import zoo
from outdraft.adapt.acceptance_record import AcceptanceRecord
from outdraft.adapt.diagnose import Diagnosis, diagnose
from outdraft.adapt.observe import Observed
from outdraft.core.drafter import Seen
from outdraft.engine.llm import LLM
from outdraft.options.params import SamplingParams

_DEPTH = 7
_TOKENS = 96  # of a text
_TAPS = "eagle_aux_hidden_state_layer_ids"
_NUMBERS = ("1 2 3 4 5 6 7 8", "10, 20, 30, 40, 50,", "1776 1777 1778 1779", "3.14 2.71 1.41")
Config = dict[str, Any]
Weights = dict[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A fault: of the head's files, or of the traffic, as the kinds of text of each half of a run."""

    edit: Callable[[Config, Weights], None] = lambda config, weights: None
    traffic: tuple[str, ...] = ("prose",)


def _shift_taps(config: Config, weights: Weights) -> None:
    """Each hidden state is that of the layer behind the right one."""
    config[_TAPS] = [tap + 1 for tap in config[_TAPS]]
    del config["eagle_config"]


def _reset_norm(config: Config, weights: Weights) -> None:
    """As where the weights of the last norm were not loaded."""
    weights["norm.weight"] = torch.ones_like(weights["norm.weight"])


def _undo_training(config: Config, weights: Weights) -> None:
    """Matrices half way to random ones of the same size, as of a training that ended too soon."""
    dice = torch.Generator().manual_seed(0)
    for name, one in weights.items():
        if one.dim() == 2:
            noise = torch.randn(one.shape, generator=dice) * one.float().std()
            weights[name] = (0.5 * one.float() + 0.5 * noise).to(one.dtype)


FAULTS = {
    "none": Planted(),
    "taps": Planted(edit=_shift_taps),
    "norm": Planted(edit=_reset_norm),
    "training": Planted(edit=_undo_training),
    "code": Planted(traffic=("python",)),
    "numbers": Planted(traffic=("numbers",)),
    "then code": Planted(traffic=("prose", "python")),
    "then numbers": Planted(traffic=("prose", "numbers")),
}


def prompts(kind: str) -> list[str]:
    """Texts of one kind: of the zoo's held-out ones, or numbers."""
    if kind == "numbers":
        return list(_NUMBERS)
    return [text for name, text in zoo.heldout_prompts().items() if name.startswith(kind)]


def plant(fault: Planted, directory: Path) -> Path:
    """A copy of the head with the fault."""
    head = shutil.copytree(zoo.path("eagle3"), directory / "head", dirs_exist_ok=True)
    config, weights = json.loads((head / "config.json").read_text()), load_file(head / "model.safetensors")
    fault.edit(config, weights)
    (head / "config.json").write_text(json.dumps(config))
    save_file(weights, head / "model.safetensors")
    return head


def observe(head: Path, traffic: Seq[str], rounds: int, seed: int, temperature: float) -> Observed:
    """So many rounds of the head, an equal share of each kind of text, one kind behind the other."""
    observed = Observed()
    policy = {"name": "threshold", "threshold": 1e-9}  # it asks for the draft's own probability, and ends no chain
    drafter = {"name": "eagle3", "model": str(head)}
    with LLM("zoo:target", drafter=drafter, policy=policy, num_speculative_tokens=_DEPTH) as llm:
        parts = llm.engine.parts
        inner = parts.drafter.observe

        def watch(several: Seq[Seen]) -> None:
            for one in several:
                observed.add(one)
            inner(several)

        parts.drafter.observe = watch  # type: ignore[method-assign, assignment]
        for part, kind in enumerate(traffic, 1):
            texts = prompts(kind)
            for number in count():
                if observed.whole.rounds >= rounds * part / len(traffic):
                    break
                its = 1_000_000 * seed + 1000 * part + number
                llm.generate(
                    texts[number % len(texts)],
                    SamplingParams(max_tokens=_TOKENS, temperature=temperature, seed=its, ignore_eos=True),
                )
    return observed


def main(argv: Seq[str] | None = None) -> None:
    """Print a line for each run, then the matrix."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"of {', '.join(FAULTS)}; all by default")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--temperature", type=float, default=1.0)
    asked = parser.parse_args(argv)
    sound = observe(zoo.path("eagle3"), ["prose"], 4 * asked.rounds, 99, asked.temperature)
    record = AcceptanceRecord.of(sound)
    found = dict[str, list[Diagnosis]]()
    for name in asked.faults or FAULTS:
        with tempfile.TemporaryDirectory() as directory:
            head = plant(FAULTS[name], Path(directory))
            for run in range(asked.runs):
                seen = observe(head, FAULTS[name].traffic, asked.rounds, run, asked.temperature)
                found.setdefault(name, []).append(diagnose(seen, record))
                _show(name, seen, found[name][-1])
    for name, several in found.items():
        sys.stdout.write(
            f"{name:14}" + ", ".join(f"{k} {n}" for k, n in Counter(d.kind for d in several).items()) + "\n"
        )


def _show(name: str, seen: Observed, diagnosis: Diagnosis) -> None:
    rates = " ".join(f"{one:.2f}" for one in seen.whole.acceptance)
    sure = " ".join(f"{one:.2f}" for one in seen.whole.confidence)
    asked = ", ".join(f"{kind} {one.effect:+.3f} ({one.z:+.1f})" for kind, one in diagnosis.asked.items())
    sys.stdout.write(f"{name}: {diagnosis.kind}; accepted {rates}; own {sure}; {asked}\n")


if __name__ == "__main__":
    main()
