"""A file of requests, answered by engines on Ray, exactly once each; begun again, nothing is left to do."""

import json
import tempfile
from pathlib import Path

import ray

from outdraft.server.fleet.on_ray.batch import answer_batch

ray.init(address="local", include_dashboard=False, log_to_driver=False, num_cpus=2, _node_ip_address="127.0.0.1")
with tempfile.TemporaryDirectory() as folder:
    source = Path(folder, "requests.jsonl")
    with source.open("w") as file:
        for i in range(40):
            body = {"prompt": f"On day {i} the captain", "max_tokens": 16}
            file.write(json.dumps({"custom_id": f"day-{i}", "url": "/v1/completions", "body": body}) + "\n")
    for _ in range(2):
        print(answer_batch(source, Path(folder, "answers"), {"model": "zoo:target"}, batch_size=8, seed=7))
    first = json.loads(Path(folder, "answers/results.jsonl").read_text().splitlines()[0])
    print(first["custom_id"], "|", first["response"]["body"]["choices"][0]["text"])
ray.shutdown()
