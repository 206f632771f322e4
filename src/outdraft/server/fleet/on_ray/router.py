"""`Affinity` as the request router of a Ray Serve deployment: each handle of the deployment has one."""

from typing import Any

from ray.serve.request_router import FIFOMixin, PendingRequest, ReplicaID, RequestRouter, RunningReplica

from outdraft.server.fleet.affinity import Affinity
from outdraft.server.fleet.route_key import RouteKey


class AffinityRouter(FIFOMixin, RequestRouter):  # type: ignore[misc]
    """Ray asks for an order of replicas, and takes the first that has room for a request."""

    def initialize_state(self) -> None:
        self._affinity = Affinity()

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """The best one first, each of them a rank of its own."""
        named = {one.replica_id.unique_id: one for one in candidate_replicas}
        self._affinity.keep_only(named)
        return [[named[one]] for one in self._affinity.rank(_key(pending_request), list(named))]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        self._affinity.sent(_key(pending_request), replica_id.unique_id)

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        self._affinity.done(replica_id.unique_id)


def _key(request: PendingRequest | None) -> RouteKey:
    """The key among the arguments of the call; calls of other kinds have none."""
    given = () if request is None else request.args
    return next((one for one in given if isinstance(one, RouteKey)), RouteKey())
