"""A port that is taken is told before a model is loaded."""

import argparse
import socket

import pytest

from outdraft.cli.commands import serve
from outdraft.cli.flags import EngineFlags
from outdraft.cli.options import add_flags, build
from outdraft.core.errors import ConfigError


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_taken_port_is_told_at_once(host, monkeypatch):
    monkeypatch.setattr(EngineFlags, "load", lambda flags: pytest.fail("a model is loaded"))
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(parser, serve.Options)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = build(
            serve.Options, parser.parse_args(["--model", "zoo:target", "--host", host, "--port", str(port)])
        )
        with pytest.raises(ConfigError, match=f"port {port} of {host} cannot be listened to"):
            serve.run(options)
