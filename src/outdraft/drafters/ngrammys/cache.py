"""Tables on disk, one file for each model: made once, in pieces, so that an interrupted build goes on where it stopped.

A model is known by what it says: a hash over its logits after a few tokens. So a fine-tuned or quantized one has tables
of its own, whatever its files are called. Data in: a function that scores short texts; data out: full tables.
"""

import hashlib
import logging
import os
from pathlib import Path
from time import monotonic
from zipfile import BadZipFile

import numpy as np
import torch

from outdraft.drafters.ngrammys.tables import Score, Tables, empty_tables, fill
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path
from outdraft.options.read_file import require_file
from outdraft.weights.user_cache import user_cache

_SAVE_EVERY = 5.0  # seconds
_log = logging.getLogger(__name__)


def load_tables(score: Score, vocab_size: int, *, width: int, directory: str = "") -> Tables:
    """The tables of this model with `width` successors a token, from `directory` as far as they are there.

    A build that takes more than a few seconds says so, and its progress, as a warning of the log.
    Raises `ConfigError` if nothing can be written there.
    """
    folder = user_path(directory) if directory else user_cache("ngrammys")
    path = folder / f"{fingerprint(score, vocab_size)}-{width}.npz"
    tables = read(path) or empty_tables(vocab_size, width)
    if tables.complete:
        return tables
    write(path, tables)  # before the work: where nothing can be kept is known now
    began = saved = monotonic()
    first = tables.done
    try:
        for done in fill(tables, score):
            if monotonic() - saved >= _SAVE_EVERY and not tables.complete:
                write(path, tables)
                saved = monotonic()
                left = (saved - began) * (vocab_size - done) / (done - first)
                _log.warning("ngrammys: %d of %d tokens scored, about %.0f s left; %s", done, vocab_size, left, path)
    finally:
        write(path, tables)
    return tables


def fingerprint(score: Score, vocab_size: int) -> str:
    """A name for the model: a hash over its logits after some sixteen tokens spread over the vocabulary."""
    probes = torch.linspace(0, vocab_size - 1, min(16, vocab_size)).long()
    logits = torch.cat([score(probe.reshape(1, 1)) for probe in probes]).float().cpu()
    return hashlib.sha256(logits.numpy().tobytes()).hexdigest()[:24]


def read(path: Path) -> Tables | None:
    """What is kept there; None if nothing readable is."""
    try:
        with np.load(require_file(path)) as kept:
            return Tables(ids=kept["ids"], probs=kept["probs"], total=kept["total"], done=int(kept["done"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        _log.warning("ngrammys: %s is not readable (%s) and will be made again", path, error)
        return None


def write(path: Path, tables: Tables) -> None:
    """Whole or not at all. Raises `ConfigError` if the place cannot be written to."""
    beside = path.with_name(f"{path.stem}.{os.getpid()}.npz")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            np.savez(beside, ids=tables.ids, probs=tables.probs, total=tables.total, done=np.int64(tables.done))
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cache_dir={str(path.parent)!r} cannot be written to: {error}; name another directory"
        ) from error
