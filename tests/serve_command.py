"""`outdraft serve` as a process of its own, and a certificate to serve with."""

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from warm import started


@contextmanager
def command(*words: object) -> Iterator[str]:
    """Its address, on a free port; ended by SIGTERM."""
    with started("outdraft.cli.main", "serve", *words, "--port", "0") as process:
        found = re.search(r"https?://\S+", process.out.readline().decode())
        assert found is not None, process.err.read()
        yield found[0]
        process.send(signal.SIGTERM)
        assert process.end() == 0, process.err.read()


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
