"""A certificate and its private key, looked at before a model is loaded for a server that could not serve."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from outdraft.options.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Two files in PEM; the first holds the whole chain. Raises `ConfigError` where they cannot be used together."""

    certfile: Path
    keyfile: Path

    def __post_init__(self) -> None:
        for one in (self.certfile, self.keyfile):
            if not one.is_file():
                raise ConfigError(f"there is no file {one}: name the certificate and its private key, in PEM")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certfile, self.keyfile, password=self._refuse_password)
        except (ssl.SSLError, OSError) as error:
            told = getattr(error, "reason", None) or error
            raise ConfigError(
                f"{self.certfile} and {self.keyfile} are no certificate with its private key in PEM ({told}): name "
                "the pair that belongs together"
            ) from error

    def _refuse_password(self) -> str:
        """A server that starts by itself can be asked for none."""
        raise ConfigError(f"{self.keyfile} is encrypted: openssl pkey -in {self.keyfile} -out PLAIN writes it without")
