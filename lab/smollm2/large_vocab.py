"""SmolLM2 with a vocabulary of 151,936 tokens, and its answers in it: whether drafts train at such a size.

    python -m lab.smollm2.large_vocab smollm2 DATA OUT [--count 400]
    outdraft train dflash --target OUT/target --data OUT/train.jsonl --valid OUT/valid.jsonl --out OUT/dflash ...

The model's 49,152 tokens get ids among 151,936, drawn by a seed; every other id has the row of one of them, a tenth as
large, so that the target hardly ever says it. So logits are as many as a Qwen3's, and the texts are the model's own.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

import torch

from outdraft.models.files.load import load_model, save_model
from outdraft.models.networks.base import Decoder
from outdraft.weights.hub import resolve
from outdraft.weights.known import usual_model

SIZE = 151_936


@torch.no_grad()
def main() -> int:
    """OUT/target, OUT/train.jsonl, OUT/valid.jsonl."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("data", type=Path, help="train.jsonl and valid.jsonl, as `train_all.split` writes them")
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=400, help="answers to learn from")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    small = load_model(resolve(usual_model(asked.model)[0]), torch.bfloat16)
    places = torch.randperm(SIZE, generator=torch.Generator().manual_seed(0))[: small.config.vocab_size]
    save_model(widened(small, places), asked.out / "target")
    for name, count in (("train", asked.count), ("valid", 32)):
        with (
            (asked.data / f"{name}.jsonl").open(encoding="utf-8") as lines,
            (asked.out / f"{name}.jsonl").open("w") as out,
        ):
            for line, _ in zip(lines, range(count), strict=False):
                told = {key: places[torch.tensor(ids)].tolist() for key, ids in json.loads(line).items()}
                out.write(json.dumps(told) + "\n")
    return 0


def widened(small: Decoder, places: torch.Tensor) -> Decoder:
    """The same network with tables of `SIZE` rows. places [V]: the new id of each old one."""
    known = small.config
    large = Decoder(replace(known, vocab_size=SIZE), dtype=small.dtype, device=small.device)
    weights = dict(small.state_dict())
    for name, table in weights.items():
        if table.dim() == 2 and table.shape[0] == known.vocab_size:
            wide = 0.1 * table[torch.arange(SIZE) % known.vocab_size]
            wide[places] = table
            weights[name] = wide
    large.load_state_dict(weights)
    return large


if __name__ == "__main__":
    sys.exit(main())
