"""A policy with a head on the states of its draft: one of random weights on the twin, and one that was taught."""

from collections.abc import Mapping
from pathlib import Path
from shutil import copytree
from tempfile import mkdtemp
from typing import Any

import torch
from contracts.sides import randomise, stutterer, twin
from contracts.taught import taught, teach

from outdraft.core.learner_registry import find_learner
from outdraft.models.networks.base import Decoder
from outdraft.testing.spec_table import DrafterRow
from outdraft.weights.digest import digest_weights

FOLDER, KIND = "acceptance_head", "draft_model"  # of a draft's directory, where a head is looked for
_made: dict[str, Path] = {}  # heads that were taught, by the weights of their drafts


def judged_twin(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """The target's twin with a head of random weights."""
    made = twin(target, directory)
    draft, method = Path(made["model"]), find_learner(FOLDER)
    own = Decoder(target.config, torch.float32)
    learner = method.new(method.options(draft=str(draft), kind=KIND), own, 0)
    randomise(learner.module, seed=4)
    learner.save(draft / FOLDER)
    return made


def judged_draft(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """A draft model that was taught, with a head that was taught which of its tokens are rejected."""
    made = taught(KIND)(target, directory)
    key = digest_weights(directory)
    if key not in _made:
        _made[key] = Path(mkdtemp(prefix="taught-head-"))
        teach(FOLDER, {"draft": str(directory), "kind": KIND}, target, _made[key])
    copytree(_made[key], directory / FOLDER, dirs_exist_ok=True)
    return made


ROWS = [DrafterRow(drafter="draft_model", label="specdec_plus_plus", side=judged_twin)]
GROUNDS = [DrafterRow(drafter="draft_model", label="specdec_plus_plus", target=stutterer, side=judged_draft)]
