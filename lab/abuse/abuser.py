"""The abuser: a process that draws attacks, sends them to servers, and is held to a quarter of a core.

    python -m lab.abuse.abuser TARGETS SEED SHARE        TARGETS: JSON, a list of {kind, address, headers}

It reads commands from standard input, a line each: {"mode": "abuse" or "harmless", "seconds": s, "from": n, "count": c
or null}, and answers each with a line. Attack number n is a function of the seed and of n; in the harmless mode its
twin is sent in its place: an ordinary request that writes as many texts of as many tokens.
"""

import asyncio
import json
import sys
from collections import Counter
from random import Random
from time import monotonic, process_time
from typing import Any

from lab.abuse.ask import Asked, ask
from lab.abuse.bodies import BODIES, Body
from lab.abuse.places import COMPLETIONS
from lab.abuse.sockets import SOCKETS
from lab.abuse.target import Target
from lab.soak_http.wire import BrokenError, StuckError

AT_ONCE = 12  # attacks under way
PACE = 0.15  # seconds at least between two beginnings
_SORTS = (*BODIES, *SOCKETS)
_PATIENCE = 60.0  # seconds for one attack
_TWIN = Body(path=COMPLETIONS, body={})


class Abuser:
    """`share`: of one core, of this process's own processor time."""

    def __init__(self, targets: list[Target], seed: int, share: float) -> None:
        self._targets, self._seed, self._share = targets, seed, share

    async def window(self, mode: str, seconds: float, first: int, count: int | None) -> dict[str, Any]:
        """Attacks from number `first` on, or their twins, for so long; `count`: how many at most, evenly."""
        end, began, cpu = monotonic() + seconds, monotonic(), process_time()
        pace = PACE if count is None else max(PACE / 2, seconds / max(1, count))
        ends, running, number = Counter[str](), set[asyncio.Task[None]](), first
        while monotonic() < end and (count is None or number < first + count):
            due = began + (number - first) * pace
            busy = (process_time() - cpu) / self._share - (monotonic() - began)
            await asyncio.sleep(max(0.0, due - monotonic(), min(busy, 1.0)))
            if busy > 1.0 or len(running) >= AT_ONCE:
                await asyncio.sleep(0.02)
                continue
            task = asyncio.ensure_future(self._one(mode, number, ends))
            running.add(task)
            task.add_done_callback(running.discard)
            number += 1
        late = [*running]
        if late:
            await asyncio.wait(late, timeout=_PATIENCE)
        for task in late:
            task.cancel()
        return {
            "count": number - first,
            "ends": dict(sorted(ends.items())),
            "share": round((process_time() - cpu) / (monotonic() - began), 3),
        }

    async def _one(self, mode: str, number: int, ends: Counter[str]) -> None:
        dice = Random(f"{self._seed} {number}")
        sort, target = dice.choice(_SORTS), dice.choice(self._targets)
        try:
            if mode == "harmless":
                made = BODIES[sort](dice) if sort in BODIES else _TWIN
                told = str((await ask(target.address, Asked.post(COMPLETIONS, made.twin(), target.headers))).status)
            elif sort in BODIES:
                made = BODIES[sort](dice)
                reply = await ask(target.address, Asked.post(made.path, made.body, target.headers), _PATIENCE)
                told = "late" if reply.is_late else str(reply.status)
                told += "".join(f", {one[:120]}" for one in reply.faults)
            else:
                told = await asyncio.wait_for(SOCKETS[sort](target, dice), _PATIENCE)
        except (BrokenError, StuckError, OSError, TimeoutError) as error:
            told = type(error).__name__
        except Exception as error:  # the answer could not be read: worth a look
            told = f"unreadable: {error!r:.100}"
        ends[f"{'harmless' if mode == 'harmless' else sort}: {told}"] += 1


async def main(words: list[str]) -> None:
    """Until standard input ends."""
    targets = [Target(**one) for one in json.loads(words[0])]
    abuser = Abuser(targets, int(words[1]), float(words[2]))
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        asked = json.loads(line)
        told = await abuser.window(asked["mode"], asked["seconds"], asked["from"], asked["count"])
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
