"""Models in the folders of Ollama and LM Studio: opened as they are, listed, refused by name."""

import hashlib
import json
import logging
import os

import pytest
from page_rows import FILES_OF_OTHERS, rows_of
from weights.gguf_files import write_gguf
from weights.test_gguf import model_of, tokenizer_of, written

from outdraft import LLM, SamplingParams
from outdraft.cli.main import main
from outdraft.options.errors import ModelLoadError
from outdraft.weights import places
from outdraft.weights.hub import resolve

KIND = "application/vnd.ollama.image."


class Folder:
    """Ollama's folder, made as `ollama pull` makes it."""

    def __init__(self, home):
        self.home = home
        (home / "blobs").mkdir(parents=True)

    def blob(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        (self.home / "blobs" / f"sha256-{digest}").write_bytes(data)
        return f"sha256:{digest}"

    def add(self, name, layers, folder="manifests", **more):
        path = self.home / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        listed = [{"mediaType": KIND + kind, "digest": digest, "size": 1} for kind, digest in layers]
        path.write_text(json.dumps({"schemaVersion": 2, "config": {}, "layers": listed} | more))
        return path

    def path(self, digest):
        return self.home / "blobs" / digest.replace(":", "-")


@pytest.fixture
def model(tmp_path):
    """The bytes of a model with a vocabulary."""
    tokenizer = tokenizer_of()
    path = tmp_path / "made.gguf"
    return write_gguf(model_of(vocab_size=tokenizer.get_vocab_size()), path, tokenizer=tokenizer).read_bytes()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A user of these programs, without an environment."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    monkeypatch.setattr(places.ollama, "_SERVICE", str(tmp_path / "service"))
    return tmp_path / "home"


@pytest.fixture
def ollama(home):
    return Folder(home / ".ollama/models")


LLAMA = "registry.ollama.ai/library/llama3.2/1b"


def fails(name, *words):
    with pytest.raises(ModelLoadError) as caught:
        resolve(name)
    told = str(caught.value)
    assert all(word in told for word in words) and "\n" not in told, told


def test_a_text_from_a_model_of_ollama(ollama, model, caplog):
    digest = ollama.blob(model)
    manifest = ollama.add(LLAMA, [("model", digest)])
    blob = ollama.path(digest)
    texts = [
        LLM(str(name), drafter="none").generate("the fox", SamplingParams(max_tokens=4)).token_ids
        for name in ("ollama:llama3.2:1b", manifest, blob)
    ]
    assert texts[0] == texts[1] == texts[2] and len(texts[0]) == 4
    assert not caplog.records
    assert LLM(str(blob), draft_model="ollama:llama3.2:1b").generate("a", SamplingParams(max_tokens=2)).token_ids


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("llama3.2:1b", LLAMA),
        ("llama3.2", "registry.ollama.ai/library/llama3.2/latest"),
        ("anna/own:q4", "registry.ollama.ai/anna/own/q4"),
        ("hf.co/owner/repo:Q4_K_M", "hf.co/owner/repo/Q4_K_M"),
        ("localhost:5000/anna/own", "localhost:5000/anna/own/latest"),
        ("localhost:5000/anna/own:x", "localhost:5000/anna/own/x"),
    ],
)
@pytest.mark.parametrize("folder", ["manifests", "manifests-v2"])
def test_names_of_ollama(ollama, name, where, folder):
    digest = ollama.blob(b"GGUF and more")
    beside = ollama.add(where, [("model", digest)], folder).with_name(".DS_Store")
    beside.write_bytes(b"")
    assert resolve(f"ollama:{name}") == ollama.path(digest)
    (listed, found), *more = places.list_found()
    assert not more and found == {"bytes": 13, "path": str(ollama.path(digest))}
    assert resolve(listed) == ollama.path(digest) and (":" not in name.split("/")[-1] or listed == f"ollama:{name}")


def test_the_folder_is_the_users_or_that_of_the_service(tmp_path, monkeypatch):
    service, own = Folder(tmp_path / "service"), Folder(tmp_path / "own")
    digests = [folder.blob(b"GGUF") for folder in (service, own)]
    for folder, digest in zip((service, own), digests, strict=True):
        folder.add(LLAMA, [("model", digest)])
    assert resolve("ollama:llama3.2:1b") == service.path(digests[0])
    monkeypatch.setenv("OLLAMA_MODELS", str(own.home))
    assert resolve("ollama:llama3.2:1b") == own.path(digests[1])


def test_a_manifest_that_is_a_link_to_a_blob(ollama):
    digest = ollama.blob(b"GGUF")
    written = ollama.add("x/y/z/t", [("model", digest)])
    blob = ollama.path(ollama.blob(written.read_bytes()))
    link = ollama.home / "manifests-v2" / LLAMA
    link.parent.mkdir(parents=True)
    link.symlink_to(os.path.relpath(blob, link.parent))
    assert resolve("ollama:llama3.2:1b") == resolve(str(link)) == ollama.path(digest)


