"""How long the runs take that a trial lacks: as long as those of the same arm took, on the machine that ran them."""

from collections.abc import Sequence as Seq
from statistics import median

from outdraft.training.trial_table import Run


def forecast(wanted: Seq[tuple[str, float, int]], runs: Seq[Run]) -> str:
    """A line an arm, and the sum. `wanted`: arm, rate and seed of each run."""
    lines, total, unknown = [], 0.0, 0
    for arm in dict.fromkeys(name for name, _, _ in wanted):
        count = sum(name == arm for name, _, _ in wanted)
        took = [run.seconds for run in runs if run.arm == arm]
        if not took:
            unknown += count
            lines.append(f"{arm}: {count} runs, none measured yet")
            continue
        total += count * median(took)
        lines.append(f"{arm}: {count} runs of about {median(took):.0f} s")
    rest = f", and {unknown} of arms that were never run" if unknown else ""
    return "\n".join([*lines, f"{len(wanted)} runs are lacking: about {total / 60:.0f} min{rest}"]) + "\n"
