"""`python -m lab.fuzz_http`: requests that schemathesis makes from /openapi.json, good ones and bad.

    GET /openapi.json -> schemathesis -> requests of the schemas, and others that break them -> a server of its own

No answer has a status of 500 or more, or one that is not declared; none has a body that is not of the declared kind
and schema; what breaks a schema is refused; and every error is one clear sentence in OpenAI's shape. schemathesis
(https://schemathesis.readthedocs.io) is no dependency: pip install schemathesis.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import Any

from lab.soak_http.judge import faults_of_error, faults_of_shape
from lab.soak_http.model import write_model
from lab.soak_http.process import ServerProcess

_FEW = 20  # cases of an endpoint without a body
_CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
)


class Fuzz:
    """`faults`: what was wrong, each once, with the request that shows it."""

    def __init__(self, address: str, seed: int) -> None:
        import schemathesis

        self._schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
        self._checks = [getattr(schemathesis.checks, name, None) or _check(name) for name in _CHECKS]
        self._seed = seed
        self.statuses: Counter[str] = Counter()
        self.faults: dict[str, str] = {}

    def run(self, count: int) -> int:
        """Send about so many requests; returns how many were sent."""
        from schemathesis import GenerationMode

        operations = [one.ok() for one in self._schema.get_all_operations()]
        with_body = [one for one in operations if one.body]
        for one in operations:
            if one not in with_body:
                self._send(one, GenerationMode.POSITIVE, _FEW)
        left = count - self.statuses.total()
        for one in with_body:
            self._send(one, GenerationMode.POSITIVE, left // len(with_body) // 2)
            self._send(one, GenerationMode.NEGATIVE, left // len(with_body) // 2)
            _tell(f"{self.statuses.total()} requests, {len(self.faults)} faults: {one.label} is done")
        return self.statuses.total()

    def _send(self, operation: Any, mode: Any, count: int) -> None:
        from hypothesis import HealthCheck, Phase, given, seed, settings

        @seed(self._seed)
        @settings(
            max_examples=count,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(operation.as_strategy(generation_mode=mode))
        def send(case: Any) -> None:
            response = case.call(timeout=300)
            self.statuses[f"{operation.label} {response.status_code}"] += 1
            try:
                case.validate_response(response, checks=self._checks)
            except (Exception, BaseExceptionGroup) as error:
                self._note(operation.label, str(getattr(error, "exceptions", [error])[0]), case)
            for fault in faults_of_answer(response.status_code, response.headers, response.content):
                self._note(operation.label, fault, case)

        send()

    def _note(self, where: str, fault: str, case: Any) -> None:
        self.faults.setdefault(f"{where}: {fault[:160]}", f"{fault[:1500]}\n    {case.as_curl_command()[:1500]}")


def faults_of_answer(status: int, headers: Any, body: bytes) -> list[str]:
    """What no schema can say."""
    (kind, *_) = headers.get("content-type", [""])
    if status >= 400:
        return faults_of_error(status, kind, body)
    if not kind.startswith("text/event-stream"):
        return []
    pieces = [line[6:] for line in body.decode().splitlines() if line.startswith("data: ") and line != "data: [DONE]"]
    errors = [piece for piece in map(json.loads, pieces) if "error" in piece and "choices" not in piece]
    return [fault for piece in errors if "type" not in piece for fault in faults_of_shape(piece)]


def _check(name: str) -> Any:
    from schemathesis.checks import load_all_checks
    from schemathesis.specs.openapi import checks

    load_all_checks()
    return getattr(checks, name)


async def fuzz(options: argparse.Namespace, directory: Path) -> int:
    """Serve, send, and say what was wrong; 1 if anything was."""
    model = write_model(options.model, directory / "model")
    words = ["-m", "lab.soak_http.server", str(model), "--kv-cache-memory", "16MiB", "--full", "0"]
    words += ["--breaks", "0", *(["--log", options.log] if options.log else [])]
    async with ServerProcess(words) as server:
        began, test = perf_counter(), Fuzz(server.address, options.seed)
        sent = await asyncio.to_thread(test.run, options.cases)
        end = await server.terminate()
    faults = dict(test.faults)
    if end["exit"] or end["left_over"]:
        faults["end"] = f"it ended with status {end['exit']}, and left {end['left_over']}"
    _tell(
        json.dumps(
            {
                "requests": sent,
                "seconds": round(perf_counter() - began),
                "faults": len(faults),
                "statuses": dict(sorted(test.statuses.items())),
            }
        )
    )
    for where, fault in faults.items():
        _tell(f"WRONG {where}\n    {fault}")
    return 1 if faults else 0


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(words: list[str] | None = None) -> int:
    """Send the cases and report; 1 where an answer breaks a rule."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.fuzz_http", description="Requests made of what /openapi.json says."
    )
    parser.add_argument("--model", default="zoo:target")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", help="a file for the server's log")
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(fuzz(parser.parse_args(words), Path(directory)))


if __name__ == "__main__":
    sys.exit(main())
