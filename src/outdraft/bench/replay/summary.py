"""What users got of a run, recorded or replayed."""

from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass
from statistics import median_low
from typing import Any

import numpy as np

from outdraft.bench.replay.trace import TracedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Times are over all requests that wrote something; None where none did."""

    tokens_per_second: float  # from the first arrival to the last token
    first_median: float | None  # seconds from arrival to the first token
    first_p99: float | None
    end_median: float | None  # seconds from arrival to the end
    end_p99: float | None
    num_refused: int  # requests that might not wait
    num_late: int  # requests that had not ended when their time was over


def summarise(requests: Seq[TracedRequest]) -> Summary:
    """Of all requests of a run."""
    refused, late = (sum(one.reason == reason for one in requests) for reason in ("refused", "timeout"))
    written = [(one, one.first) for one in requests if one.first is not None]
    ends = [first if one.end is None else one.end for one, first in written]
    span = max(ends) - min(one.at for one in requests) if written else 1.0
    waits = [
        [first - one.at for one, first in written],
        [end - one.at for end, (one, _) in zip(ends, written, strict=True)],
    ]
    first, end = ([float(at) for at in np.percentile(one, [50, 99])] if one else [None, None] for one in waits)
    return Summary(
        tokens_per_second=sum(one.num_tokens for one, _ in written) / max(span, 1e-9),
        first_median=first[0],
        first_p99=first[1],
        end_median=end[0],
        end_p99=end[1],
        num_refused=refused,
        num_late=late,
    )


def middle(runs: Seq[Summary]) -> Summary:
    """The median of each number by itself, of those runs that have it."""
    told = [asdict(one) for one in runs]
    known = {key: [one[key] for one in told if one[key] is not None] for key in told[0]}
    found: dict[str, Any] = {key: median_low(values) if values else None for key, values in known.items()}
    return Summary(**found)
