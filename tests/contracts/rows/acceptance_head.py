"""A policy, which brings a head that was trained on the states of its draft: one of random weights, beside the twin."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from contracts.sides import randomise, stutterer, twin
from contracts.taught import taught

from outdraft.core.registry import find_learner
from outdraft.models.base import Decoder
from outdraft.testing.spec_table import DrafterRow


def add_head(target: Decoder, draft: Path) -> None:
    """A head of random weights in the folder where it is looked for."""
    method, own = find_learner("acceptance_head"), Decoder(target.config, torch.float32)
    learner = method.new(method.options(draft=str(draft), kind="draft_model"), own, 0)
    randomise(learner.module, seed=4)
    learner.save(draft / "acceptance_head")


def judged_twin(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """The target's twin with a head."""
    made = twin(target, directory)
    add_head(target, Path(made["model"]))
    return made


def judged_draft(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """A draft model that was taught, with a head."""
    made = taught("draft_model")(target, directory)
    add_head(target, Path(made["model"]))
    return made


ROWS = [DrafterRow(drafter="draft_model", label="specdec_plus_plus", side=judged_twin)]
GROUNDS = [DrafterRow(drafter="draft_model", label="specdec_plus_plus", target=stutterer, side=judged_draft)]