def test_layers_that_are_not_read_are_one_line(ollama, caplog):
    caplog.set_level(logging.INFO, "outdraft.notes")
    digest = ollama.blob(b"GGUF")
    kinds = ("template", "license", "params", "system", "projector", "news")
    path = ollama.add(LLAMA, [("model", digest), *((kind, "sha256:0") for kind in kinds)])
    for _ in range(2):
        resolve("ollama:llama3.2:1b")
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"ollama:llama3.2:1b ({path}): layers that are not read: template (the GGUF file's own ")
    for words in ("params (give", "system (give", "projector (a prompt is text)", "news (sha256:0)"):
        assert words in line
    assert "license" not in line


def test_the_table_of_layers(ollama, caplog):
    """docs/files_of_others.md, row by row."""
    caplog.set_level(logging.INFO, "outdraft.notes")
    digest, rows = ollama.blob(b"GGUF"), rows_of(FILES_OF_OTHERS, "Ollama's manifests")
    assert {key for _, key, *_ in rows} == {"model", "adapter", "manifests", "any other layer", *places.ollama._UNREAD}
    for i, (_, key, done, *_) in enumerate(rows):
        kind, more = key.replace("any other layer", "news"), {"manifests": []} if key == "manifests" else {}
        ollama.add(f"x/y/m{i}/t", [("model", digest), *([(kind, "sha256:0")] if kind != "model" else [])], **more)
        caplog.clear()
        if done == "refused":
            fails(f"ollama:x/y/m{i}:t", "variants" if more else key)
        else:
            assert resolve(f"ollama:x/y/m{i}:t") == ollama.path(digest)
            assert [f": {kind} (" in record.getMessage() for record in caplog.records] == [True] * (done == "noted")


def test_manifests_that_are_refused(ollama):
    name, digest, cure = "ollama:llama3.2:1b", ollama.blob(b"GGUF"), "`ollama pull llama3.2:1b`"
    path = ollama.add(LLAMA, [("model", digest), ("adapter", "sha256:7")])
    fails(name, str(path), "layer 'adapter' ('sha256:7')", "llama-export-lora")
    fails(str(path), "layer 'adapter'")
    ollama.add(LLAMA, [("tensor", "sha256:7"), ("tensor", "sha256:8")])
    fails(name, "0 layers 'model' (all: tensor, tensor)", "safetensors")
    ollama.add(LLAMA, [("model", digest), ("model", digest)])
    fails(name, "2 layers 'model'")
    for bad in ("sha256:../../../etc/passwd", "sha256-" + "0" * 63, "../" + digest, "", "md5:" + "0" * 64):
        ollama.add(LLAMA, [("model", bad)])
        fails(name, str(path), repr(bad)[:20], "no sha256:HEX", cure)
    ollama.add(LLAMA, [("model", "sha256:" + "0" * 64)])
    fails(name, "not there", "blobs/sha256-" + "0" * 64, cure)
    ollama.add(LLAMA, [("model", ollama.blob(b"GGML of old times"))])
    fails(name, "is a file", ".gguf")
    ollama.add(LLAMA, [], manifests=[])
    fails(name, "several variants", "name the blob")
    for text in (
        "no JSON",
        "\udcff",
        "[" * 5000,
        "[]",
        "{}",
        '{"layers": 3}',
        '{"layers": [3]}',
        '{"layers": [{}]}',
        "3",
    ):
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        fails(name, str(path), "manifest", cure)
    path.write_bytes(b" " * (5 << 20))
    fails(name, str(path), "more than", cure)
    ((listed, found),) = places.list_found()
    assert listed == name and "more than" in found["error"]


@pytest.mark.parametrize(
    "name", ["", "..", "../x", "a/../b", "a//b", "a/b/c/d", "x:..", "x:a/b", ".x", "x y", "/etc/passwd"]
)
def test_names_that_leave_the_folder_or_are_none(ollama, home, name):
    (home / ".ollama/models/manifests").mkdir()
    fails(f"ollama:{name}", "no name of a model of Ollama", "MODEL:TAG")


def test_what_is_not_there_is_said_with_what_may_be_meant(ollama, home):
    ollama.add(LLAMA, [("model", ollama.blob(b"GGUF"))])
    fails("ollama:llama3.2:2b", str(home / ".ollama/models"), "did you mean 'ollama:llama3.2:1b'?", "outdraft info")
    fails("lmstudio:a/b", str(home / ".lmstudio/models"), "outdraft info")
    with pytest.raises(ModelLoadError, match="leave it out"):
        resolve("ollama:llama3.2:1b", revision="main")


