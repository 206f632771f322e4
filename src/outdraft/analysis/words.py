"""Captions of tables and pictures: which model, how it was measured, on what machine and when."""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import asdict
from typing import Any, Protocol

from outdraft.analysis.lines import PLAIN
from outdraft.analysis.records import Records
from outdraft.analysis.summary import ALL, Cell
from outdraft.options.params import SamplingParams

_OFF = asdict(SamplingParams())
_SAID = ("max_tokens", "temperature", "seed", "logprobs")  # elsewhere, or it changes no text
_OF_DRAWS = ("top_k", "top_p", "min_p", "typical_p")  # nothing to greedy decoding


class Captioned(Protocol):
    """What a caption needs of any line of a record."""

    @property
    def model(self) -> Mapping[str, Any]: ...
    @property
    def machine(self) -> Mapping[str, Any]: ...
    @property
    def config(self) -> Mapping[str, Any]: ...
    @property
    def when(self) -> str: ...
    @property
    def load(self) -> float | None: ...


def what_measured(records: Records) -> str:
    """ "outdraft bench: zoo:target, 15.7M parameters, bfloat16": the title."""
    return f"outdraft bench: {model_words(records.rows[0])}"


def model_words(row: Captioned) -> str:
    """ "zoo:target, 15.7M parameters, bfloat16"."""
    name = str(row.model["name"])
    if row.model.get("inflate"):
        name += f" inflated {row.model['inflate']}"
    return f"{name}, {_count(int(row.model['parameters']))} parameters, {row.config['dtype']}"


def how_measured(records: Records, cells: Seq[Cell]) -> str:
    """Sampling, prompts, rounds, and whether all texts were plain decoding's."""
    row = records.rows[0]
    prompts = len({(one.suite, one.prompt) for one in records.rows})
    num_rounds = min(len(one.seconds) for one in records.rows)
    told = f"{sampling_words(row.sampling)}; {prompts} prompts, up to {row.sampling['max_tokens']} tokens each; "
    told += f"median of {num_rounds} interleaved rounds, bars 95 %"
    compared = [cell for cell in cells if cell.group == ALL and cell.method != PLAIN and cell.num_compared]
    if not compared:
        return told
    failed = sum(cell.num_failed for cell in compared)
    checked = sum(cell.num_compared for cell in compared)
    if failed:
        return f"{told}; {failed} of {checked} texts DIFFER from plain decoding's"
    return f"{told}; all {checked} texts identical to plain decoding's"


def where_measured(records: Records) -> str:
    """Machine and date, and how busy the machine was."""
    return machine_words(records.rows)


def machine_words(rows: Seq[Captioned]) -> str:
    """The same of any lines, all of one machine."""
    row = rows[0]
    machine = row.machine
    place = str(machine.get("gpu") or machine["cpu"])
    days = sorted({one.when[:10] for one in rows})
    loads = [one.load for one in rows if one.load is not None]
    threads = machine["threads"]
    told = f"{place}; {machine['cores']} cores, {threads} thread{'s' * (threads != 1)}; torch {machine['torch']}, "
    told += f"quota of {machine['quota']:g} cores, " if machine.get("quota") else ""
    told += f"outdraft {machine['outdraft']}; {days[0]}" + (f" to {days[-1]}" if len(days) > 1 else "")
    beside = int(machine.get("neighbours", 0))
    told += f"; beside {beside} busy neighbour{'s' * (beside != 1)}" if beside else ""
    if loads and machine["cores"] and max(loads) - beside > 1.25 * machine["cores"]:
        told += f"; the machine was busy (load up to {max(loads):.1f})"
    return told


def sampling_words(sampling: Mapping[str, Any]) -> str:
    """ "greedy", or "temperature 0.8, top_p 0.9, seed 1"."""
    greedy, seed = sampling["temperature"] == 0, sampling["seed"]
    told = ["greedy"] if greedy else [f"temperature {sampling['temperature']:g}"]
    for name, off in _OFF.items():
        value = sampling.get(name, off)
        if name in _SAID or (greedy and name in _OF_DRAWS) or value == off or not (value or off):
            continue
        told.append(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}")
    if not greedy:
        told.append("no seed" if seed is None else f"seed {seed}")
    return ", ".join(told)


def _count(number: int) -> str:
    for unit, size in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return str(number)
