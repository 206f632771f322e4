"""A certificate for this machine that vouches for itself, made by OpenSSL's own program."""

import shutil
import subprocess
from pathlib import Path


def certified(folder: Path) -> tuple[Path, Path]:
    """The certificate and its key, in `folder`. Raises `RuntimeError` where the program is missing."""
    if (program := shutil.which("openssl")) is None:
        raise RuntimeError("the program openssl is not here, and a certificate is needed: install it")
    certificate, key = folder / "cert.pem", folder / "key.pem"
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
            "-noenc",
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key
