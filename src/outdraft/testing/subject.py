"""A drafter on the bench: the tiny target it drafts for, engines around it, and the oracle it must agree with.

row -> Subject -> engine(...) -> run(engine, requests) -> [Outcome]        oracle(request) -> the only right answer

What a target says after a text is known once a process, for all rows over this target.
"""

from collections import defaultdict
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from outdraft.cache.config import CacheConfig
from outdraft.core.drafter import Drafter
from outdraft.core.events import StepEvent
from outdraft.core.policy import Budget, Policy
from outdraft.core.registry import find, make_options
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.core.verifier import Verifier
from outdraft.decode import reference
from outdraft.decode.parts import Parts
from outdraft.engine.loop import Engine
from outdraft.engine.room import room_of
from outdraft.engine.runner import Runner
from outdraft.engine.scheduler.scheduler import SchedulerSettings
from outdraft.engine.stats import RequestStats
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import TargetOrigin
from outdraft.nn.context import CausalContext
from outdraft.testing.audit import AuditedTarget, CacheRecheck
from outdraft.testing.reference_rule import ConstantPolicy, ReferenceRule
from outdraft.testing.spec_table import DrafterRow

_Known = dict[tuple[int, ...], Tensor]  # text -> logits [V] of the next token
_SAID: dict[object, _Known] = defaultdict(dict)  # by target, vocabulary and precision


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What came of one request: its sequence, counts and events."""

    seq: Sequence
    stats: RequestStats = field(default_factory=RequestStats)
    events: list[StepEvent] = field(default_factory=list)


class _Referring(Engine):
    """Every request comes with these documents."""

    def __init__(self, parts: Parts, *, references: tuple[tuple[int, ...], ...], **settings: Any) -> None:
        ticks = count()  # who runs beside whom follows from a clock, and is to be the same every time
        super().__init__(parts, **settings, clock=lambda: next(ticks) / 1000)
        self._references = references

    def add(self, request: Request, find_stop: Callable[[int], bool] | None = None) -> Sequence:
        return super().add(replace(request, references=self._references), find_stop)


class Subject:
    """A row of the table, built. One tiny target is shared by all engines; every engine has a drafter of its own."""

    references: tuple[tuple[int, ...], ...] = ()
    _plain: Engine | None = None  # one that runs nothing: the oracle's sequences are prepared there

    def __init__(
        self, row: DrafterRow, directory: Path, *, vocab_size: int = 61, dtype: torch.dtype = torch.float64
    ) -> None:
        self.row = row
        self.directory = directory
        self.method = find("drafter", row.drafter)
        self.decoder: Decoder = row.target(vocab_size, dtype)
        self.references = row.references(self.decoder)
        given = {**row.side(self.decoder, directory), **row.options}
        self.options: Any = make_options(self.method, given)
        self.vocab_size = vocab_size
        self._known = _SAID[row.target, vocab_size, dtype]

    def in_float32(self) -> "Subject":
        """The same row over the same target in float32, where rounding is coarse enough to show."""
        return Subject(self.row, self.directory, vocab_size=self.vocab_size, dtype=torch.float32)

    def engine(
        self,
        *,
        verifier: Verifier | None = None,
        policy: Policy | None = None,
        depth: int = 4,
        nodes: int | None = None,
        eos: frozenset[int] = frozenset(),
        recheck: bool = False,
        max_len: int | None = None,
        cache: CacheConfig | None = None,
        scheduling: SchedulerSettings | None = None,
    ) -> Engine:
        """An engine whose target is audited. Default rule: sample at each node; default policy: the same k always."""
        cache = cache or CacheConfig()
        cache = replace(cache, poison=recheck or cache.poison)  # a use of a dropped row would show as NaN
        runner = self.make_runner(max_len, cache)
        if self.row.codec is not None:
            runner.port = replace(runner.port, origin=TargetOrigin(codec=self.row.codec(self.vocab_size)))
        drafter = self.method.build(self.options, runner.port)
        if runner.shared is not None:
            runner.shared.needs = drafter.needs
        parts = Parts(
            target=AuditedTarget(runner, CacheRecheck(runner) if recheck else None),
            drafter=drafter,
            verifier=verifier or ReferenceRule(),
            policy=policy or ConstantPolicy(Budget(depth=depth, nodes=nodes)),
            room=room_of(runner),
        )
        return _Referring(parts, eos_token_ids=eos, scheduling=scheduling, references=self.references)

    def make_runner(self, max_len: int | None, cache: CacheConfig) -> Runner:
        """The target of an engine; a subclass may put another runner on the bench."""
        return Runner(self.decoder, max_len=max_len, cache=cache)

    def next_logits(self, tokens: list[int]) -> Tensor:
        """Logits [V] after `tokens`: one pass over everything, no cache."""
        key = tuple(tokens)
        if key not in self._known:
            with torch.inference_mode():
                ids, positions = torch.tensor(tokens), torch.arange(len(tokens))
                self._known[key] = self.decoder(ids, positions, CausalContext(1, len(tokens)))[-1]
        return self._known[key]

    def oracle(self, request: Request, *, eos: frozenset[int] = frozenset(), max_len: int | None = None) -> list[int]:
        """Plain decoding of `request`: arg-max, or the keyed draw at each position."""
        if eos or max_len is not None:
            engine = self.engine(eos=eos, max_len=max_len)
        else:
            engine = self._plain = self._plain or self.engine()
        return reference.decode(self.next_logits, engine.prepare(request))


def run(engine: Engine, requests: Seq[Request]) -> list[Outcome]:
    """Run requests to their ends in one batch; outcomes in the order given."""
    outcomes: dict[int, Outcome] = {}
    join(engine, outcomes, requests)
    while engine.has_work:
        collect(engine, outcomes)
    return list(outcomes.values())


def join(engine: Engine, outcomes: dict[int, Outcome], requests: Seq[Request]) -> None:
    """Hand over requests, and make a place for what comes of them."""
    for request in requests:
        seq = engine.add(request)
        outcomes[seq.id] = Outcome(seq=seq)


def collect(engine: Engine, outcomes: dict[int, Outcome]) -> None:
    """One step; its events go to their outcomes."""
    for event in engine.step():
        outcome = outcomes[event.seq_id]
        outcome.stats.add(event)
        outcome.events.append(event)


def state_size(drafter: Drafter, outside: Seq[object]) -> int:
    """How many entries all containers hold that are reachable from the drafter's attributes.

    Tensors, arrays and modules are not looked into; neither is anything in `outside`, which is not the drafter's own.
    """
    seen = {id(thing) for thing in outside}
    todo: list[object] = [drafter]
    total = 0
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, Tensor | np.ndarray | torch.nn.Module | type | str | bytes):
            continue
        seen.add(id(thing))
        if isinstance(thing, dict):
            total += len(thing)
            todo += [*thing.keys(), *thing.values()]
        elif isinstance(thing, list | tuple | set | frozenset):
            total += len(thing)
            todo += thing
        elif type(thing).__module__.partition(".")[0] not in ("builtins", "torch", "numpy"):
            if hasattr(thing, "__len__") and hasattr(thing, "__iter__"):  # deques and the like
                total += len(thing)
                todo += thing
            slots = [name for cls in type(thing).__mro__ for name in getattr(cls, "__slots__", ())]
            todo += [getattr(thing, name, None) for name in slots]
            todo += getattr(thing, "__dict__", {}).values()
    return total
