"""The flags of `outdraft serve --ray`: what does not fit is refused before a model is loaded."""

import argparse
from pathlib import Path

import pytest

from outdraft.cli.commands import serve
from outdraft.cli.commands.serve import RayFlags, from_anywhere
from outdraft.cli.options import add_flags, build
from outdraft.options.errors import ConfigError


def read(*words: str) -> serve.Options:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(parser, serve.Options)
    return build(serve.Options, parser.parse_args(words))


def test_they_become_the_settings_of_the_deployment():
    words = ("--ray", "--replicas", "2", "--max-replicas", "5", "--cpus-per-replica", "0.5", "--ray-routing")
    settings = read(*words, "--target-ongoing-requests", "3").ray.settings()
    assert (settings.replicas, settings.max_replicas, settings.cpus, settings.affinity) == (2, 5, 0.5, False)
    assert settings.target_ongoing_requests == 3


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--replicas", "2"), "--replicas is for several engines: add --ray"),
        (("--ray-address", "x:1"), "--ray-address is for several engines"),
    ],
)
def test_without_ray_they_mean_nothing(words, says):
    with pytest.raises(ConfigError, match=says):
        serve.run(read("--model", "zoo:target", *words))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (RayFlags(ray=True, replicas=0), "replicas=0"),
        (RayFlags(ray=True, replicas=3, max_replicas=2), "max_replicas=2 is less than replicas=3"),
        (RayFlags(ray=True, target_ongoing_requests=0), "target_ongoing_requests=0"),
    ],
)
def test_numbers_that_do_not_fit_are_named(flags, says):
    with pytest.raises(ConfigError, match=says):
        flags.settings()


def test_places_are_found_from_every_directory(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    engine = {"model": "mine", "draft_model": "zoo:draft", "head": None, "dtype": "auto"}
    assert from_anywhere(engine) == {**engine, "model": str(tmp_path / "mine")}


def test_without_the_package_the_cure_is_given(monkeypatch):
    import builtins

    found = builtins.__import__

    def lacking(name, *rest):
        if name.partition(".")[0] == "ray":
            raise ImportError("no ray", name="ray")
        return found(name, *rest)

    monkeypatch.setattr(builtins, "__import__", lacking)
    with pytest.raises(ConfigError, match=r"pip install 'outdraft\[ray\]'"):
        serve.run(read("--model", "zoo:target", "--ray"))
