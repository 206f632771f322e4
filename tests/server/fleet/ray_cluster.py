"""A simulated cluster on this machine: a head node without engines, and nodes of a core each; losing one is a kill."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

# Ray reads these when it is imported. The last one keeps it on the loopback address; what its name says is where that
# is needed by default.
os.environ.update(
    RAY_USAGE_STATS_ENABLED="0",
    RAY_DEDUP_LOGS="0",
    RAY_memory_monitor_refresh_ms="0",
    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",
)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def cluster(num_nodes: int) -> Iterator:
    """`num_nodes` beside the head."""
    import ray
    from ray.cluster_utils import Cluster

    here = {"node_ip_address": "127.0.0.1"}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **here})
    try:
        for _ in range(num_nodes):
            made.add_node(num_cpus=1, **here)
        ray.init(address=made.address, namespace="outdraft", log_to_driver=False)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()
