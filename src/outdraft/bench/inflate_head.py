"""The trained head of a small target, made to fit the target that `models.inflate` makes of it: the same guesses.

A head then costs what a head of that target would: an EAGLE network one target layer and its joining matrices. Kept
small, on the first copy of the channels, it would guess the same for less than any real one. How a head grows is its
method's own affair (`LearnMethod.inflate`). Data in and out: directories.
"""

import json
from pathlib import Path
from typing import Any

from outdraft.core.learner import LearnMethod
from outdraft.core.registry import find_learner, learner_names
from outdraft.models.files.load import load_model


def method_of(directory: Path) -> LearnMethod[Any, Any] | None:
    """How the head in a directory is trained and inflated; None: it holds no head."""
    path = directory / "config.json"
    raw = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    known = (find_learner(name) for name in learner_names())
    return next((method for method in known if method.is_named(raw)), None)


def inflate_head(head_dir: Path, target_dir: Path, out_dir: Path, *, width: int = 1, depth: int | None = None) -> None:
    """Write to `out_dir` the head in `head_dir` for the target in `target_dir`, inflated by `width` and `depth`."""
    method, target = method_of(head_dir), load_model(target_dir)
    assert method is not None and method.inflate is not None
    method.inflate(head_dir, target, out_dir, width, target.config.num_layers if depth is None else depth)
