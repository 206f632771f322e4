"""Real faults of a real head, and what the diagnosis calls them: a confusion matrix.

    python -m lab.adapt_faults --out DIR [--runs 100] [--rounds 2000] [--temperature 1] [FAULT ...]
    python -m lab.adapt_faults --out DIR --target MODEL --head HEAD --prompts FILE --requantized MODEL --depth 4 --quick

The head's directory is copied and a fault planted in the copy, or the traffic or the target is another. The reference
is what the sound head does on prompts that are judged nowhere, and its specimen. Without `--prompts` the pair is the
zoo's, which has no chat template. FILE holds Spec-Bench's questions, of which every second one makes the reference.

Rounds lie in DIR and a stopped run goes on. A fault's rounds are decoded once; each of its runs draws whole texts from
them, so that runs resemble each other more than fresh ones would.
"""

import argparse
import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from lab.adapt_rounds import Serving, Text, decode, resampled
from outdraft import zoo
from outdraft.adapt.acceptance_record import AcceptanceRecord
from outdraft.adapt.diagnose import Diagnosis, diagnose
from outdraft.adapt.kinds import Cure, Finding
from outdraft.adapt.observe import Observed
from outdraft.adapt.specimen import Specimen, compare
from outdraft.adapt.template import ServedMarks, common_end
from outdraft.codecs.text import TextCodec
from outdraft.core.learner_registry import find_learner
from outdraft.models.files.load_codec import load_codec
from outdraft.training.computing import open_target
from outdraft.training.lessons import Teacher
from outdraft.training.specimens import take_specimen
from outdraft.weights.hub import resolve

_TAPS = "eagle_aux_hidden_state_layer_ids"
_NUMBERS = ("1 2 3 4 5 6 7 8", "10, 20, 30, 40, 50,", "1776 1777 1778 1779", "3.14 2.71 1.41")
_NOT_CHAT = ("translation", "summarization", "rag")  # the first is another domain; the others are long
_IDS = 129
Config = dict[str, Any]
Weights = dict[str, Tensor]
Ids = list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A fault: of the head's files, of the target, or of the traffic, as the kinds of text of each part of a run."""

    edit: Callable[[Config, Weights], None] | None = None
    traffic: tuple[str, ...] = ("usual",)
    requantized: bool = False


def _shift_taps(config: Config, weights: Weights) -> None:
    """Each hidden state is that of the layer behind the right one."""
    config[_TAPS] = [tap + 1 for tap in config[_TAPS]]
    del config["eagle_config"]


def _reset_norm(config: Config, weights: Weights) -> None:
    """As where the weights of the last norm were not loaded."""
    weights["norm.weight"] = torch.ones_like(weights["norm.weight"])


def _leave_norm_out(config: Config, weights: Weights) -> None:
    """What the head carries to its next guess is not normed."""
    config["norm_output"] = False


def _undo_training(config: Config, weights: Weights) -> None:
    """Matrices half way to random ones of the same size, as of a training that ended too soon."""
    dice = torch.Generator().manual_seed(0)
    for name, one in weights.items():
        if one.dim() == 2 and not name.endswith("scales"):
            noise = torch.randn(one.shape, generator=dice) * one.float().std()
            weights[name] = (0.5 * one.float() + 0.5 * noise).to(one.dtype)


