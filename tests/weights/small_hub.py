"""A hub on loopback, as small as `huggingface_hub` lets it be: models with their files, and what can go wrong.

GET  /api/models/OWNER/MODEL[/revision/NAME]    the commit and the files with their digests
HEAD /OWNER/MODEL/resolve/COMMIT/FILE           size and digest
GET  the same                                   the bytes, from `Range` on
"""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants

COMMIT = "c0ffee" * 6 + "c0ff"


def digest(name: str, content: bytes) -> str:
    """Large files have SHA-256, the others what git calls a blob."""
    if is_large(name):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


def is_large(name: str) -> bool:
    return name.endswith((".safetensors", ".gguf", ".bin"))


@dataclass
class SmallHub:
    """Its content, what was asked of it, and its faults."""

    models: dict[str, dict[str, bytes]]
    url: str = ""
    asked: list[tuple[str, str, str]] = field(default_factory=list)  # verb, file or nothing, Range
    cut_at: int | None = None  # the connection ends after so many bytes of a large file
    down_after_cut: bool = False  # and then
    is_down: bool = False  # no large file is sent
    moved_to: str = COMMIT  # the commit that the files then have
    spoiled: str = ""  # a file whose bytes are others

    def reads(self, name: str) -> list[str]:
        """The ranges in which a file was read."""
        return [wanted for verb, file, wanted in self.asked if (verb, file) == ("GET", name)]


@contextmanager
def small_hub(models: dict[str, dict[str, bytes]]) -> Iterator[SmallHub]:
    hub = SmallHub(models)

    class Door(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            parts = self.path.partition("?")[0].strip("/").split("/")
            if parts[:2] == ["api", "models"]:
                self._tell("/".join(parts[2:4]), parts[5] if parts[4:5] == ["revision"] else "main")
            elif parts[2:3] == ["resolve"]:
                self._send("/".join(parts[:2]), "/".join(parts[4:]))
            else:  # what the library asks for besides
                self._end(404)

        def _tell(self, repo: str, revision: str) -> None:
            hub.asked.append((self.command, "", ""))
            if repo not in hub.models:
                return self._end(404, error="RepoNotFound")
            if repo.startswith("gated/"):
                return self._end(403, error="GatedRepo")
            if revision not in ("main", COMMIT):
                return self._end(404, error="RevisionNotFound")
            siblings = [
                {"rfilename": name, "size": len(content), "blobId": digest(name, content)}
                | (
                    {"lfs": {"sha256": digest(name, content), "size": len(content), "pointerSize": 9}}
                    if is_large(name)
                    else {}
                )
                for name, content in hub.models[repo].items()
            ]
            self._end(200, json.dumps({"id": repo, "sha": COMMIT, "siblings": siblings}).encode())

        def _send(self, repo: str, name: str) -> None:
            wanted = self.headers.get("Range", "")
            hub.asked.append((self.command, name, wanted))
            if hub.is_down and is_large(name) and self.command == "GET":
                return self._end(503)
            content = hub.models[repo][name]
            etag = digest(name, content)
            if name == hub.spoiled:
                content = bytes(len(content))
            begin = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            self._end(206 if begin else 200, content[begin:], etag=etag, cut=hub.cut_at if is_large(name) else None)

        def _end(
            self, code: int, body: bytes = b"", *, error: str = "", etag: str = "", cut: int | None = None
        ) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Repo-Commit", hub.moved_to)
            self.send_header("ETag", f'"{etag}"')
            if error:
                self.send_header("X-Error-Code", error)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body[:cut])
            if self.command == "GET" and cut is not None and cut < len(body):
                hub.cut_at, hub.is_down = None, hub.down_after_cut
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def point_at(hub: SmallHub, cache: Path, patch: pytest.MonkeyPatch) -> None:
    """Have the library ask this hub, with an empty cache and without waiting between tries."""
    patch.setattr(constants, "ENDPOINT", hub.url)
    patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}")
    patch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 500)  # what is written at once
    patch.setattr(constants, "HF_HUB_CACHE", str(cache))
    patch.setattr("time.sleep", lambda seconds: None)
