"""A word where a draft was trained for another target than the one that it drafts for: its guesses would be poor, and
nothing else would say why. `outdraft train` leaves the mark of the target's final norm in the draft's `training.json`.
"""

import json
import logging
from pathlib import Path

from outdraft.adapt.acceptance_record import RECORD
from outdraft.core.drafter import Drafter, inner
from outdraft.models.networks.mark import norm_mark
from outdraft.models.networks.network import Network

_log = logging.getLogger(__name__)


def note_other_target(drafter: Drafter, target: Network) -> None:
    """Log a warning for each network whose record names another final norm than the target has."""
    known = [(home, mark) for one in inner(drafter) if (home := one.traits.home) and (mark := _recorded(home))]
    mine = norm_mark(target) if known else ""
    for home, mark in known:
        if mark != mine:
            _log.warning(
                "%s was trained for another target (mark of its final norm: %s) than the one that it drafts for (%s): "
                "few of its guesses may be accepted; outdraft train KIND --init %s has it follow this one",
                home,
                mark,
                mine,
                home,
            )


def _recorded(home: Path) -> str:
    """ "": there is no mark, or nothing that can be read."""
    try:
        return str(json.loads((home / RECORD).read_text(encoding="utf-8"))["target"]["norm"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
