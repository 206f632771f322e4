"""`python -m lab.peer_divergence FILE.gguf LOGITS`: how far a GGUF file is computed from its own floats.

    llama-perplexity -m FILE.gguf -f TEXT -c 512 --chunks 8 --kl-divergence-base LOGITS

It writes LOGITS: the ids, in chunks, and log probabilities behind each of a chunk's second half. The twin is the
file's weights as float32 through PyTorch. Mean KL divergence from it in nats a token, and the share of equal first
choices, of the native kernels and of llama.cpp. That program cuts distributions 16 below the best logit, so all three
are cut there and normed again.

With --greedy PROGRAM also after how many tokens greedy texts of the two part. `PROGRAM FILE.gguf COUNT` is to read ids
of a prompt a line, and to write the ids of llama.cpp's text, a line each.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from outdraft.engine.llm import LLM
from outdraft.models.files.load import load_model
from outdraft.models.files.load_codec import load_codec
from outdraft.models.networks.divergence import states_of
from outdraft.models.target.open_network import load_network
from outdraft.options.params import SamplingParams

_CUT = 16.0  # below the best logit
_ROWS = 64  # that are normed at once
_PROMPTS, _PROMPT, _TOKENS = 10, 48, 200


class Logits:
    """The file: `ids` [C, T], and log probabilities [V] of 16 bits for T - 1 - T / 2 rows of each chunk."""

    def __init__(self, path: Path) -> None:
        if path.open("rb").read(8) != b"_logits_":
            raise SystemExit(f"{path} was not written by llama-perplexity --kl-divergence-base")
        length, self.vocab, chunks = (int(one) for one in np.fromfile(path, np.int32, 3, offset=8))
        ids = np.fromfile(path, np.int32, chunks * length, offset=20).reshape(chunks, length)
        self.ids, self.first = torch.from_numpy(ids).long(), length // 2
        shape = (chunks, length - 1 - self.first, 4 + self.vocab + self.vocab % 2)  # two floats before each row
        self._rows = np.memmap(path, np.uint16, "r", 20 + 4 * ids.size, shape)

    def of(self, chunk: int, rows: slice) -> Tensor:
        """Log probabilities of these rows, [R, V] float64."""
        raw = np.ascontiguousarray(self._rows[chunk, rows])
        scale, least = raw[:, :4].copy().view(np.float32).astype(np.float64).T[:, :, None]
        return torch.from_numpy(raw[:, 4 : 4 + self.vocab] * scale + least)


def cut(logits: Tensor) -> Tensor:
    """Log probabilities as llama.cpp keeps them: [R, V] float64."""
    logits = logits.double()
    return logits.maximum(logits.amax(1, keepdim=True) - _CUT).log_softmax(1)


@torch.inference_mode()
def compare(path: Path, peer: Logits) -> dict[str, Tensor]:
    """By name, of each position: the KL divergence, and whether the first choice is the twin's. float64 [N, 2]."""
    twin, ours, codec = load_model(path, dtype="float32"), load_network(path), load_codec(path)
    twin.set_exact(False)
    start = [] if codec is None else codec.encode("")
    found: dict[str, list[Tensor]] = {"outdraft": [], "llama.cpp": []}
    for chunk, ids in enumerate(peer.ids):
        ids[: len(start)] = torch.tensor(start)  # in place of the first id, as llama.cpp does
        states = [(network, states_of(network, ids)[peer.first : -1]) for network in (twin, ours)]
        for at in range(0, len(ids) - 1 - peer.first, _ROWS):
            rows = slice(at, at + _ROWS)
            p, r = (cut(network.logits(state[rows])) for network, state in states)
            for name, q in (("outdraft", r), ("llama.cpp", cut(peer.of(chunk, rows)))):
                found[name].append(torch.stack(((p.exp() * (p - q)).sum(1), (p.argmax(1) == q.argmax(1)).double()), 1))
    return {name: torch.cat(rows) for name, rows in found.items()}


def part(path: Path, program: str, ids: Tensor) -> Iterator[int]:
    """How many tokens of each prompt's text are alike."""
    llm, codec = LLM(path, drafter="none"), load_codec(path)
    start = [] if codec is None else codec.encode("")
    prompts = [start + ids[len(ids) // _PROMPTS * i :][:_PROMPT].tolist() for i in range(_PROMPTS)]
    lines = "".join(" ".join(map(str, prompt)) + "\n" for prompt in prompts)
    ran = subprocess.run([program, path, str(_TOKENS)], input=lines, stdout=subprocess.PIPE, text=True, check=True)
    for prompt, line in zip(prompts, ran.stdout.splitlines(), strict=True):
        ours = llm.generate({"prompt_token_ids": prompt}, SamplingParams(max_tokens=_TOKENS)).token_ids
        theirs = [int(one) for one in line.split()]
        alike = (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
        yield next(alike, min(len(ours), len(theirs)))


def main(words: list[str] | None = None) -> int:
    """Print the figures; 1 where ours is farther than llama.cpp's by two standard errors."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.peer_divergence", description="A GGUF file against its floats."
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("logits", type=Path)
    parser.add_argument("--greedy", metavar="PROGRAM", help="llama.cpp's greedy texts")
    asked = parser.parse_args(words)
    peer = Logits(asked.logits)
    found = compare(asked.file, peer)
    for name, rows in found.items():
        kl, same = rows.mean(0).tolist()
        sys.stdout.write(f"{asked.file.name}: {name}: KL {kl:.6f}, {same:.2%} equal first choices\n")
    more = (found["outdraft"] - found["llama.cpp"])[:, 0]
    off, error = float(more.mean()), float(more.std()) / len(more) ** 0.5
    sys.stdout.write(f"difference {off:.6f}, standard error {error:.6f}\n")
    if asked.greedy:
        alike = part(asked.file, asked.greedy, peer.ids.flatten())
        sys.stdout.write(f"alike: {', '.join(map(str, alike))} of {_TOKENS} tokens\n")
    return int(off > 2 * error)


if __name__ == "__main__":
    sys.exit(main())
