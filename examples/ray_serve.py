"""Two engines on Ray Serve, with the front that loses no request, and as a plain deployment. Needs outdraft[ray]."""

import httpx
import ray
from ray import serve

from outdraft.server.fleet.on_ray.application import make_application, make_plain_application
from outdraft.server.fleet.on_ray.settings import ReplicaSettings
from outdraft.server.settings import ServerSettings

ENGINE = {"model": "zoo:target", "drafter": "ngram"}
PORT = 8765

ray.init(address="local", include_dashboard=False, log_to_driver=False, num_cpus=2, _node_ip_address="127.0.0.1")
serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": PORT})
server = ServerSettings(served_model_name=("target",), drain_timeout=10)
scale = ReplicaSettings(replicas=2, cpus=0.5)
for make in (make_application, make_plain_application):
    serve.run(make(ENGINE, server, scale), name="outdraft")
    body = {"prompt": "It was late when", "max_tokens": 20, "temperature": 0}
    reply = httpx.post(f"http://127.0.0.1:{PORT}/v1/completions", json=body, timeout=60)
    print(make.__name__, "|", reply.json()["choices"][0]["text"])
    serve.delete("outdraft")  # what is under way has drain_timeout seconds
serve.shutdown()
ray.shutdown()
