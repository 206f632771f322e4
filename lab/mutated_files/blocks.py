"""Damaged GGUF files of every block type alone: `python -m lab.mutated_files.blocks`, see `lab.sweep.run`.

Each is read by the native kernels and through PyTorch.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from lab.mutated_files.block_files import VOCABULARIES
from lab.mutated_files.cases import crossed
from lab.mutated_files.stage import Files, open_blocks
from lab.sweep.case import Case
from lab.sweep.run import main


def load(directory: Path, seed: int) -> Callable[[int], Case]:
    """The case of a number."""
    files = Files(directory)
    native = [one for one in files.subjects() if one.home.name in VOCABULARIES]
    return crossed(
        files, [*native, *(replace(one, open=partial(open_blocks, dtype="float32")) for one in native)], seed
    )


if __name__ == "__main__":
    sys.exit(main("lab.mutated_files.blocks", 2000))
