"""Downloads from a small hub of our own: whole, broken off, spoiled, unknown; what is then listed, and removed."""

import fcntl
import shutil

import pytest
from huggingface_hub import constants
from weights.small_hub import COMMIT, digest, point_at, small_hub

from outdraft.options.errors import ModelLoadError
from outdraft.weights.hub import resolve
from outdraft.weights.kept import PART, list_kept, plan_removal
from outdraft.weights.pull import pull

WEIGHTS = bytes(range(256)) * 300
MODEL = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": WEIGHTS,
    "README.md": b"not asked for",
    "pytorch_model.bin": b"not asked for either",
}
GGUFS = {f"M-Q{bits}_0.gguf": bytes([bits]) * 1000 for bits in (4, 8)} | {
    "M-F16-00001-of-00002.gguf": b"one",
    "M-F16-00002-of-00002.gguf": b"two",
}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The library asks it, with an empty cache."""
    models = {"a/whole": MODEL, "a/ggufs": GGUFS, "gated/one": MODEL, "a/pickled": {**MODEL}, "a/part": {**GGUFS}}
    del models["a/pickled"]["model.safetensors"], models["a/part"]["M-F16-00001-of-00002.gguf"]
    with small_hub(models) as hub:
        point_at(hub, tmp_path / "hub", monkeypatch)
        monkeypatch.setenv("OUTDRAFT_CACHE", str(tmp_path / "ours"))
        monkeypatch.chdir(tmp_path)
        yield hub


def test_a_model_is_pulled_and_then_opens_without_the_hub(hub):
    pulled = pull("a/whole")
    assert pulled.commit == COMMIT and pulled.path.name == COMMIT and pulled.num_files == 2
    assert pulled.num_bytes == pulled.num_missing == len(WEIGHTS) + len(MODEL["config.json"])
    assert sorted(file.name for file in pulled.path.iterdir()) == ["config.json", "model.safetensors"]
    assert (pulled.path / "model.safetensors").read_bytes() == WEIGHTS
    assert pull("a/whole").num_missing == 0 and hub.reads("model.safetensors") == [""]
    hub.models.clear()
    assert resolve("a/whole") == pulled.path == resolve("a/whole", revision="main", also=["pytorch_model.bin"])


def test_a_repository_of_pickles(hub):
    assert (pull("a/pickled").path / "pytorch_model.bin").is_file()


def test_a_connection_that_breaks_is_gone_on_with(hub):
    hub.cut_at = 1000
    assert pull("a/whole").num_missing > len(WEIGHTS)
    assert hub.reads("model.safetensors") == ["", "bytes=1000-"]


def test_a_download_that_failed_is_gone_on_with_by_the_same_command(hub, tmp_path):
    hub.cut_at, hub.down_after_cut = 1000, True
    part = tmp_path / "hub" / "models--a--whole" / "blobs"
    with pytest.raises(ModelLoadError, match=r"downloading a/whole from http://127.* failed .*503.*goes on from what"):
        pull("a/whole")
    (begun,) = part.glob("*.incomplete")
    assert begun.stat().st_size == 1000 and begun.read_bytes() == WEIGHTS[:1000]
    (row,) = list_kept()
    assert (row.name, row.place, row.num_bytes) == ("a/whole", PART, 1000 + len(MODEL["config.json"]))
    hub.is_down = False
    assert pull("a/whole").num_missing == len(WEIGHTS) - 1000 and not [*part.glob("*.incomplete")]
    assert hub.reads("model.safetensors")[-1] == "bytes=1000-"
    assert (resolve("a/whole") / "model.safetensors").read_bytes() == WEIGHTS


def test_what_an_interrupted_download_left_is_removed(hub, tmp_path):
    hub.cut_at, hub.down_after_cut = 1000, True
    with pytest.raises(ModelLoadError, match="goes on from what"):
        pull("a/whole")
    num_bytes, remove = plan_removal("a/whole")
    assert num_bytes == 1000 + len(MODEL["config.json"])
    remove()
    assert list_kept() == [] and not (tmp_path / "hub" / "models--a--whole").exists()


def test_a_repository_that_changes_while_it_is_downloaded(hub):
    hub.moved_to = COMMIT[::-1]
    with pytest.raises(ModelLoadError, match="a/whole was changed on the hub while it was downloaded: give the same"):
        pull("a/whole")


def test_copies_with_the_same_commit_are_removed_alone(hub):
    copies = [f"copy/{number}" for number in range(8)]
    for copy in copies:
        hub.models[copy] = MODEL
        pull(copy)
    plan_removal("copy/5")[1]()
    assert [one.name for one in list_kept()] == [copy for copy in copies if copy != "copy/5"]


def test_two_downloads_of_one_file_do_not_mix(hub, tmp_path):
    part = tmp_path / "hub" / "models--a--whole" / "blobs" / f"{digest('model.safetensors', WEIGHTS)}.incomplete"
    part.parent.mkdir(parents=True)
    with part.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(
            ModelLoadError, match=r"model.safetensors of a/whole is downloaded by another process: wait"
        ):
            pull("a/whole")
    assert pull("a/whole").num_missing == len(WEIGHTS)


def test_bytes_with_another_digest_are_refused_and_do_not_stay(hub, tmp_path):
    for name in ("config.json", "model.safetensors"):
        hub.spoiled = name
        with pytest.raises(
            ModelLoadError, match=rf"a/whole: {name} arrived with the digest \w+, and the hub names \w+:"
        ):
            pull("a/whole")
    hub.spoiled = ""
    assert not [*(tmp_path / "hub").rglob("snapshots/*")] and not [*(tmp_path / "hub").rglob("*.incomplete")]
    assert (pull("a/whole").path / "model.safetensors").read_bytes() == WEIGHTS


@pytest.mark.parametrize(
    ("name", "revision", "words"),
    [
        ("a/nothing", None, r"there is no model a/nothing at http://127.*: check the name"),
        ("gated/one", None, r"gated/one is gated: accept its terms at http://127.*/gated/one and log in"),
        ("a/whole", "old", r"a/whole has no revision 'old': name a branch"),
        ("a/w--hole", None, r"'a/w--hole' can be no name on the hub .*write owner/model"),
        ("a/ggufs", None, r"a/ggufs has no safetensors .*as a/ggufs:M-Q4_0.gguf"),
        ("a/ggufs:Q5_0", None, r"a/ggufs:Q5_0: there is no such GGUF file.*M-Q4_0.gguf, M-Q8_0.gguf\)?"),
        ("a/part:F16", None, r"a/part:F16 lacks the parts M-F16-00001-of-00002.gguf on the hub"),
        ("a/ggufs:gguf", None, r"there is no such GGUF file"),
    ],
)
def test_what_cannot_be_pulled(hub, name, revision, words):
    with pytest.raises(ModelLoadError, match=words):
        pull(name, revision)


def test_the_hub_is_not_asked_offline(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelLoadError, match="HF_HUB_OFFLINE is set: unset it"):
        pull("a/whole")
    assert hub.asked == []


def test_one_gguf_file_by_its_name_or_its_type(hub):
    path = pull("a/ggufs:Q4_0").path
    assert path.name == "M-Q4_0.gguf" and path.read_bytes() == GGUFS["M-Q4_0.gguf"]
    parts = pull("a/ggufs:M-F16-00002-of-00002.gguf").path
    assert sorted(one.name for one in parts.parent.iterdir()) == sorted({*GGUFS} - {"M-Q8_0.gguf"})
    assert resolve("a/ggufs:q8_0").name == "M-Q8_0.gguf"  # a name is enough, as without a file
    hub.models.clear()
    assert resolve("a/ggufs:Q4_0") == path and resolve("a/ggufs:F16") == parts


def test_what_is_here_is_listed(hub):
    assert list_kept() == []
    pull("a/whole")
    pull("a/ggufs:Q4_0")
    pull("a/ggufs:F16")
    rows = {one.name: (one.num_bytes, one.revision, one.refs) for one in list_kept()}
    assert rows == {
        "a/ggufs:M-F16-00001-of-00002.gguf": (6, COMMIT, ("main",)),
        "a/ggufs:M-Q4_0.gguf": (1000, COMMIT, ("main",)),
        "a/whole": (len(WEIGHTS) + len(MODEL["config.json"]), COMMIT, ("main",)),
    }
    assert all(resolve(one.name) == one.path for one in list_kept())


def test_what_no_name_opens_is_not_listed(hub, tmp_path):
    """Models of the hub's first years have no owner: `LLM` takes no such name."""
    path = pull("a/whole").path
    shutil.copytree(tmp_path / "hub" / "models--a--whole", tmp_path / "hub" / "models--gpt2")
    assert [(one.name, one.path) for one in list_kept()] == [("a/whole", path)]


