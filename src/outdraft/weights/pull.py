"""Download a model of the hub into the Hugging Face cache, so that it can be stopped at any byte and gone on with.

    blobs/DIGEST.incomplete    what has arrived; the next `pull` asks for the rest
    blobs/DIGEST               a whole file, only once its bytes have the digest that the hub names
    snapshots/COMMIT/FILE      a link to it, which `huggingface_hub` makes

The bytes come through `huggingface_hub`, which knows the endpoint (HF_ENDPOINT), the token, and how to go on with a
connection that broke.
"""

import fcntl
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from outdraft.options.errors import ModelLoadError
from outdraft.weights.gguf_files import listed, part_paths
from outdraft.weights.snapshots import PATTERNS, choose_gguf, find_here, hub_folder, import_hub

_PICKLES = ["pytorch_model*.bin", "*_lm_head.pt"]  # of a repository that has no safetensors
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """A model that is in the cache now."""

    path: Path  # what `LLM` opens
    commit: str
    num_files: int
    num_bytes: int  # of all files
    num_missing: int  # bytes that were not there before


def pull(name: str, revision: str | None = None) -> Pulled:
    """Download "owner/model" or "owner/model:FILE" as far as it is not in the cache.

    Raises `ModelLoadError` with the cure. What has arrived until then stays.
    """
    hub = import_hub(name)
    repo, _, wanted = name.partition(":")
    try:
        told = hub.HfApi().model_info(repo, revision=revision, files_metadata=True)
        files = _chosen(repo, told.siblings, wanted)
        blobs = hub_folder(repo) / "blobs"
        blobs.mkdir(parents=True, exist_ok=True)
        num_missing = sum([_fetch(hub, repo, told.sha, file, blobs) for file in files])
        names = [file.rfilename for file in files]
        places = [Path(hub.hf_hub_download(repo, one, revision=revision)) for one in names]
    except ModelLoadError:
        raise
    except Exception as error:  # the hub raises many kinds
        raise _refusal(repo, revision, error) from error
    home = places[0].parents[len(Path(names[0]).parts) - 1]
    if home.name != told.sha:
        raise ModelLoadError(f"{repo} was changed on the hub while it was downloaded: give the same command again")
    return Pulled(
        path=places[0] if wanted else home,
        commit=told.sha,
        num_files=len(files),
        num_bytes=sum(file.size for file in files),
        num_missing=num_missing,
    )


def find_file(name: str, revision: str | None) -> Path:
    """What "owner/model:FILE" stands for; it is downloaded unless the cache has it."""
    return find_here(name, revision=revision) or pull(name, revision).path


def _chosen(repo: str, files: Sequence[Any], wanted: str) -> list[Any]:
    """The files to download: one GGUF file with all its parts, or a whole model."""
    names = [file.rfilename for file in files]
    if wanted:
        chosen = {str(part) for part in part_paths(Path(choose_gguf(repo, names, wanted)))}
        if absent := sorted(chosen.difference(names)):
            raise ModelLoadError(f"{repo}:{wanted} lacks the parts {listed(absent)} on the hub: name another file")
    else:
        is_safe = any(name.endswith(".safetensors") for name in names)
        patterns = [*PATTERNS, *([] if is_safe else _PICKLES)]
        chosen = {name for name in names if any(fnmatch(name, pattern) for pattern in patterns)}
        if not (is_safe or any(fnmatch(name, pattern) for name in names for pattern in _PICKLES)):
            ggufs = [name for name in names if name.endswith(".gguf")]
            cure = f"name one of its GGUF files, as {repo}:{ggufs[0]}" if ggufs else "name another repository"
            raise ModelLoadError(f"{repo} has no safetensors ({listed(names) or 'it is empty'}): {cure}")
    return [file for file in files if file.rfilename in chosen]


def _fetch(hub: Any, repo: str, commit: str, file: Any, blobs: Path) -> int:
    """Download one file unless it is there; returns how many bytes were missing."""
    from huggingface_hub.file_download import http_get

    digest = file.lfs.sha256 if file.lfs else file.blob_id
    whole, part = blobs / digest, blobs / f"{digest}.incomplete"
    if whole.exists():
        return 0
    if part.exists() and part.stat().st_size > file.size:
        part.unlink()
    with part.open("ab") as out:
        try:
            fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ModelLoadError(f"{file.rfilename} of {repo} is downloaded by another process: wait for it") from error
        begin = out.tell()
        http_get(
            hub.hf_hub_url(repo, file.rfilename, revision=commit),
            out,
            resume_size=begin,
            headers={**hub.utils.build_hf_headers(), "Accept-Encoding": "identity"},
            expected_size=file.size,
            displayed_filename=file.rfilename,
        )
        out.flush()
        if (found := _digest(part, like=digest)) != digest:
            part.unlink()
            raise ModelLoadError(
                f"{repo}: {file.rfilename} arrived with the digest {found}, and the hub names {digest}: the bytes are "
                "another file's and were deleted; give the same command again, or name another HF_ENDPOINT"
            )
        part.replace(whole)
    return int(file.size - begin)


def _digest(path: Path, *, like: str) -> str:
    """SHA-256 of a large file; of the others, whose digests are shorter, what git calls a blob."""
    state = hashlib.sha256() if len(like) == 64 else hashlib.sha1(f"blob {path.stat().st_size}\0".encode())
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            state.update(chunk)
    return state.hexdigest()


def _refusal(repo: str, revision: str | None, error: Exception) -> ModelLoadError:
    """An error of the library in our words."""
    from huggingface_hub import constants
    from huggingface_hub import errors as kinds

    where, login = constants.ENDPOINT, "log in with `hf auth login` or set HF_TOKEN"
    cures = {
        kinds.GatedRepoError: f"{repo} is gated: accept its terms at {where}/{repo} and {login}",
        kinds.RepositoryNotFoundError: f"there is no model {repo} at {where}: check the name; if private, {login}",
        kinds.RevisionNotFoundError: f"{repo} has no revision {revision!r}: name a branch, tag or commit of it",
        kinds.HFValidationError: f"{repo!r} can be no name on the hub ({error}): write owner/model",
        kinds.OfflineModeIsEnabled: f"{repo} cannot be downloaded while HF_HUB_OFFLINE is set: unset it",
    }
    for kind, cure in cures.items():
        if isinstance(error, kind):
            return ModelLoadError(cure)
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return ModelLoadError(
        f"downloading {repo} from {where} failed ({type(error).__name__}: {reason}): check the network and the "
        f"space in {constants.HF_HUB_CACHE}; the same command goes on from what has arrived"
    )
