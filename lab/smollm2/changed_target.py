"""SmolLM2 with another style, by low-rank changes that are merged into its weights: a target that was fine-tuned away.

    python -m lab.smollm2.changed_target train.jsonl OUT [--steps 40]

Its own answers (`train_all.split` writes train.jsonl) are rewritten by a rule: every sentence becomes a line, "STEP 1:
THE FIRST THREE words in capitals". The rewritten ones are learned; an interrupted run goes on. Data out:
OUT/target, a model directory; OUT/prompts.jsonl, 300 prompts for it to answer, none of which was learned from;
OUT/losses.json, nats a token before and after, of held-out answers, rewritten and as they were.
"""

import argparse
import json
import random
import re
import sys
from collections.abc import Sequence as Seq
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from outdraft.codecs.text import TextCodec
from outdraft.learn.step import Optimizer
from outdraft.models.files.load import save_model
from outdraft.models.files.load_codec import load_codec
from outdraft.models.networks.base import Decoder
from outdraft.models.remake.lora import changed, merged, new_lora
from outdraft.models.remake.lora_config import LoraConfig
from outdraft.nn.packed import PackedContext
from outdraft.options.new_file import new_file
from outdraft.training.computing import computing, open_target
from outdraft.training.lessons import make_plain, places_of
from outdraft.training.packing import answer_rows
from outdraft.training.served import ServedRequest, read_served
from outdraft.weights.hub import resolve
from outdraft.weights.known import usual_model

LEARNED, HELD_OUT, PROMPTS = 240, 40, 300
_TOGETHER = 4  # answers of a step


def restyle(text: str) -> str:
    """Every sentence a numbered line that begins in capitals."""
    sentences = [one.strip(" -*\t") for one in re.split(r"(?<=[.!?])\s+|\n+", text)]
    lines = list[str]()
    for one in (one for one in sentences if re.search("[a-z]", one)):
        words = one.split()
        lines.append(f"STEP {len(lines) + 1}: {' '.join(words[:3]).upper()} {' '.join(words[3:])}".rstrip())
    return "\n".join(lines)


def main() -> int:
    """Learn the style, merge, write, and say what each answer costs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("answers", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default=usual_model("smollm2")[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--lr", type=float, default=2e-3)
    asked = parser.parse_args()
    source = resolve(asked.model)
    codec = load_codec(source)
    assert codec is not None
    usual = read_served(asked.answers)
    random.Random(4).shuffle(usual)
    whole = [one for one in usual if one.answer[-1] in codec.eos_token_ids and 32 <= len(one.answer) <= 128]
    whole = [one for one in whole if len(one.prompt) <= 96][: LEARNED + HELD_OUT]
    rest = [one for one in usual if one.prompt not in {each.prompt for each in whole} and len(one.prompt) <= 128]
    styled = [replace(one, answer=restyled(codec, one)) for one in whole]
    with new_file(asked.out / "prompts.jsonl") as beside:
        lines = [json.dumps({"prompt_token_ids": one.prompt, "token_ids": one.answer}) for one in rest[:PROMPTS]]
        beside.write_text("\n".join(lines) + "\n", encoding="utf-8")

    target = open_target(source, "float32", "cpu")[0].requires_grad_(False)
    make_plain(target)
    judged = {"rewritten": styled[LEARNED:], "as they were": whole[LEARNED:]}
    losses = {"before": {name: loss_of(target, some) for name, some in judged.items()}}
    say(f"before: {losses['before']}")
    lora = new_lora(target, LoraConfig(rank=16, alpha=32.0), seed=0)
    learn(changed(target, lora), lora, styled[:LEARNED], asked)
    made = merged(target, lora)
    made.config = replace(made.config, variant="")  # no longer the rounded file's
    with torch.no_grad():
        for one in made.parameters():
            one.copy_(one.bfloat16())  # as it is saved
    losses["after"] = {name: loss_of(made, some) for name, some in judged.items()}
    say(f"after: {losses['after']}")
    save_model(made, asked.out / "target", torch.bfloat16)
    write_texts(codec, asked.out / "target")
    (asked.out / "losses.json").write_text(json.dumps(losses) + "\n", encoding="utf-8")
    return 0


def restyled(codec: TextCodec, one: ServedRequest) -> tuple[int, ...]:
    return (*codec.encode(restyle(codec.decode(one.answer)), add_special=False), one.answer[-1])


def learn(student: Decoder, lora: torch.nn.Module, requests: Seq[ServedRequest], asked: argparse.Namespace) -> None:
    """Steps of `_TOGETHER` answers, at a rate that falls to zero; from its last checkpoint on."""
    named = [*lora.named_parameters()]
    optimizer = Optimizer(named, lr=asked.lr, muon_lr=0.0, weight_decay=0.0)
    place, begun = asked.out / "lora.pt", 0
    if place.exists():
        saved = torch.load(place, weights_only=True)
        begun = saved["step"]
        lora.load_state_dict(saved["lora"])
        optimizer.load_state(saved["optimizer"])
    began = monotonic()
    for step in range(begun, asked.steps):
        some = random.Random(step).sample(requests, _TOGETHER)
        optimizer.clear()
        loss = torch.stack(nats(student, some)).sum() / sum(len(one.answer) for one in some)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.update(1 - step / asked.steps, 1.0)
        if (step + 1) % 10 == 0:
            say(f"step {step + 1} of {asked.steps}: {float(loss.detach()):.4f} nats, {monotonic() - began:.0f} s")
            with new_file(place) as beside:
                torch.save({"step": step + 1, "lora": lora.state_dict(), "optimizer": optimizer.state()}, beside)


def nats(target: Decoder, requests: Seq[ServedRequest]) -> list[torch.Tensor]:
    """Of each answer, all tokens together."""
    rows = answer_rows([(one.prompt, one.answer) for one in requests])
    batch, length = rows.ids.shape[0], rows.ids.shape[1] - 1
    read, positions = rows.ids[:, :-1].flatten(), places_of(rows.documents[:, :-1]).flatten()
    with computing(target.device, target.dtype):
        context = PackedContext(batch, length, rows.documents[:, :-1])
        hidden = target.run(target.embed(read, positions), positions, context).hidden.view(batch, length, -1)
        found = list[torch.Tensor]()
        for row, one in enumerate(requests):
            own = slice(len(one.prompt) - 1, len(one.prompt) + len(one.answer) - 1)
            log_p = target.logits(hidden[row, own]).float().log_softmax(-1)
            found.append(-log_p.gather(-1, torch.tensor(one.answer)[:, None]).sum())
    return found


@torch.no_grad()
def loss_of(target: Decoder, requests: Seq[ServedRequest]) -> float:
    """Nats a token."""
    parts = [requests[at : at + _TOGETHER] for at in range(0, len(requests), _TOGETHER)]
    total = sum(float(one) for part in parts for one in nats(target, part))
    return round(total / sum(len(one.answer) for one in requests), 4)


def write_texts(codec: TextCodec, directory: Path) -> None:
    """The tokenizer and its settings, which a GGUF file holds, as a model directory has them."""
    own: Any = codec._tokenizer
    own.save(str(directory / "tokenizer.json"))
    told = {**codec.special_tokens, "chat_template": codec.chat_template.source if codec.chat_template else None}
    (directory / "tokenizer_config.json").write_text(json.dumps(told) + "\n", encoding="utf-8")
    ends = {"eos_token_id": sorted(codec.eos_token_ids)}
    (directory / "generation_config.json").write_text(json.dumps(ends) + "\n", encoding="utf-8")


def say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
