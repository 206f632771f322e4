"""`python -m lab.gpu.gather DIR`: what the parts of `lab/on_gpu.sh` wrote into DIR, as one file, DIR/on_gpu.json.

{"parts": [{"part", "status", "seconds", "said"}], "texts": [...], "packed": [...], "bench": [...]}: `said` is the end
of a log. The texts are those of all files `texts*.jsonl`.
"""

import json
import sys
from pathlib import Path
from typing import Any

LINES = 12  # of a log


def gather(place: Path) -> dict[str, Any]:
    """Everything in one object; a part that wrote nothing has an empty list, and a half line is left out."""
    found = {name: _lines(place, name) for name in ("parts", "texts", "packed", "bench")}
    for part in found["parts"]:
        log = place / f"{part['part']}.log"
        part["said"] = log.read_text("utf-8", "replace").splitlines()[-LINES:] if log.exists() else []
    return found


def _lines(place: Path, name: str) -> list[dict[str, Any]]:
    texts = [path.read_text("utf-8") for path in sorted(place.glob(f"{name}*.jsonl"))]
    return [json.loads(line) for text in texts for line in text[: text.rfind("\n") + 1].splitlines()]


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / "on_gpu.json").write_text(json.dumps(gather(place), indent=1) + "\n", encoding="utf-8")