# -- LM Studio --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [".lmstudio/models", ".cache/lm-studio/models"])
def test_models_of_lm_studio(home, model, folder):
    repo = home / folder / "owner/repo-GGUF"
    repo.mkdir(parents=True)
    (repo / "a-Q8_0.gguf").write_bytes(model)
    (repo / "mmproj-a.gguf").write_bytes(b"GGUF")
    (repo / "config.json").write_text("{}")
    assert (
        resolve("lmstudio:owner/repo-GGUF") == resolve("lmstudio:owner/repo-GGUF/a-Q8_0.gguf") == repo / "a-Q8_0.gguf"
    )
    assert LLM("lmstudio:owner/repo-GGUF").generate("the fox", SamplingParams(max_tokens=2)).token_ids
    (repo / "b-00001-of-00002.gguf").write_bytes(b"GGUF1")
    fails("lmstudio:owner/repo-GGUF/b-00001-of-00002.gguf", "one of 2 parts", "b-00002-of-00002.gguf")
    (repo / "b-00002-of-00002.gguf").write_bytes(b"GGUF22")
    fails("lmstudio:owner/repo-GGUF", "has 2 models (a-Q8_0.gguf, b-00001-of-00002.gguf)", "repo-GGUF/a-Q8_0.gguf")
    assert resolve("lmstudio:owner/repo-GGUF/b-00002-of-00002.gguf") == repo / "b-00001-of-00002.gguf"
    assert dict(places.list_found()) == {
        "lmstudio:owner/repo-GGUF/a-Q8_0.gguf": {"bytes": len(model), "path": str(repo / "a-Q8_0.gguf")},
        "lmstudio:owner/repo-GGUF/b-00001-of-00002.gguf": {"bytes": 11, "path": str(repo / "b-00001-of-00002.gguf")},
    }


@pytest.mark.parametrize("name", ["", "a", "a/", "../x", "a/..", "a/b/../c", "a/b/c/d", "/a/b", "a\\..\\b/c", "./a"])
def test_names_that_leave_lm_studios_folder(home, name):
    (home / ".lmstudio/models/a/b").mkdir(parents=True)
    fails(f"lmstudio:{name}", "is no name", "PUBLISHER/REPO")


# -- outdraft info ----------------------------------------------------------------------------------------------------


def told(capsys, *words):
    assert main(["info", *words]) == 0
    return capsys.readouterr().out


def test_info_lists_them(ollama, home, capsys, monkeypatch):
    assert json.loads(told(capsys, "--json"))["models of other programs"]["none"].startswith(f"in {home}")
    digest = ollama.blob(b"GGUF" + b"0" * (3 << 20))
    ollama.add(LLAMA, [("model", digest)])
    ollama.add("registry.ollama.ai/anna/broken/x", [("model", "sha256:1")])
    (home / ".lmstudio/models/a/b").mkdir(parents=True)
    os.truncate(os.open(home / ".lmstudio/models/a/b/c.gguf", os.O_CREAT | os.O_WRONLY), 2 << 20)
    os.chmod(ollama.path(digest), 0)  # nothing but manifests is opened
    found = json.loads(told(capsys, "--json"))["models of other programs"]
    assert list(found) == ["lmstudio:a/b/c.gguf", "ollama:anna/broken:x", "ollama:llama3.2:1b"]
    assert found["ollama:llama3.2:1b"] == {"bytes": 4 + (3 << 20), "path": str(ollama.path(digest))}
    assert "no sha256:HEX" in found["ollama:anna/broken:x"]["error"]
    text = told(capsys)
    assert f"ollama:llama3.2:1b   3 MiB, {ollama.path(digest)}" in text and "2 MiB, " in text and "sha256:HEX" in text
    assert "not all" not in text
    monkeypatch.setattr(places, "MOST", 2)
    found = json.loads(told(capsys, "--json"))["models of other programs"]
    assert len(found) == 3 and found["not all"] == "more than 2 are there"


def test_no_more_are_opened_than_are_listed(ollama, monkeypatch, capsys):
    for i in range(9):
        ollama.add(f"registry.ollama.ai/library/m{i}/x", [("model", "sha256:1")])
    read, before = [], places.ollama.read_manifest
    monkeypatch.setattr(places.ollama, "read_manifest", lambda path: read.append(path) or before(path))
    monkeypatch.setattr(places, "MOST", 4)
    told(capsys, "--json")
    assert len(read) == 5


def test_info_of_one_of_them(ollama, model, capsys):
    ollama.add(LLAMA, [("model", digest := ollama.blob(model))])
    found = json.loads(told(capsys, "--json", "--model", "ollama:llama3.2:1b"))["model"]
    assert found["directory"] == str(ollama.path(digest)) and found["runs through"] == "outdraft"


def test_an_adapter_file_is_refused(ollama, tmp_path):
    data = written(tmp_path / "a.gguf", "llama", lambda w: w.add_string("general.type", "adapter")).read_bytes()
    ollama.add(LLAMA, [("model", ollama.blob(data))])
    with pytest.raises(ModelLoadError, match=r"general\.type='adapter'"):
        LLM("ollama:llama3.2:1b")


def test_a_gguf_file_below_a_directory_of_that_name_is_no_manifest(tmp_path):
    path = tmp_path / "manifests/a/b/c/m.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF")
    assert resolve(path) == path