def test_a_model_is_removed_or_one_file_of_it(hub, tmp_path):
    pull("a/whole")
    for file in ("Q4_0", "Q8_0", "F16"):
        pull(f"a/ggufs:{file}")
    num_bytes, remove = plan_removal("a/ggufs:F16")
    assert num_bytes == 6
    remove()
    assert [one.name for one in list_kept()] == ["a/ggufs:M-Q4_0.gguf", "a/ggufs:M-Q8_0.gguf", "a/whole"]
    (tmp_path / "hub" / "models--a--ggufs" / "blobs" / "x.incomplete").write_bytes(b"123")
    num_bytes, remove = plan_removal("a/ggufs")
    assert num_bytes == 2003
    remove()
    assert [one.name for one in list_kept()] == ["a/whole"] and not (tmp_path / "hub" / "models--a--ggufs").exists()
    plan_removal("a/whole")[1]()
    assert list_kept() == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a/whol", r"a/whol is not here, did you mean 'a/whole'\?: `outdraft list`"),
        ("zoo:target", "zoo:target was not pulled"),
        (".", r"\. was not pulled"),
        ("a/whole:Q4_0", "there is no such GGUF file"),
    ],
)
def test_what_cannot_be_removed(hub, name, words):
    pull("a/whole")
    with pytest.raises(ModelLoadError, match=words):
        plan_removal(name)
    assert len(list_kept()) == 1
