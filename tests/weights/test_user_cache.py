"""The user's cache directory: where the system says, or else below the home directory."""

from pathlib import Path

import pytest

from outdraft.options.errors import ConfigError
from outdraft.weights.user_cache import is_kept, user_cache


def test_where_things_are_kept(monkeypatch):
    monkeypatch.setenv("HOME", "/a-user")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert user_cache("packed") == Path("/elsewhere/outdraft/packed")
    for unset in (lambda: monkeypatch.setenv("XDG_CACHE_HOME", ""), lambda: monkeypatch.delenv("XDG_CACHE_HOME")):
        unset()
        assert user_cache() == Path("/a-user/.cache/outdraft")


def test_a_user_without_a_home_directory(monkeypatch):
    def unknown(number):
        raise KeyError(number)

    monkeypatch.setattr("pwd.getpwuid", unknown)
    for name in ("HOME", "XDG_CACHE_HOME", "OUTDRAFT_CACHE"):
        monkeypatch.delenv(name, raising=False)
    assert not is_kept()
    with pytest.raises(ConfigError, match=r"this user has none.*name a directory in OUTDRAFT_CACHE"):
        user_cache("packed")
    monkeypatch.setenv("OUTDRAFT_CACHE", "/elsewhere")
    assert is_kept() and user_cache("packed") == Path("/elsewhere/packed")
