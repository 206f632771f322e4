"""The drafts that ship for SmolLM2, as they travel: matrices as bytes, each with the record of its training.

    python -m lab.smollm2.companions TRAINED src/outdraft/zoo/smollm2

Data in: the trained drafts in bfloat16 (`train_all.py`), packed as NAME.tar.xz; data out: NAME/ for each, and the
companions.json that names them. A draft model that was cut from the target keeps the target's embedding out of its
file.
"""

import argparse
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from outdraft.weights.safetensors import SINGLE, read_tensors, save_tensors
from outdraft.weights.stored_bytes import GROUP, SCALES

DRAFTS = ("eagle3", "draft_model")
_MOST = 127
_FEWEST = 1 << 16  # numbers of a matrix that is worth rounding
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


def rounded_matrices(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What a file holds of these tensors: bytes and scales of each large matrix, and the others as they are."""
    made: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        is_matrix = tensor.dim() == 2 and tensor.is_floating_point() and not tensor.size(1) % GROUP
        if is_matrix and tensor.numel() >= _FEWEST:
            groups = tensor.float().contiguous().view(len(tensor), -1, GROUP)
            scales = (groups.abs().amax(2) / _MOST).half()
            whole = groups / torch.where(scales == 0, 1.0, scales.float())[:, :, None]
            made[name] = whole.round().clamp(-_MOST, _MOST).to(torch.int8).flatten(1)
            made[name + SCALES] = scales
        else:
            made[name] = tensor
    return made


if __name__ == "__main__":
    main()