FAULTS = {
    "none": Planted(),
    "taps": Planted(edit=_shift_taps),
    "norm": Planted(edit=_reset_norm),
    "no norm": Planted(edit=_leave_norm_out),
    "training": Planted(edit=_undo_training),
    "template": Planted(traffic=("plain",)),
    "quantization": Planted(requantized=True),
    "domain": Planted(traffic=("other",)),
    "then domain": Planted(traffic=("usual", "other")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A sound pair and its traffic, by kind; where a kind has no prompts, what needs it is left out."""

    serving: Serving
    prompts: dict[str, list[Ids]]
    specimen: Specimen
    requantized: str | None
    out: Path
    seeds: int
    quick: bool = (
        False  # a fault that is found before any round is not decoded: no round could change what it is called
    )

    def rounds(self, name: str, kind: str, serving: Serving) -> list[Text]:
        """Decoded now, or kept from an earlier run."""
        file = self.out / f"t{serving.temperature:g}" / f"{name}.{kind}.jsonl"
        first = 100 if kind == "reference" else 1
        return decode(serving, self.prompts[kind], range(first, first + self.seeds), file)

    def possible(self, fault: Planted) -> bool:
        """Whether it has what the fault needs."""
        return all(self.prompts.get(kind) for kind in fault.traffic) and (
            not fault.requantized or bool(self.requantized)
        )


def plant(edit: Callable[[Config, Weights], None], sound: Path, directory: Path) -> Path:
    """A copy of the head with the fault."""
    head = shutil.copytree(sound, directory / "head", dirs_exist_ok=True)
    config, weights = json.loads((head / "config.json").read_text()), load_file(head / "model.safetensors")
    edit(config, weights)
    (head / "config.json").write_text(json.dumps(config))
    save_file(weights, head / "model.safetensors")
    return head


def specimen_of(target: str, head: Path, ids: Ids) -> Specimen:
    """What a pair says of a text."""
    method = find_learner("eagle3")
    decoder, _ = open_target(resolve(target), "auto", "cpu")
    learner = method.load(method.options(), decoder, head)
    return take_specimen(learner, Teacher(decoder, learner.taps), head, ids)


def runs_of(trial: Trial, name: str, runs: int, rounds: int, record: AcceptanceRecord) -> list[tuple[Diagnosis, Any]]:
    """Diagnoses of as many runs of one fault, each beside what it was made of."""
    fault, sound, found = FAULTS[name], trial.serving, []
    marks = common_end(trial.prompts["reference"]) if trial.prompts.get("plain") else ()
    with TemporaryDirectory() as directory:
        head = sound.head if fault.edit is None else plant(fault.edit, sound.head, Path(directory))
        target = trial.requantized if fault.requantized and trial.requantized else sound.target
        serving = replace(sound, head=head, target=target)
        findings: list[Finding] = compare(trial.specimen, specimen_of(target, head, list(trial.specimen.ids)))
        met = ServedMarks(marks=marks)
        for prompt in chain(*(trial.prompts[kind] for kind in fault.traffic)):
            met.add(prompt)
        findings += [one for one in (met.finding(),) if one is not None]
        early = diagnose(Observed(), record, findings=findings)
        if trial.quick and early.cure is Cure.MEND:
            return [(early, Observed())]
        base = "none" if fault.edit is None and not fault.requantized else name
        pools = [trial.rounds(base, kind, serving) for kind in fault.traffic]
    for run in range(runs):
        seen = resampled(pools, rounds, run)
        found.append((diagnose(seen, record, findings=findings), seen))
    return found


def zoo_trial(asked: argparse.Namespace) -> Trial:
    """The zoo's pair, on its own held-out texts and on lists of numbers."""
    codec = load_codec(zoo.path("target"))
    assert isinstance(codec, TextCodec)
    texts = [text for name, text in zoo.heldout_prompts().items() if name.startswith("prose")]
    serving = Serving(
        target="zoo:target", head=zoo.path("eagle3"), temperature=asked.temperature, batch=8, ignore_eos=True
    )
    ids = [codec.encode(text) for text in texts]
    numbers = [codec.encode(text) for text in _NUMBERS]
    prompts = {"reference": ids[::2], "usual": ids[1::2], "other": numbers}
    specimen = specimen_of(serving.target, serving.head, list(chain(*ids))[:_IDS])
    return Trial(
        serving=serving,
        prompts=prompts,
        specimen=specimen,
        requantized=asked.requantized,
        out=asked.out / "zoo",
        seeds=16 * asked.seeds,
        quick=asked.quick,
    )


def chat_trial(asked: argparse.Namespace) -> Trial:
    """A chat model on Spec-Bench's questions: German to translate is the other domain, "User:" another template."""
    codec = load_codec(resolve(asked.target))
    assert isinstance(codec, TextCodec)
    rows = [json.loads(line) for line in asked.prompts.read_text("utf-8").splitlines()]
    chats = [row["turns"][0] for row in rows if row["category"] not in _NOT_CHAT]

    def said(question: str) -> Ids:
        turns = [{"role": "user", "content": question}]
        ids = codec.apply_chat_template(turns, add_generation_prompt=True, tokenize=True)
        assert not isinstance(ids, str)
        return ids

    prompts = {
        "reference": [said(one) for one in chats[::2]],
        "usual": [said(one) for one in chats[1::2]],
        "plain": [codec.encode(f"User: {one}\nAssistant:") for one in chats[1::2]],
        "other": [said(row["turns"][0]) for row in rows if row["category"] == _NOT_CHAT[0]],
    }
    serving = Serving(target=asked.target, head=asked.head, temperature=asked.temperature, depth=asked.depth)
    specimen = specimen_of(asked.target, asked.head, list(chain(*prompts["reference"]))[:_IDS])
    out = asked.out / Path(asked.target).stem
    return Trial(
        serving=serving,
        prompts=prompts,
        specimen=specimen,
        requantized=asked.requantized,
        out=out,
        seeds=asked.seeds,
        quick=asked.quick,
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Print a line for each fault: what its runs were called, and what the first of them was made of."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"of {', '.join(FAULTS)}; all by default")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--target", default="zoo:target")
    parser.add_argument("--head", type=Path)
    parser.add_argument("--prompts", type=Path)
    parser.add_argument("--requantized", metavar="MODEL", help="the target on another grid")
    parser.add_argument("--depth", type=int, default=7)
    parser.add_argument("--seeds", type=int, default=1, help="texts of each prompt that are judged")
    parser.add_argument("--quick", action="store_true", help="do not decode what is found before any round")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--temperature", type=float, default=1.0)
    asked = parser.parse_args(argv)
    trial = zoo_trial(asked) if asked.prompts is None else chat_trial(asked)
    texts = trial.rounds("none", "reference", trial.serving)
    record = AcceptanceRecord.of(resampled([texts], sum(map(len, texts)), 0))
    for name in asked.faults or FAULTS:
        if trial.possible(FAULTS[name]):
            _show(name, runs_of(trial, name, asked.runs, asked.rounds, record))


def _show(name: str, found: Sequence[tuple[Diagnosis, Any]]) -> None:
    called = Counter(f"{one.kind} {one.part}".strip() for one, _ in found)
    diagnosis, seen = found[0]
    rates = " ".join(f"{one:.2f}" for one in seen.whole.acceptance)
    asked = ", ".join(f"{kind} {one.effect:+.3f} ({one.z:+.1f})" for kind, one in diagnosis.asked.items())
    sys.stdout.write(f"{name:13}{', '.join(f'{kind} {n}' for kind, n in called.items())}; accepted {rates}; {asked}\n")
    sys.stdout.write(f"             {diagnosis.sentence}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
