"""What is no regular file, has no end or is too long is an `OSError` at once; damaged documents are a `ValueError`."""

import os
import signal
import socket
from pathlib import Path

import pytest

from outdraft.options.read_file import load_json, load_text, load_toml, open_file, require_file

READERS = (require_file, open_file, load_text, load_json, load_toml)


@pytest.fixture(autouse=True)
def no_waiting():
    def stop(*told):
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        os.chdir(path.parent)  # a path of a socket is short
        one.bind(path.name)


MADE = {
    "a directory": lambda path: path.mkdir(),
    "a pipe": lambda path: os.mkfifo(path),
    "a socket": make_socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "symbolic links": lambda path: path.symlink_to(path.name),
    "No such file": lambda path: path.symlink_to("nothing"),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", MADE)
def test_what_is_no_file(reader, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "file"
    MADE[kind](path)
    with pytest.raises(OSError, match=rf"({kind}|No such device).*{path}"):  # a socket cannot be opened at all
        reader(path)


def test_a_link_to_a_file_is_one(tmp_path):
    (tmp_path / "file").write_bytes(b"a\r\nb\xc3\xa9")
    (tmp_path / "link").symlink_to("file")
    assert load_text(tmp_path / "link") == "a\nbé"
    with open_file(require_file(tmp_path / "link")) as file:
        assert file.read(1) == b"a"


def test_a_limit_in_bytes(tmp_path):
    path = tmp_path / "file"
    path.write_text("[1]é", encoding="utf-8")
    assert load_text(path, most=5) == "[1]é"
    for reader in (load_text, load_json):
        with pytest.raises(OSError, match=r"more than 4 bytes.*file"):
            reader(path, most=4)


@pytest.mark.parametrize("text", ["", "[" * 100_000, "{", "[1] 2", "9" * 5000])
def test_no_json(text, tmp_path):
    (tmp_path / "file").write_text(text)
    with pytest.raises(ValueError, match=r"."):
        load_json(tmp_path / "file")


@pytest.mark.parametrize("text", ["a =", "a = " + "[" * 100_000])
def test_no_toml(text, tmp_path):
    (tmp_path / "file").write_text(text)
    with pytest.raises(ValueError, match=r"."):
        load_toml(tmp_path / "file")
