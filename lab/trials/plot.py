"""The sample efficiency of a trial's arms: what their drafts were worth while they learned, by the logs of its runs."""

import json
from collections.abc import Sequence as Seq
from pathlib import Path

from lab.trials.table import TAU, Run, chosen
from outdraft.options.errors import ConfigError


def plot_trial(path: Path, runs: Seq[Run], arms: Seq[str], out: Path, *, depth: int, target: str) -> None:
    """Draw the run of the first seed of each arm, at its best rate. Raises `ConfigError` where there is none, or no
    matplotlib."""
    try:
        from lab.trials.learning import Point, draw_learning
    except ImportError as error:
        raise ConfigError(f"--plot {path} needs matplotlib: pip install matplotlib") from error
    lines = {}
    for arm in arms:
        own = chosen(runs, arm, TAU)
        if not own:
            raise ConfigError(f"--plot {path}: arm {arm!r} has no run yet")
        log = out / own[0].place / "run" / "log.jsonl"
        rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        lines[arm] = [Point(tokens=row["tokens"], tau=row["tau"], deepest=row["conditional"][-1]) for row in rows]
    draw_learning(
        path,
        lines,
        depth=depth,
        title="What a draft has learned by then",
        under=f"target {target}; one run each, seed {runs[0].seed}; chains of {depth}, temperature 1",
    )
