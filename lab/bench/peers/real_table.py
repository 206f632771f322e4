"""The table of `lab.bench.peers.real`: speeds from the seconds of every text, and whether texts are plain decoding's.

Of a question, the median of its rounds counts. A ratio is to the quicker of our and llama.cpp's plain decoding.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from statistics import median
from typing import Any

from lab.bench.peers.setups import Setup
from lab.bench.peers.texts import differences, says, setup_of

SUITES = ("mt-bench", "gsm8k", "humaneval")
_BASE = ("outdraft", "llama_cpp")
Seconds = Mapping[str, float]  # by prompt


def table(lines: Seq[Mapping[str, Any]]) -> str:
    """Markdown; questions that a setup has not written yet are left out for all."""
    by_setup: dict[Setup, list[Mapping[str, Any]]] = {}
    for line in lines:
        by_setup.setdefault(setup_of(line), []).append(line)
    common = set.intersection(*({line["prompt"] for line in one} for one in by_setup.values())) if by_setup else set()
    if not common:
        return "no question has been answered by every setup yet\n"
    seconds = {setup: medians(one, common) for setup, one in by_setup.items()}
    plain = [setup for setup in seconds if setup.engine in _BASE and setup == setup.alone] or list(seconds)[:1]
    base = min(plain, key=lambda setup: sum(seconds[setup].values()))
    titles = [
        "",
        "tokens/s",
        f"times {base.label}",
        *SUITES,
        "first token, ms",
        "tokens a pass",
        "other texts than plain",
    ]
    rows = [titles, ["---"] * len(titles)]
    for setup, own in by_setup.items():
        cells = [setup.label, f"{_count(own, common) / sum(seconds[setup].values()):.0f}"]
        cells.append(_ratio(seconds[base], seconds[setup], common))
        cells += [_ratio(seconds[base], seconds[setup], _of(suite, common)) for suite in SUITES]
        cells.append(f"{1000 * median(line['first_seconds'] for line in own):.0f}")
        cells += [_tau(own), _other(setup, by_setup)]
        rows.append(cells)
    return "".join("| " + " | ".join(cells) + " |\n" for cells in rows)


def medians(lines: Iterable[Mapping[str, Any]], prompts: Iterable[str]) -> dict[str, float]:
    """Seconds of the whole text by question, the median of its rounds."""
    found: dict[str, list[float]] = {name: [] for name in prompts}
    for line in lines:
        if line["prompt"] in found:
            found[line["prompt"]].append(line["seconds"])
    return {name: median(some) for name, some in found.items()}


def _of(suite: str, prompts: Iterable[str]) -> list[str]:
    return [name for name in prompts if name.startswith(suite + " ")]


def _ratio(base: Seconds, own: Seconds, prompts: Iterable[str]) -> str:
    names = list(prompts)
    return f"{sum(base[name] for name in names) / sum(own[name] for name in names):.2f}" if names else ""


def _count(lines: Iterable[Mapping[str, Any]], prompts: Iterable[str]) -> int:
    lengths = {line["prompt"]: len(line["tokens"]) for line in lines}
    return sum(lengths[name] for name in prompts)


def _tau(lines: Seq[Mapping[str, Any]]) -> str:
    passes = sum(line.get("passes") or 0 for line in lines)
    return f"{sum(len(line['tokens']) for line in lines) / passes:.2f}" if passes else ""


def _other(setup: Setup, by_setup: Mapping[Setup, Seq[Mapping[str, Any]]]) -> str:
    """Of all rounds: a text that changes from round to round counts as another one, too."""
    if setup.alone not in by_setup:
        return ""
    plain = {line["prompt"]: line["tokens"] for line in reversed(by_setup[setup.alone])}
    texts = {f"{line['prompt']} {line['round']}": line["tokens"] for line in by_setup[setup]}
    whose = {name: name.rpartition(" ")[0] for name in texts}
    return says(differences(texts, {name: plain[one] for name, one in whose.items() if one in plain}))
