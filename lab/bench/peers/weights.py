"""The form of the weights that a peer reads, made once from the same Hugging Face directory and kept on the shelf.

transformers   the directory itself; vllm likewise
llama_cpp      a GGUF file that we write, rounded by llama.cpp's own tool
openvino       OpenVINO's form, written and rounded by optimum-intel's exporter
"""

from pathlib import Path

from lab.bench.peers.process import Process
from lab.bench.peers.spec import Peer
from outdraft.bench.shelf import Shelf
from outdraft.models.files.gguf_write import write_gguf
from outdraft.weights.digest import digest_weights


def prepare(peer: Peer, directory: Path, bits: int, process: Process, versions: dict[str, str], shelf: Shelf) -> Path:
    """What to hand to the peer for the model in `directory` on `bits` bits.

    Raises:
        PeerMissing, PeerError: its own converter is not there, or failed.
        ModelLoadError: GGUF cannot hold the model.
    """
    if peer.name in ("transformers", "vllm"):
        return directory
    weights, rounding = digest_weights(directory), peer.kind.weights[bits]

    def convert(source: Path, out: Path) -> None:
        process.ask("export", source=str(source), out=str(out), rounding=rounding, program=peer.server)

    if peer.name == "openvino":
        made_of = [weights, rounding, versions]
        return shelf.get(f"{directory.name}-openvino-{rounding}", made_of, lambda out: convert(directory, out))
    whole = whole_gguf(directory, shelf)
    if bits == 16:
        return whole
    made_of = [weights, rounding, versions]
    return shelf.get(f"{directory.name}-{rounding}.gguf", made_of, lambda out: convert(whole, out))


def whole_gguf(directory: Path, shelf: Shelf) -> Path:
    """The same weights as a GGUF file. Raises `ModelLoadError` if GGUF cannot hold the model."""
    made_of = [digest_weights(directory)]
    return shelf.get(f"{directory.name}.gguf", made_of, lambda out: write_gguf(directory, out))
