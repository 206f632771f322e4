"""Tables that a stored draft leaves out, because they are its target's: the embedding and the output head.

    config.json    "outdraft_borrowed": {"embedding": "5f0c...", "head": "91ab..."}      fingerprint of each table

They are most of a small draft's bytes. What opens the draft brings its target's `TargetTables`; a table of another
fingerprint is refused.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.models.families.shared.naming import Entry
from outdraft.options.errors import ModelLoadError
from outdraft.options.shown import shown
from outdraft.weights.source import TensorSource

BORROWED = "outdraft_borrowed"  # in config.json
TABLES = {"embedding": "embedding", "head": "lm_head.weight"}  # as they are declared -> our name
_NAMES = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
_SAMPLED = 4096  # numbers of a table


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTables:
    """A target's tables, read when asked for. `name`: the target's, for errors; `read`: our name -> [V, D]."""

    name: Callable[[], str]
    read: Callable[[str], Tensor]


def fingerprint(table: Tensor) -> str:
    """16 hexadecimal digits of a table's shape and a sample of its numbers, the same in every number format."""
    some = table.detach().flatten()[:: max(1, table.numel() // _SAMPLED)].to(torch.bfloat16).float().cpu()
    return hashlib.sha256(repr(tuple(table.shape)).encode() + some.numpy().tobytes()).hexdigest()[:16]


def declaration(tensors: Mapping[str, Tensor], borrowed: Collection[str]) -> dict[str, str]:
    """What config.json says of a draft with these tensors (by our names) that leaves out these tables."""
    return {name: fingerprint(tensors[TABLES[name]]) for name in borrowed}


class WithBorrowed(TensorSource):
    """A draft's own tensors, and its target's where it has none."""

    def __init__(self, own: TensorSource, borrowed: Mapping[str, Tensor]) -> None:
        self.origin, self._own, self._borrowed = own.origin, own, borrowed

    def __contains__(self, name: object) -> bool:
        return name in self._borrowed or name in self._own

    def __getitem__(self, name: str) -> Tensor:
        return self._borrowed[name] if name in self._borrowed else self._own[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from self._borrowed

    def __len__(self) -> int:
        return len(self._own) + len(self._borrowed)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._borrowed[name].shape) if name in self._borrowed else self._own.shape(name)

    def dtype_name(self, name: str) -> str:
        return _NAMES[self._borrowed[name].dtype] if name in self._borrowed else self._own.dtype_name(name)


def with_borrowed(
    own: TensorSource, declared: object, entries: Iterable[Entry], tables: TargetTables | None
) -> WithBorrowed:
    """The whole draft. `declared`: as config.json has it; `entries`: of the draft's architecture.

    Raises `ModelLoadError` without a target, for another target, and for a declaration that is none.
    """
    if not isinstance(declared, dict) or not declared or not set(declared) <= set(TABLES):
        raise ModelLoadError(f"{own.origin}: {BORROWED}={shown(declared)} must name tables of {', '.join(TABLES)}")
    if tables is None:
        raise ModelLoadError(
            f"{own.origin} is a draft without {' and '.join(declared)}, which it borrows from its target: load it "
            "beside that target, as its draft_model"
        )
    theirs = {entry.ours: entry for entry in entries}
    borrowed: dict[str, Tensor] = {}
    for name, wanted in declared.items():
        table = tables.read(TABLES[name])
        if (found := fingerprint(table)) != wanted:
            raise ModelLoadError(
                f"{own.origin} borrows the {name} of the target that it was made for ({shown(wanted)}), and "
                f"{tables.name()} has another ({found}): load it beside its own target"
            )
        borrowed |= theirs[TABLES[name]].split(table)
    return WithBorrowed(own, borrowed)
