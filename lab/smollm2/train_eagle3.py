"""EAGLE-3 heads of SmolLM2 at a GPU's own speed: passes and gradients are recorded once and replayed.

    python3 -m lab.smollm2.train_eagle3 MODEL ANSWERS... --init HEAD --out OUT --seconds 500 [--more STEM]

    ANSWERS  what `batch_answers.py` wrote          HEAD  a trained head: its weights are where training begins
    --more   STEM: files STEM-*.npz.xz that appear while it trains are learned from too, when STEM.done stands beside
    OUT      eagle3-LAYERS/ (config.json, model.safetensors in bfloat16), train_eagle3.json: what was done, evaluations

`outdraft train` asks the host at every step which rows count, and takes 105 ms a step of 4,096 tokens on an H200. Here
all shapes stand: rows that do not count weigh nothing, the teacher says no more than the draft's vocabulary, the loss
and its gradient are one kernel (`row_loss.py`), attention is fused (`fused_unrolled.py`), CUDA graphs hold a step of
all heads but for the optimiser, and what the target said of a row is kept. Measured with the plain attention and no
kept rows: 90 ms a step of 16,896 tokens. A head of more layers than HEAD begins as HEAD: what its new layers add is
zero.
The loss: KL, and from --hybrid-from of the seconds on LK's hybrid. Steps weigh 0.8 of the one before, five of them.
"""

import argparse
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch import Tensor, nn

from lab.smollm2.eagle3_course import STEPS, Coming, Course, Pool, Recorded, evaluate, pieces, say
from lab.smollm2.whole_rows import lay_out, texts_of
from outdraft.drafters.eagle3.formats import load_eagle3, save_eagle3
from outdraft.drafters.shared.features.fused.net import FusedNet
from outdraft.learn.step import Optimizer
from outdraft.models.files.load import fill_decoder, open_weights
from outdraft.models.networks.device import choose_device
from outdraft.models.networks.port import facts_of
from outdraft.training.lessons import Teacher

CLIP = 1.0
ADAM, MUON, WARMUP = 1.5e-3, 4e-3, 100


