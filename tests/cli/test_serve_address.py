"""Where a server listens: what cannot be listened to is refused before a model is loaded, with a reason."""

import argparse
import socket

import pytest

from outdraft.cli.commands import serve
from outdraft.cli.flags import EngineFlags
from outdraft.cli.main import main
from outdraft.cli.options import add_flags, build
from outdraft.options.errors import ConfigError
from outdraft.server.serve import check_address, shown_address


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_taken_port_is_reported_at_once(host, monkeypatch):
    monkeypatch.setattr(EngineFlags, "load", lambda flags: pytest.fail("a model is loaded"))
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(parser, serve.Options)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = build(
            serve.Options, parser.parse_args(["--model", "zoo:target", "--host", host, "--port", str(port)])
        )
        says = rf"port {port} of {host} cannot be listened to \(Address already in use\): choose another one"
        with pytest.raises(ConfigError, match=says):
            serve.run(options)


def test_a_host_that_is_none_is_refused_with_a_reason():
    with pytest.raises(ConfigError, match=r"port 80 of no\.such\.host\.invalid cannot be listened to \(.*[Nn]ame"):
        check_address("no.such.host.invalid", 80)


@pytest.mark.parametrize("port", ["70000", "-1", "65536"])
def test_a_port_that_is_none_is_refused(port, capsys):
    assert main(["serve", "--port", port]) == 2
    assert f"port={port} is out of range: it must be 0 to 65535" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "shown"), [("::1", "https://[::1]:80"), ("127.0.0.1", "https://127.0.0.1:80"), ("a.b", "https://a.b:80")]
)
def test_the_address_is_one_that_a_client_can_open(host, shown):
    assert shown_address("https", host, 80) == shown
