"""How long the runs take that a trial lacks: as long as those of the same arm took, on the machine that ran them.

An arm that was never run is taken to need as long for a token as the other arms did, in the median.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from statistics import median

from lab.trials.table import Run


def forecast(wanted: Seq[tuple[str, float, int]], runs: Seq[Run], tokens: Mapping[str, int]) -> str:
    """A line an arm, and the sum. `wanted`: arm, rate and seed of each run; `tokens`: what a run of each arm reads."""
    lines, total, unknown = [], 0.0, 0
    a_token = [run.seconds / tokens[run.arm] for run in runs if run.arm in tokens]
    for arm in dict.fromkeys(name for name, _, _ in wanted):
        count = sum(name == arm for name, _, _ in wanted)
        took = [run.seconds for run in runs if run.arm == arm]
        if not took and not a_token:
            unknown += count
            lines.append(f"{arm}: {count} runs, none measured yet")
            continue
        each = median(took) if took else median(a_token) * tokens[arm]
        total += count * each
        lines.append(f"{arm}: {count} runs of about {each:.0f} s" + ("" if took else ", by the other arms"))
    rest = f", and {unknown} of arms that were never run" if unknown else ""
    return "\n".join([*lines, f"{len(wanted)} runs are lacking: about {total / 60:.0f} min{rest}"]) + "\n"
