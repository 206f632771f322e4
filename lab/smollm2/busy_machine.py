"""Does `auto` still guess after a first text on a busy machine? Fresh processes beside programs that take the cores.

    OUTDRAFT_CACHE=off python -m lab.smollm2.busy_machine [--model smollm2] [--processes 16] [--beside 2]

In each process the target's own head writes the questions of `outdraft demo` twice, 64 tokens each, with nothing
remembered. Said are the tokens a pass of each text (plain decoding has 1), and in how many processes both of the last
two, which are guessed well, have fewer than 1.2.
"""

import argparse
import json
import subprocess
import sys
from multiprocessing import Event, Process
from multiprocessing.synchronize import Event as Signal

import torch

from outdraft import LLM, SamplingParams
from outdraft.cli.commands.demo import QUESTIONS, ids_of


def main() -> int:
    """The processes, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--beside", type=int, default=2, help="programs that multiply matrices meanwhile, on one core")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        say(json.dumps(texts(asked.model)))
        return 0
    over = Event()
    others = [Process(target=multiply, args=(over,), daemon=True) for _ in range(asked.beside)]
    for one in others:
        one.start()
    stuck = 0
    for number in range(asked.processes):
        command = [sys.executable, "-m", "lab.smollm2.busy_machine", "--child", "--model", asked.model]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        stuck += max(found[-2:]) < 1.2
        say(f"{number + 1}: {' '.join(f'{one:.2f}' for one in found)}")
    over.set()
    say(f"{stuck} of {asked.processes} processes guess no more")
    return 0


def texts(model: str) -> list[float]:
    """Tokens a pass of six texts."""
    with LLM(model, drafter="eagle3") as llm:
        assert llm.tokenizer is not None
        prompts = [ids_of(llm.tokenizer, text, chat=True) for text in QUESTIONS.values()]
        params = SamplingParams(max_tokens=64)
        return [llm.generate({"prompt_token_ids": one}, params).stats.tau for one in (*prompts, *prompts)]


def multiply(over: Signal) -> None:
    """A program that takes one core, until this one is done."""
    torch.set_num_threads(1)
    matrix = torch.randn(512, 512)
    while not over.is_set():
        matrix @ matrix


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
