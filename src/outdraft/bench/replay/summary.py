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
    written = [one for one in requests if one.first is not None]
    if not written:
        return Summary(
            tokens_per_second=0.0,
            first_median=None,
            first_p99=None,
            end_median=None,
            end_p99=None,
            num_refused=refused,
            num_late=late,
        )
    ends = [(one.end if one.end is not None else one.first or one.at, one) for one in written]
    span = max(end for end, _ in ends) - min(one.at for one in requests)
    first = np.percentile([(one.first or one.at) - one.at for one in written], [50, 99])
    end = np.percentile([end - one.at for end, one in ends], [50, 99])
    return Summary(
        tokens_per_second=sum(one.num_tokens for one in written) / max(span, 1e-9),
        first_median=float(first[0]),
        first_p99=float(first[1]),
        end_median=float(end[0]),
        end_p99=float(end[1]),
        num_refused=refused,
        num_late=late,
    )


def middle(runs: Seq[Summary]) -> Summary:
    """The median of each number by itself, of those runs that have it."""
    told = [asdict(one) for one in runs]
    known = {key: [one[key] for one in told if one[key] is not None] for key in told[0]}
    found: dict[str, Any] = {key: median_low(values) if values else None for key, values in known.items()}
    return Summary(**found)
