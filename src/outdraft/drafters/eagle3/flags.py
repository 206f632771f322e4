"""The flags of an EAGLE-3 config.json: at its top, or in its `eagle_config`, or in both if they agree.

What `eagle_config` says of a computation that there is no other of here must be that computation; what it says besides
is named in one line.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outdraft.options.errors import ModelLoadError
from outdraft.options.shown import shown

FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
TAPS = "eagle_aux_hidden_state_layer_ids"
NESTED = "eagle_config"
AUX = "use_aux_hidden_state"
ONLY: dict[str, object] = {  # of `eagle_config`: the one value that is computed
    "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True,
    "use_mtp_layernorm": False,
    "next_layer_regular": True,
    "parallel_draft_step": 1,
}
_log = logging.getLogger(__name__)


def read_flag(raw: Mapping[str, Any], flag: str, default: bool, where: Path) -> bool:
    """A flag at the top or in `eagle_config`. Raises `ModelLoadError` where both say something, and not the same."""
    told = [part[flag] for part in (raw, nested(raw)) if part.get(flag) is not None]
    if any(not isinstance(value, bool) for value in told):
        raise ModelLoadError(f"{where}: {flag}={shown(told[0])} of config.json is neither true nor false")
    if len(set(told)) > 1:
        raise ModelLoadError(f"{where}: {flag} of config.json is {told[0]} and in {NESTED} {told[1]}: leave one out")
    return bool(told[0]) if told else default


def nested(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The table `eagle_config`; empty where there is none."""
    table = raw.get(NESTED)
    return table if isinstance(table, Mapping) else {}


def check_nested(raw: Mapping[str, Any], where: Path) -> None:
    """Raise `ModelLoadError` for what `eagle_config` asks for and is not computed; one line for other keys."""
    table = nested(raw)
    for key, only in ONLY.items():
        if table.get(key, only) not in (only, None):
            raise ModelLoadError(
                f"{where}: {NESTED}.{key}={shown(table[key])} is not supported (it must be {shown(only)}): take "
                "another head of this target"
            )
    unread = sorted(set(table) - {*ONLY, *FLAGS, TAPS, AUX})
    if unread:
        _log.warning("%s: %s has keys that are not read: %s", where.name, NESTED, ", ".join(unread))
