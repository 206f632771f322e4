"""How a peer is spelt, and what is refused."""

import pytest

from lab.bench.peers.spec import KINDS, parse_peer
from outdraft.options.errors import ConfigError


def test_spelling():
    peer = parse_peer("openvino:mode=assisted,k=8,bits=4,draft=zoo:draft@4x4,draft_bits=8,python=/else/python")
    assert (peer.name, peer.mode, peer.k, peer.bits, peer.draft_bits) == ("openvino", "assisted", 8, 4, 8)
    assert (peer.draft, peer.python) == ("zoo:draft@4x4", "/else/python")
    assert peer.label == "openvino assisted k=8 4-bit draft 8-bit"
    assert parse_peer("transformers").label == "transformers plain"
    assert parse_peer("llama_cpp:bits=8").label == "llama_cpp plain 8-bit", "k is not said where nothing is drafted"
    assert parse_peer("llama_cpp:bits=8,mode=assisted,draft=d").draft_bits == 8, "the draft's bits follow the target's"


@pytest.mark.parametrize(
    "text, says",
    [
        ("lama_cpp", "did you mean 'llama_cpp'"),
        ("transformers:mod=plain", "did you mean 'mode'"),
        ("transformers:mode=statik", "did you mean 'static'"),
        ("transformers:k", "no option"),
        ("transformers:k=0", "whole number above 0"),
        ("transformers:bits=8", "bits=8 is not offered; choose 16"),
        ("llama_cpp:bits=5", "choose 16 or 8 or 4"),
        ("transformers:mode=assisted", "draft=MODEL"),
        ("transformers:draft=zoo:draft", "belongs to mode=assisted"),
    ],
)
def test_what_is_refused(text: str, says: str):
    with pytest.raises(ConfigError, match=says):
        parse_peer(text)


def test_every_peer_has_its_worker():
    from lab.bench.peers.process import WORKERS

    assert {path.stem for path in WORKERS.glob("with_*.py")} == {f"with_{name}" for name in ("outdraft", *KINDS)}
