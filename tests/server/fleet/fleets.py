"""A fleet of applications in this process, whose replicas can be made to die in the middle of a reply."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from starlette.types import ASGIApp

from outdraft.server.fleet.ask import Head, ProxiedRequest, ReplicaLost, ask_here
from outdraft.server.fleet.route_key import RouteKey


class PlannedFleet:
    """Requests go to the applications in turn. `dies(i)`: after how many pieces the reply to the i-th breaks off."""

    def __init__(self, apps: list[ASGIApp], dies: Callable[[int], int | None] = lambda i: None) -> None:
        self.apps, self.dies = apps, dies
        self.asks: list[ProxiedRequest] = []
        self.keys: list[RouteKey] = []
        self.num_open = 0

    async def send(self, ask: ProxiedRequest, key: RouteKey) -> AsyncGenerator[Head | bytes, None]:
        i = len(self.asks)
        assert i < 50, "it never gives up"
        self.asks.append(ask)
        self.keys.append(key)
        self.num_open += 1
        left = self.dies(i)
        try:
            async with aclosing(ask_here(self.apps[i % len(self.apps)], ask)) as pieces:
                async for piece in pieces:
                    if left == 0:
                        raise ReplicaLost("it was planned")
                    left = None if left is None else left - 1
                    yield piece
        finally:
            self.num_open -= 1
