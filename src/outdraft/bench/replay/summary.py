"""What users got of a run, recorded or replayed."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np

from outdraft.bench.replay.trace import Asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Over all requests that wrote something."""

    tokens_per_second: float  # from the first arrival to the last token
    first_median: float  # seconds from arrival to the first token
    first_p99: float
    end_median: float  # seconds from arrival to the end
    end_p99: float


def summarise(requests: Seq[Asked]) -> Summary:
    """Times of those that have begun to write; there must be one."""
    written = [one for one in requests if one.first is not None]
    ends = [(one.end if one.end is not None else one.first or one.at, one) for one in written]
    span = max(end for end, _ in ends) - min(one.at for one in requests)
    first = np.percentile([(one.first or one.at) - one.at for one in written], [50, 99])
    end = np.percentile([end - one.at for end, one in ends], [50, 99])
    return Summary(
        tokens_per_second=sum(one.num_tokens for one in written) / max(span, 1e-9),
        first_median=float(first[0]), first_p99=float(first[1]), end_median=float(end[0]), end_p99=float(end[1]),
    )  # fmt: skip
