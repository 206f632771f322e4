"""What the windows of a storm say together."""

from collections import Counter
from typing import Any

from lab.abuse.look import quantile

MODES = ("abuse", "harmless")
MOST_RATIO = 2.0
MOST_GROWTH = 200  # MiB that a server may hold at the end beyond its start
MOST_MORE = 2  # descriptors, and threads, likewise
_SENTENCES = ("status 5", "unreadable", "is no JSON", "shows the inside", "not in OpenAI's shape")


def verdict(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts, ratios, growth; `faults`: what did not hold."""
    told: dict[str, Any] = {"windows": {}, "faults": []}
    firsts: dict[str, list[float]] = {mode: [] for mode in MODES}
    ends = Counter[str]()
    for mode in MODES:
        some = [row for row in rows if row["mode"] == mode]
        for row in some:
            firsts[mode] += row["honest"]["firsts"]
            ends.update(row["abuser"]["ends"] if mode == "abuse" else {})
        counts = {name: sum(row["honest"][name] for row in some) for name in ("texts", "wrong", "lost")}
        told["windows"][mode] = {
            "minutes": round(sum(row["seconds"] for row in some) / 60, 1),
            **counts,
            "requests": sum(row["abuser"]["count"] for row in some),
            "share": max((row["abuser"]["share"] for row in some), default=0.0),
            "first_p50_ms": round(quantile(firsts[mode], 0.5) * 1e3, 1),
            "first_p99_ms": round(quantile(firsts[mode], 0.99) * 1e3, 1),
        }
        told["faults"] += [
            f"{counts[name]} honest texts {name} beside {mode} requests" for name in ("wrong", "lost") if counts[name]
        ]
        told["faults"] += [f"the server {kind} has ended" for row in some for kind in row["dead"]]
    told["ratio"] = round(quantile(firsts["abuse"], 0.99) / max(1e-9, quantile(firsts["harmless"], 0.99)), 2)
    if told["ratio"] >= MOST_RATIO:
        told["faults"].append(f"first tokens took {told['ratio']} times as long as beside harmless requests")
    told["rest"] = [dict(one) for one in _rests(rows)]
    told["faults"] += [fault for one in told["rest"] for fault in one.pop("faults")]
    told["attacks"] = dict(sorted(ends.items()))
    told["faults"] += [f"{count} times {name}" for name, count in ends.items() if any(x in name for x in _SENTENCES)]
    return told


def _rests(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Begin and end of each server, for each time that servers were started."""
    found: list[dict[str, Any]] = []
    begin: dict[str, Any] | None = None
    for row in rows:
        if row["mode"] == "begin":
            begin = row
        elif row["mode"] == "end" and begin is not None:
            for kind, last in row["servers"].items():
                first = begin["servers"][kind]
                grown = {name: last[name] - first[name] for name in first}
                faults = [f"{kind}: {grown[name]} {name} more at the end" for name, most in _MOST if grown[name] > most]
                faults += [] if row["ready"].get(kind) else [f"{kind} does not say that it is ready"]
                log = row["logs"][kind] - begin["logs"][kind]
                found.append({"server": kind, "begin": first, "end": last, "log_bytes": log, "faults": faults})
    return found


_MOST = (("mib", MOST_GROWTH), ("descriptors", MOST_MORE), ("threads", MOST_MORE))
