"""`python -m lab.gpu.gather DIR`: what the parts of `lab/on_gpu.sh` wrote into DIR, as one file, DIR/on_gpu.json.

{"parts": [{"part", "status", "seconds", "said"}], "texts": [...], "bench": [...]}: `said` is the end of a part's log.
"""

import json
import sys
from pathlib import Path
from typing import Any

LINES = 12  # of a log


def gather(place: Path) -> dict[str, Any]:
    """Everything in one object; a part that wrote nothing has an empty list, and a half line is left out."""
    told: dict[str, Any] = {name: _lines(place / f"{name}.jsonl") for name in ("parts", "texts", "bench")}
    for part in told["parts"]:
        log = place / f"{part['part']}.log"
        part["said"] = log.read_text("utf-8", "replace").splitlines()[-LINES:] if log.exists() else []
    return told


def _lines(path: Path) -> list[dict[str, Any]]:
    text = path.read_text("utf-8") if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / "on_gpu.json").write_text(json.dumps(gather(place), indent=1) + "\n", encoding="utf-8")
