"""What a file says and outdraft leaves aside, noted in one line of the log `outdraft.notes`."""

import logging
from collections.abc import Mapping
from typing import Any

from outdraft.options.shown import shown

_log = logging.getLogger("outdraft.notes")


def note(where: str, values: Mapping[str, Any], why: str, *, level: int = logging.INFO) -> None:
    """`where`: the file, as "DIR/tokenizer.json"; `values`: by key; nothing is said of none.

    WARNING is for what makes another text than the file's own program would; INFO for all else.
    """
    if values:
        _log.log(level, "%s: %s: %s", where, ", ".join(f"{key}={shown(one)}" for key, one in values.items()), why)
