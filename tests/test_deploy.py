"""deploy/: what is written there is what the command line, the repository and systemd take."""

import argparse
import json
import re
import shlex
import shutil
import socket
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

from outdraft.cli.commands.serve import Options
from outdraft.cli.options import add_flags, build
from outdraft.server.serve import tell_system

ROOT = Path(__file__).parents[1]
UNIT, DOCKER = (ROOT / "deploy/outdraft.service").read_text(), (ROOT / "deploy/Dockerfile").read_text()


def read(words: list[str]) -> Options:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(parser, Options)
    return build(Options, parser.parse_args(words))


def test_the_unit_starts_the_server_and_waits_for_its_end(tmp_path: Path) -> None:
    lines = (ROOT / "deploy/outdraft.env").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    given = {"OUTDRAFT_HOST": "127.0.0.1", "OUTDRAFT_PORT": "8000", **given}
    asked = re.search(r"^ExecStart=\S+ serve (.*?[^\\])$", UNIT, re.DOTALL | re.MULTILINE)
    assert asked is not None
    words = shlex.split(re.sub(r"\$\{?(\w+)\}?", lambda found: given[found[1]], asked[1].replace("\\\n", " ")))
    options = read(words)
    assert options.engine.model == "zoo:target" and options.server.request_timeout == 300
    patience = re.search(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)
    assert patience is not None and int(patience[1]) > options.server.drain_timeout
    if (program := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd is not here to look at its unit")
    (tmp_path / "outdraft.service").write_text(UNIT.replace("/opt/outdraft/bin/outdraft", "/bin/true"))
    told = subprocess.run([program, "verify", tmp_path / "outdraft.service"], capture_output=True, text=True)
    assert told.returncode == 0 and "outdraft" not in told.stderr, told.stderr


def test_the_image_starts_the_server() -> None:
    words = [
        *json.loads(re.search(r"^ENTRYPOINT (.*)$", DOCKER, re.MULTILINE)[1]),  # type: ignore[index]
        *json.loads(re.search(r"^CMD (.*)$", DOCKER, re.MULTILINE)[1]),
    ]  # type: ignore[index]
    assert words[:2] == ["outdraft", "serve"]
    assert read(words[2:]).server.host == "0.0.0.0"


def test_the_image_copies_what_is_there_and_not_ignored() -> None:
    kept = [line[1:] for line in (ROOT / "deploy/Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"]
    copied = [word for line in re.findall(r"^COPY (?!--)(.*) \S+$", DOCKER, re.MULTILINE) for word in line.split()]
    for name in copied:
        assert (ROOT / name).exists(), name
        assert any(fnmatch(name, one) for one in kept), f"{name} is ignored"
    manifest = (ROOT / "MANIFEST.in").read_text()
    for name in re.findall(r"[A-Z]+\.(?:md|cff)", manifest):
        assert name in copied, f"MANIFEST.in names {name}, which the image does not copy"


def test_systemd_is_notified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(str(tmp_path / "notify"))
        line.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        tell_system("READY=1")
        assert line.recv(100) == b"READY=1"
    tell_system("READY=1")  # the listener is gone
    monkeypatch.delenv("NOTIFY_SOCKET")
    tell_system("READY=1")
