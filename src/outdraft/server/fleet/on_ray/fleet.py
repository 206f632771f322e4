"""The replicas of a deployment as a `Fleet`: a request is a call of Ray's, its pieces are a stream of Ray's."""

from collections.abc import AsyncGenerator
from functools import cached_property
from typing import Any

from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import RayServeException

from outdraft.server.fleet.ask import Head, ProxiedRequest, ReplicaLost
from outdraft.server.fleet.route_key import RouteKey


class RayFleet:
    """`replicas`: a `DeploymentHandle` of `EngineReplica`s, which may be asked from one event loop only."""

    def __init__(self, replicas: Any) -> None:
        self._replicas = replicas

    @cached_property
    def _answer(self) -> Any:
        return self._replicas.answer.options(stream=True)

    async def send(self, ask: ProxiedRequest, key: RouteKey) -> AsyncGenerator[Head | bytes, None]:
        """See `Fleet`. The key is an argument of the call because a router of Ray's sees nothing else of it."""
        call = (self._answer if ask.streams else self._replicas.answer_whole).remote(ask, key)
        is_over = False
        try:
            if ask.streams:
                async for piece in call:
                    yield piece
                is_over = True
            else:
                whole = await call
                is_over = True
                for piece in whole:
                    yield piece
        except RayTaskError:  # the replica lives, and its code has raised
            is_over = True
            raise
        except (RayServeException, RayError) as error:
            is_over = True
            raise ReplicaLost(f"{type(error).__name__}") from error
        finally:
            if not is_over:
                call.cancel()
