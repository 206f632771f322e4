"""A server and its neighbour, begun again when the server is gone or does not come to rest."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from lab.abuse.harmless import Harmless, calibrated
from lab.abuse.look import Watcher
from lab.abuse.neighbour import Neighbour
from lab.abuse.served import Served
from lab.soak_http.__main__ import ask

FLAGS = ("--tool-call-parser", "hermes", "--kv-events")
_WARM, _SETTLE = 2.0, 1.5  # seconds
_REST = 20.0  # seconds in which the neighbour must get its tokens again


class Stand:
    """`watcher` and `harmless` are of the server that runs now. `num_lost`: servers that ended or hung so far."""

    def __init__(self, model: Path, directory: Path) -> None:
        self._model, self._directory = model, directory
        self._held = AsyncExitStack()
        self.num_lost = 0
        self.served: Served
        self.watcher: Watcher
        self.harmless: Harmless

    async def start(self) -> None:
        """A new server, its neighbour, and what harmless requests cost there."""
        self._held = AsyncExitStack()
        log = self._held.enter_context((self._directory / "server.log").open("ab"))
        self.served = await self._held.enter_async_context(Served(str(self._model), *FLAGS, log=log))
        neighbour = Neighbour(self.served.address, self._directory / "gaps")
        await self._held.enter_async_context(neighbour)
        self.watcher = Watcher(self.served, neighbour)
        await asyncio.sleep(_WARM)
        await self.watcher.settle(_SETTLE)

        async def cost(asked: Any) -> float:
            return (await self.watcher.look([asked], 0.0, 60.0)).cpu

        self.harmless = await calibrated(cost)

    async def openapi(self) -> dict[str, Any]:
        """What the server says of its requests."""
        return dict((await ask(self.served.address, "GET", "/openapi.json"))[1])

    async def rest(self) -> bool:
        """Wait until the neighbour is served as before; begin again where that does not come. Whether it came."""
        for _ in range(int(_REST / _SETTLE)):
            if not self.served.is_alive:
                break
            token = self.watcher.a_token
            gaps = await self.watcher.settle(_SETTLE / 3)
            if len(gaps) > 10 and self.watcher.a_token < 3 * token:
                return True
            self.watcher.a_token = token
            await asyncio.sleep(_SETTLE)
        self.num_lost += 1
        await self.close()
        await self.start()
        return False

    async def close(self) -> None:
        await self._held.aclose()


@asynccontextmanager
async def stand(model: Path, directory: Path) -> AsyncIterator[Stand]:
    """A stand that is ready, closed at the end."""
    made = Stand(model, directory)
    try:
        await made.start()
        yield made
    finally:
        await made.close()
