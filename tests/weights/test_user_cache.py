"""The user's cache directory: where the system says, or else below the home directory."""

from pathlib import Path

from outdraft.weights.user_cache import user_cache


def test_where_things_are_kept(monkeypatch):
    monkeypatch.setenv("HOME", "/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert user_cache("packed") == Path("/elsewhere/outdraft/packed")
    for unset in (lambda: monkeypatch.setenv("XDG_CACHE_HOME", ""), lambda: monkeypatch.delenv("XDG_CACHE_HOME")):
        unset()
        assert user_cache() == Path("/somebody/.cache/outdraft")
