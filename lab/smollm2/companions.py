"""The drafts that ship for SmolLM2, as they travel: matrices as bytes, each with the record of its training.

    python -m lab.smollm2.companions TRAINED src/outdraft/zoo/smollm2

Data in: the trained drafts in bfloat16 (`train_all.py`), packed as NAME.tar.xz; data out: NAME/ for each, and the
companions.json that names them. A draft model that was cut from the target keeps the target's embedding out of its
file.
"""

import argparse
import json
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from outdraft.weights.safetensors import SINGLE, read_tensors, save_tensors
from outdraft.weights.stored_bytes import rounded_matrices

DRAFTS = ("eagle3", "draft_model")
BESIDE = {"draft_model": "draft_model", "head": {"eagle3": "eagle3"}}


def main() -> None:
    """Write each draft anew."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("packed", type=Path)
    parser.add_argument("out", type=Path)
    asked = parser.parse_args()
    for name in DRAFTS:
        with TemporaryDirectory() as place, tarfile.open(asked.packed / f"{name}.tar.xz") as packed:
            packed.extractall(place, filter="data")
            write(next(Path(place).rglob(SINGLE)).parent, asked.out / name)
    (asked.out / "companions.json").write_text(json.dumps(BESIDE, indent=2) + "\n", encoding="utf-8")


def write(draft: Path, out: Path) -> None:
    """One draft, on bytes."""
    out.mkdir(parents=True, exist_ok=True)
    config = json.loads((draft / "config.json").read_text(encoding="utf-8"))
    config.pop("outdraft_variant", None)  # of the file that it was cut from; its own weights were trained since
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (out / "training.json").write_bytes((draft / "training.json").read_bytes())
    save_tensors(rounded_matrices(read_tensors(draft / SINGLE)), out / SINGLE)


if __name__ == "__main__":
    main()
