"""Put trained drafts of the zoo's target into the zoo, in bfloat16 and with the record of their training.

    python -m lab.zoo.install OUT/draft OUT/eagle OUT/eagle3 [--zoo src/outdraft/zoo]

A draft keeps the name of its directory. A draft model also gets the target's tokenizer. `target/companions.json` says
what a method drafts with, and is written by hand.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from outdraft.training.record import RECORD

WEIGHTS, OF_TARGET = "model.safetensors", ("tokenizer*.json", "generation_config.json")


def install(source: Path, zoo: Path) -> Path:
    """Configuration, rounded weights, and the record: nothing else of the training."""
    place = zoo / source.name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    config |= {key: "bfloat16" for key in ("dtype", "torch_dtype") if key in config}
    (place / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    record = json.loads((source / RECORD).read_text(encoding="utf-8"))
    (place / RECORD).write_text(json.dumps(record, separators=(",", ":")) + "\n", encoding="utf-8")
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(source / WEIGHTS).items()}
    save_file(tensors, place / WEIGHTS, metadata={"format": "pt"})
    if config.get("architectures") == ["LlamaForCausalLM"]:
        for pattern in OF_TARGET:
            for path in (zoo / "target").glob(pattern):
                shutil.copyfile(path, place / path.name)
    return place


def main() -> None:
    """Each in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drafts", type=Path, nargs="+")
    parser.add_argument("--zoo", type=Path, default=Path("src/outdraft/zoo"))
    given = parser.parse_args()
    for draft in given.drafts:
        install(draft, given.zoo)


if __name__ == "__main__":
    main()
