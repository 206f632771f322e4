"""`outdraft serve` as a process of its own, and a certificate to serve with."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def command(*words: object, **environment: str) -> Iterator[str]:
    """Its address, on a free port; ended by SIGTERM."""
    asked = [sys.executable, "-m", "outdraft.cli.main", "serve", *map(str, words), "--port", "0"]
    with subprocess.Popen(
        asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            found = re.search(r"https?://\S+", process.stdout.readline())
            assert found is not None, process.stderr.read()
            yield found[0]
        finally:
            process.terminate()
            process.communicate(timeout=60)


def certified(folder: Path, *more: str, name: str = "cert") -> tuple[Path, Path]:
    """A certificate for this machine that vouches for itself, and its key, made by OpenSSL's own program."""
    if (program := shutil.which("openssl")) is None:
        pytest.skip("the program openssl is not here, and a certificate is needed")
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(
        [
            program,
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            key,
            "-out",
            certificate,
            *(more or ("-noenc",)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key
