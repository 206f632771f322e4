"""The one place that writes to the terminal: rich when it is one, plain text when it is not.

No escape sequence reaches a pipe or a file, nor a terminal whose user set NO_COLOR (https://no-color.org).
"""

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from outdraft.core.events import Source

if TYPE_CHECKING:
    from outdraft.engine.llm import LLM

STYLES = {Source.ACCEPTED: "green", Source.RECOVERED: "yellow", Source.BONUS: "cyan", Source.PLAIN: "",
          Source.RESUMED: "dim"}  # fmt: skip
MEANINGS = {
    Source.ACCEPTED: "accepted draft",
    Source.RECOVERED: "recovered after a rejection",
    Source.BONUS: "bonus after a whole draft",
    Source.PLAIN: "plain, nothing drafted",
    Source.RESUMED: "written before, elsewhere",
}


def make_console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr."""
    bare = bool(os.environ.get("NO_COLOR"))
    return Console(stderr=stderr, highlight=False, soft_wrap=False, color_system=None if bare else "auto")


def has_style(console: Console) -> bool:
    """Whether colours will be seen."""
    return console.color_system is not None and console.is_terminal


def write_json(data: Any) -> None:
    """Machine output: one JSON value on stdout, nothing else."""
    sys.stdout.write(json.dumps(data, ensure_ascii=False, indent=2) + "\n")


def warn_if_lossy(console: Console, llm: "LLM") -> None:
    """Say so if the rule that judges does not keep the target's distribution."""
    if not llm.lossless:
        console.print(lossy_note(llm.config["verifier"]["name"]), style="bold red", markup=False)


def lossy_note(verifier: str) -> str:
    """Of a rule that does not keep the target's distribution."""
    return f"LOSSY: with these options verifier {verifier} does not keep the target's distribution; 'auto' does"


def legend() -> Text:
    """Which colour means what."""
    shown = [source for source in Source if source != Source.RESUMED]  # no command begins with one
    parts = [Text("■ ", style=STYLES[source] or "default") + Text(MEANINGS[source]) for source in shown]
    return Text("   ").join(parts)
