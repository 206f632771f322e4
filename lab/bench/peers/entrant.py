"""A peer on the clock, as `bench.entrant` wants it: its process is asked for a text, and reports what it took.

The peer's own clock runs around its own call, so neither the line between us nor its start counts. Before and after,
we wait until the engine that worked last sleeps: only one uses the cores at a time.
"""

import os
from collections.abc import Sequence as Seq
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lab.bench.peers.process import WORKERS, PeerMissing, Process
from lab.bench.peers.spec import Peer
from lab.bench.peers.weights import prepare
from outdraft.bench.clock import Timed
from outdraft.bench.entrant import Entrant
from outdraft.bench.load.over_http import PeerError
from outdraft.bench.load.processes import wait_until_idle
from outdraft.bench.made import make_model
from outdraft.bench.shelf import Shelf
from outdraft.bench.subject import BenchTarget
from outdraft.cli.load import BenchInputs
from outdraft.engine.stats import RequestStats
from outdraft.kernels.threads import num_threads
from outdraft.options.errors import ConfigError
from outdraft.options.params import SamplingParams
from outdraft.weights.digest import digest_weights


class PeerEntrant:
    """A loaded peer. `config`: plain decoding's, beside which it stands, and its own as `peer`. `close` ends it."""

    foreign = True

    def __init__(self, process: Process, pids: Seq[int], config: dict[str, Any]) -> None:
        self.config = config
        self._process, self._pids = process, list(pids)

    def promises(self, params: SamplingParams) -> bool:
        """It owes us nothing: another order of sums may choose otherwise where two tokens are nearly as likely."""
        return False

    def time_text(self, ids: Seq[int], params: SamplingParams, *, references: Seq[Seq[int]] = ()) -> Timed:
        wait_until_idle([os.getpid()])
        told = self._process.ask("generate", prompt=list(ids), max_tokens=params.max_tokens)
        self._pids = told.get("pids", self._pids)
        if not wait_until_idle(self._pids):
            raise PeerError(
                f"peer {self._process.name} still uses the processor after its text is written, so nothing beside "
                "it can be timed"
            )
        tokens = tuple(told["tokens"])
        if not tokens:
            raise PeerError(f"peer {self._process.name} wrote nothing after {len(ids)} tokens")
        passes = told.get("passes") or 0
        if passes and told["num_first"] > 1:
            passes += 1  # it verified a guess in the pass that read the prompt; by our count that one brings one token
        stats = RequestStats(num_tokens=len(tokens), num_steps=passes)
        stats.num_draft_tokens, stats.num_accepted_tokens = told.get("drafted", 0), told.get("accepted", 0)
        return Timed(
            token_ids=tokens,
            text="",
            stats=stats,
            seconds=told["seconds"],
            first_token_seconds=told["first_seconds"],
            num_first_tokens=told["num_first"],
        )

    def forget_peak(self) -> None:
        """Its peak counts from its start, loading included."""

    def read_peak(self) -> dict[str, int]:
        found = 0
        for pid in self._pids:
            try:
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            except OSError:
                return {}
            found += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
        return {"host": found}

    def close(self) -> None:
        self._process.close()


def join_peers(
    peers: Seq[Peer], closing: ExitStack, asked: BenchInputs, entrants: dict[str, Entrant]
) -> dict[str, str]:
    """Add every peer that is installed to `entrants`, by its label; the label and why of the others."""
    absent: dict[str, str] = {}
    for peer in peers:
        if peer.label in entrants or peer.label in absent:
            raise ConfigError(f"peer {peer.label!r} is given twice")
        try:
            started = start_peer(peer, asked.subject, asked.shelf, threads=num_threads())
        except PeerMissing as error:
            absent[peer.label] = str(error)
            continue
        closing.callback(started.close)
        entrants[peer.label] = started
    return absent


def start_peer(peer: Peer, subject: BenchTarget, shelf: Shelf, *, threads: int) -> PeerEntrant:
    """Start it, prepare its weights, load them.

    Raises:
        PeerMissing: it is not installed; the message says how to.
        PeerError: it failed.
    """
    process = Process(peer.label, peer.python, [str(WORKERS / "serve.py"), f"with_{peer.name}"], threads=threads)
    try:
        versions = process.ask("hello", program=peer.server)["versions"]
        model = prepare(peer, subject.original, peer.bits, process, versions, shelf)
        draft = small = None
        if peer.draft is not None:
            small = make_model(peer.draft, shelf).original
            draft = str(prepare(peer, small, peer.draft_bits, process, versions, shelf))
        max_len = int(subject.plain.config["max_model_len"])
        setting = {"mode": peer.mode, "k": peer.k, "threads": threads, "max_len": max_len, "program": peer.server}
        pids = process.ask("load", model=str(model), draft=draft, **setting)["pids"]
    except PeerMissing as error:
        process.close()
        where = peer.python or "this Python"
        raise PeerMissing(f"not installed for {where}: {error}; {peer.kind.install}") from error
    except BaseException:
        process.close()
        raise
    told = {
        "name": peer.name,
        "mode": peer.mode,
        "k": peer.k if peer.drafts else None,
        "threads": threads,
        "weights": peer.kind.weights[peer.bits],
        "versions": versions,
    }
    if small is not None:
        told |= {"draft": peer.draft, "draft_weights": peer.kind.weights[peer.draft_bits]}
        told |= {"draft_fingerprint": digest_weights(small)}
    return PeerEntrant(process, pids, {**subject.plain.config, "peer": told})