def main() -> int:
    """Train, evaluate, save."""
    asked = arguments().parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.backends.cuda.enable_cudnn_sdp(False)
    device = choose_device(asked.device)
    target = fill_decoder(open_weights(asked.model, "bfloat16"), device)
    nets = [grown(asked.init, target, layers) for layers in asked.layers]
    teacher = Teacher(target, nets[0].taps)
    learned, held = texts_of(asked.answers)
    tokens = sum(len(text.ids) for text in learned)
    course = Course(teacher, nets, asked.rows, asked.length)
    pools = [Pool(lay_out(learned, asked.length, 0), course)]
    exam = Pool(lay_out(held, asked.length, 1), course)
    say(f"{len(learned)} texts of {tokens} tokens in {len(pools[0])} rows, {len(held)} held out")
    record: dict[str, Any] = {"texts": [len(learned)], "tokens_of_texts": [tokens], "evaluations": []}
    optimizers = [
        Optimizer(
            [(name, p) for name, p in net.named_parameters() if p.requires_grad],
            lr=ADAM * asked.rate, muon_lr=MUON * asked.rate, weight_decay=0.01, vocab_size=target.config.vocab_size,
        )
        for net in nets
    ]  # fmt: skip
    first = torch.arange(asked.rows) % len(pools[0])
    pools[0].give(course, first, course.teach)
    if device.type == "cuda":
        course.require_same()
    teach, step_of = Recorded(course, course.teach), Recorded(course, course.backward)
    say("recorded" if step_of.graph and teach.graph else "not recorded")
    comes = Coming(asked.more, asked.length) if asked.more else None
    generator, step, shown = torch.Generator().manual_seed(1), 0, monotonic()
    order: list[tuple[Pool, Tensor]] = []
    began, steps_shown, next_exam = monotonic(), 0, 0.0
    sums = torch.zeros(len(nets), 1 + STEPS, device=device)
    while (spent := monotonic() - began) < asked.seconds:
        if spent >= next_exam:
            found = evaluate(course, exam)
            record["evaluations"].append({"step": step, "seconds": round(spent, 1), "heads": found})
            say(f"{spent:.0f} s, step {step}: " + "; ".join(line(one) for one in found))
            next_exam = spent + asked.seconds / 10
            save(nets, asked)
        if comes is not None and comes.rows is not None:
            pools.append(Pool(comes.rows, course))
            record["texts"].append(comes.texts)
            record["tokens_of_texts"].append(comes.tokens)
            say(f"{spent:.0f} s: {comes.texts} texts more, of {comes.tokens} tokens: {len(pools[-1])} rows")
            comes, order = None, pieces(pools[-1:], asked.rows, generator)  # first what is new
        if not order:
            order = pieces(pools, asked.rows, generator)
        if not course.hybrid and spent > asked.hybrid_from * asked.seconds:
            course.hybrid, step_of = True, Recorded(course, course.backward)
            say(f"{spent:.0f} s: the hybrid loss from here")
        pool, which = order.pop()
        pool.give(course, which, teach)
        losses, rates = step_of()
        factor = min(1.0, (step + 1) / WARMUP) * min(1.0, (1 - spent / asked.seconds) / (1 - asked.decay_from))
        for net, optimizer in zip(nets, optimizers, strict=True):
            nn.utils.clip_grad_norm_([p for p in net.parameters() if p.requires_grad], CLIP)
            optimizer.step(factor)
        sums += torch.cat((losses[:, None], rates), 1)
        step += 1
        if device.type == "cuda" and step % 4 == 0:
            torch.cuda.synchronize()  # the host may not run away
        if monotonic() - shown > asked.tell:
            mean = (sums / (step - steps_shown)).tolist()
            rate = (step - steps_shown) * asked.rows * asked.length / (monotonic() - shown)
            say(f"{spent:.0f} s, step {step}, {rate:.0f} tokens/s: {[[round(x, 3) for x in one] for one in mean]}")
            if not all(math.isfinite(x) for one in mean for x in one):
                raise SystemExit("the loss is no number")
            sums.zero_()
            shown, steps_shown = monotonic(), step
    found = evaluate(course, exam)
    say("; ".join(line(one) for one in found))
    record |= {
        "steps": step, "step_tokens": asked.rows * asked.length, "seconds": round(monotonic() - began),
        "evaluations": [*record["evaluations"], {"step": step, "heads": found}],
        "asked": {name: str(value) for name, value in vars(asked).items()},
    }  # fmt: skip
    save(nets, asked)
    (asked.out / "train_eagle3.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if device.type == "cuda":
        say(f"{torch.cuda.max_memory_allocated() / 1e9:.1f} GB at most")
    return 0


def save(nets: list[FusedNet], asked: argparse.Namespace) -> None:
    for layers, net in zip(asked.layers, nets, strict=True):
        save_eagle3(net, asked.out / f"eagle3-{layers}", torch.bfloat16)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("answers", type=Path, nargs="+")
    parser.add_argument("--init", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--more", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--layers", type=lambda text: [int(one) for one in text.split(",")], default=[1])
    parser.add_argument("--rows", type=int, default=22, help="of a step")
    parser.add_argument("--length", type=int, default=768, help="tokens of a row")
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--decay-from", type=float, default=0.35, help="share of the seconds")
    parser.add_argument("--hybrid-from", type=float, default=2.0, help="share of the seconds")
    parser.add_argument("--rate", type=float, default=1.0, help="times the rates")
    parser.add_argument("--tell", type=float, default=15, help="seconds between two lines")
    return parser


def grown(head: Path, target: Any, layers: int) -> FusedNet:
    """The head, with so many layers: the new ones are copies of a Llama layer's shape whose outputs are zero."""
    net = load_eagle3(head, facts_of(target), torch.float32).train().requires_grad_(True)
    if layers > net.config.layers.num_layers:
        config = replace(net.config, layers=replace(net.config.layers, num_layers=layers))
        more = FusedNet(config, torch.float32, target.device, net.vocab)
        with torch.no_grad():
            for name, parameter in more.named_parameters():
                parts = name.split(".")
                if parts[0] != "others":
                    parameter.copy_(net.get_parameter(name))
                elif parameter.dim() == 1:
                    parameter.fill_(1.0)
                else:
                    like = target.layers[-1].get_parameter(".".join(parts[2:]))
                    zero = parts[-2] in ("out", "down", "o")
                    parameter.copy_(torch.zeros_like(parameter) if zero else like)
        net = more.train().requires_grad_(True)
    return net


def line(rates: list[float]) -> str:
    """What is accepted, and tokens a pass of chains of three if steps were independent."""
    tau = 1 + rates[0] * (1 + rates[1] * (1 + rates[2]))
    return f"accepts {' '.join(f'{x:.3f}' for x in rates)}: {tau:.3f} in chains of 3"


if __name__ == "__main__":
    sys.exit(main())
