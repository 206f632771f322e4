"""How good the zoo's models are: loss of target and draft by source, against an n-gram.

    nats/token    mean of -log p over held-out documents, all but the first tokens of a window
    bits/byte     the same over the bytes that those tokens spell, so that tokenizers can be compared

The n-gram is counted on windows of the training text, `ngram_steps` batches of `ngram_rows`. With a target's own seed
and sizes they are those that it saw in its stable phase.
Data out: OUT/evaluate/report.json.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from lab.zoo.ngram import NgramModel
from lab.zoo.pretrain import hidden_states
from lab.zoo.recipe import DataConfig
from lab.zoo.streams import Sampler, open_streams
from outdraft.models.networks.base import Decoder


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateOptions:
    """The recipe's [task] table."""

    num_rows: int = 48  # windows of each source
    length: int = 257
    ngram_order: int = 4
    ngram_seed: int = 1  # with a target's seed and rows a batch: its own windows
    ngram_steps: int = 1000
    ngram_rows: int = 24
    num_texts: int = 16  # openings of each source, behind which the target writes
    prompt_tokens: int = 33
    text_tokens: int = 128


def evaluate_losses(
    data: DataConfig, data_dir: Path, tokenizer: Tokenizer, models: dict[str, Decoder], options: EvaluateOptions
) -> dict[str, dict[str, float]]:
    """Source -> measure -> value."""
    train = Sampler(open_streams(data, data_dir, "train"), options.ngram_seed)
    seen = [train.rows(step, 0, options.ngram_rows, options.length).numpy() for step in range(options.ngram_steps)]
    ngram = NgramModel(np.concatenate(seen), options.ngram_order, tokenizer.get_vocab_size())
    spelled = bytes_of_ids(tokenizer)
    result: dict[str, dict[str, float]] = {}
    totals: dict[str, list[float]] = {}
    for stream in open_streams(data, data_dir, "valid"):
        rows = Sampler([stream], 0).rows(0, 0, options.num_rows, options.length)
        judged = rows[:, options.ngram_order :]  # what every model has enough context for
        per_token = float(spelled[judged.numpy()].mean())
        nats = {name: float(_nats(model, rows)[:, options.ngram_order - 1 :].mean()) for name, model in models.items()}
        nats["ngram"] = float(ngram.nats(rows.numpy())[:, 1:].mean())
        result[stream.name] = {"bytes_per_token": per_token, "tokens": float(judged.numel())}
        for name, value in nats.items():
            result[stream.name] |= {f"{name}_nats": value, f"{name}_bits_per_byte": value / math.log(2) / per_token}
            totals.setdefault(f"{name}_nats", []).append(value * stream.weight)
    result["mixture"] = {name: sum(parts) for name, parts in totals.items()}
    return result


def bytes_of_ids(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """How many bytes each id spells: a byte-level piece has one character a byte, a special token spells nothing."""
    special = set(tokenizer.get_added_tokens_decoder())
    sizes = [len(tokenizer.id_to_token(i) or "") if i not in special else 0 for i in range(tokenizer.get_vocab_size())]
    return np.array(sizes, np.int64)


def write_report(directory: Path, report: dict[str, object]) -> None:
    """OUT/evaluate/report.json."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


@torch.no_grad()
def _nats(model: Decoder, rows: Tensor) -> Tensor:
    """-log p of every token but the first: [B, T]."""
    parts = []
    for some in rows.split(8):  # type: ignore[no-untyped-call]
        logits = model.logits(hidden_states(model, some[:, :-1]))
        parts.append(F.cross_entropy(logits.float(), some[:, 1:].flatten(), reduction="none").view(len(some), -1))
    return torch.cat(parts)
