"""An engine whose passes take what a formula says, on a clock that it moves: a trace of it holds no noise at all."""

import json
import random
from dataclasses import dataclass

from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.core.room import Unbounded
from outdraft.decode.parts import Parts
from outdraft.engine.loop import Engine
from outdraft.engine.scheduler.scheduler import SchedulerSettings
from outdraft.engine.trace import Tracer
from outdraft.options.errors import BusyError
from outdraft.options.params import SamplingParams
from tests.helpers.fakes import ConstantPolicy, ReferenceRule, TableTarget, alternating

BETWEEN, AFTER_END, WAKE = 1e-4, 5e-4, 3e-4  # seconds between two passes, more after an end, and until one begins


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self):
        return self.now


@dataclass(frozen=True, kw_only=True)
class Load:
    """A request: when it is sent, and how its caller is."""

    at: float
    prompt: tuple[int, ...]
    tokens: int
    timeout: float | None = None
    leaves: float | None = None  # seconds after which its caller has gone


def takes(num_decoding, num_nodes, num_prompt_rows, context):
    """Seconds of a pass. No formula of the replay's has this form."""
    decoding = 2e-4 * num_nodes**0.7 + 1e-4 * num_decoding + 2e-9 * context
    if not num_prompt_rows:
        return 1.5e-3 + decoding
    return decoding + (2.5e-3 + 6e-5 * num_prompt_rows if num_decoding else 4e-3 + 4e-5 * num_prompt_rows)


class PlantedTarget(TableTarget):
    """Its passes move the clock. Whole pages of 16 rows are taken over from texts that are there, or were."""

    def __init__(self, clock):
        super().__init__(max_len=4096, sharpness=1.0)
        self.clock, self.texts = clock, []

    def begin(self, seq):
        shared = max((_common(text, seq.tokens[:-1]) for text in self.texts), default=0) // 16 * 16
        self.cached[seq.id] = seq.tokens[:shared]
        return shared

    def forward(self, packed, taps=()):
        counts = [stop - start for start, stop in zip(packed.row_starts[:-1], packed.row_starts[1:], strict=True)]
        context = sum(n * len(self.cached[seq.id]) for seq, n in zip(packed.seqs, counts, strict=True))
        decoding = sum(not certain for certain in packed.num_certain)
        self.clock.now += takes(decoding, packed.node_starts[-1], sum(packed.num_certain), context)
        return super().forward(packed, taps)

    def end(self, seq):
        self.texts.append(self.cached[seq.id])
        super().end(seq)


def _common(one, other):
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def record(path, loads, *, depth=3, **settings):
    """Serve these requests as an engine's thread would, and write the trace. Returns the tokens of each."""
    clock = Clock()
    target = PlantedTarget(clock)
    drafter = alternating(target.next_logits, (2, 0, 3, 1))
    drafter.observe = lambda seen: None  # it would not expect rows that were taken over
    parts = Parts(
        target=target,
        drafter=drafter,
        verifier=ReferenceRule(),
        policy=ConstantPolicy(Budget(depth=depth)),
        room=Unbounded(mixes=True),
    )
    engine = Engine(parts, scheduling=SchedulerSettings(**settings), clock=clock)
    with open(path, "w") as file:
        config = {"model": "planted", "drafter": {"name": "scripted"}}
        engine.watch.add(Tracer(lambda line: print(json.dumps(line), file=file), engine, config, 0.0))
        return _serve(engine, clock, sorted(loads, key=lambda one: one.at))


def _serve(engine, clock, loads):
    loads, here, ended = list(loads), [], 0
    while loads or engine.has_work:
        if engine.has_work:
            clock.now += BETWEEN + AFTER_END * ended
        else:
            clock.now = max(clock.now, loads[0].at) + WAKE
        ended = 0
        while loads and loads[0].at <= clock.now:
            load = loads.pop(0)
            params = SamplingParams(max_tokens=load.tokens, ignore_eos=True, temperature=0.0)
            seq = engine.prepare(
                Request(prompt_token_ids=load.prompt, params=params, timeout=load.timeout), asked_at=load.at
            )
            try:
                engine.enqueue(seq)
            except BusyError:
                engine.cancel(seq)  # as the thread does
            here.append((load, seq))
        for load, seq in here:
            if load.leaves is not None and load.at + load.leaves <= clock.now and seq.finish_reason is None:
                engine.cancel(seq)
                ended += 1
        ended += sum(event.finish_reason is not None for event in engine.step())
    return [seq.output for _, seq in here]


def stream(count, rate, prompts, tokens, *, seed=0, system=(), **words):
    """`count` requests at random times, `rate` a second; numbers of prompt tokens and tokens are (least, most)."""
    draw, at, loads = random.Random(seed), 0.0, []
    for _ in range(count):
        at += draw.expovariate(rate)
        prompt = (*system, *(draw.randrange(11) for _ in range(draw.randint(*prompts))))
        loads.append(Load(at=at, prompt=prompt, tokens=draw.randint(*tokens), **words))
    return loads
