"""Which tensor gets which type: llama.cpp's own choices, as its llama-quantize made them."""

import pytest

from outdraft.models.files.gguf_mixtures import MIXTURES, Model, fitting, types_of

SOME = (0, 1, 4, 7, 10, 13, 14, 15)  # of 16: the first eighth, the last one, every third between them
ALL = tuple(range(16))
TABLE = {  # mixture: base, values, down maps, the attention's output, the embedding beside a head
    "q4_0": ("Q4_0", {}, {}, {}),
    "q4_1": ("Q4_1", {}, {}, {}),
    "q5_0": ("Q5_0", {}, {}, {}),
    "q5_1": ("Q5_1", {}, {}, {}),
    "q8_0": ("Q8_0", {}, {}, {}),
    "q2_k": ("Q2_K", {"Q3_K": ALL}, {"Q3_K": ALL}, {"Q3_K": ALL}),
    "q3_k_s": ("Q3_K", {}, {}, {}),
    "q3_k_m": ("Q3_K", {"Q4_K": ALL, "Q5_K": (0, 1)}, {"Q4_K": ALL, "Q5_K": (0,)}, {"Q4_K": ALL}),
    "q3_k_l": ("Q3_K", {"Q5_K": ALL}, {"Q5_K": ALL}, {"Q5_K": ALL}),
    "q4_k_s": ("Q4_K", {"Q5_K": (0, 1, 2, 3)}, {"Q5_K": (0, 1)}, {}),
    "q4_k_m": ("Q4_K", {"Q6_K": SOME}, {"Q6_K": SOME}, {}),
    "q5_k_s": ("Q5_K", {}, {}, {}),
    "q5_k_m": ("Q5_K", {"Q6_K": SOME}, {"Q6_K": SOME}, {}),
    "q6_k": ("Q6_K", {}, {}, {}),
    "iq4_nl": ("IQ4_NL", {}, {"Q5_K": (0, 1)}, {}),
    "iq4_xs": ("IQ4_XS", {}, {"Q5_K": (0, 1)}, {}),
}
SHARED = {"q2_k": "Q4_K", "iq4_nl": "Q5_K", "iq4_xs": "Q5_K"}  # values, where four heads share them


def shapes(layers: int = 16, width: int = 512, *, tied: bool = False) -> dict[str, tuple[int, ...]]:
    square, parts = (width, width), ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    made = {"token_embd.weight": (1000, width), "output_norm.weight": (width,), "blk.0.attn_q.bias": (width,)}
    made |= {f"blk.{i}.{part}.weight": square for i in reversed(range(layers)) for part in parts}
    return made | ({} if tied else {"output.weight": (1000, width)}) | {"blk.0.attn_norm.weight": (width,)}


@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize("shared", [1, 4])
def test_each_mixture(name: str, shared: int) -> None:
    base, *special = TABLE[name]
    kinds = types_of(shapes(), MIXTURES[name], Model(num_layers=16, shared=shared))
    wanted = {f"blk.{i}.{part}.weight": base for i in ALL for part in ("attn_q", "attn_k", "ffn_gate", "ffn_up")}
    for part, groups in zip(("attn_v", "ffn_down", "attn_output"), special, strict=True):
        wanted |= {f"blk.{i}.{part}.weight": base for i in ALL}
        wanted |= {f"blk.{i}.{part}.weight": kind for kind, layers in groups.items() for i in layers}
    if shared == 4 and name in SHARED:
        wanted |= {f"blk.{i}.attn_v.weight": SHARED[name] for i in ALL}
    wanted |= {"token_embd.weight": base, "output.weight": "Q8_0" if name == "q8_0" else "Q6_K"}
    assert kinds == wanted


def test_an_embedding_that_is_the_head_and_the_largest_models() -> None:
    tied = types_of(shapes(tied=True), MIXTURES["q4_k_m"], Model(num_layers=16))
    assert tied["token_embd.weight"] == "Q6_K" and "output.weight" not in tied
    largest = Model(num_layers=80, shared=8, is_largest=True)
    kinds = types_of(shapes(80), MIXTURES["q4_k_m"], largest)
    assert {kinds[f"blk.{i}.attn_v.weight"] for i in range(80)} == {"Q5_K", "Q6_K"}
    assert kinds["blk.10.attn_v.weight"] == "Q5_K" and kinds["blk.10.attn_q.weight"] == "Q4_K"


def test_widths_that_blocks_do_not_divide() -> None:
    narrower = {"Q2_K": "Q4_0", "Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0", "IQ4_XS": "IQ4_NL"}
    for kind, other in narrower.items():
        assert (fitting(kind, 768), fitting(kind, 576), fitting(kind, 48)) == (kind, other, "F16")
    assert (fitting("Q4_0", 576), fitting("IQ4_NL", 48)) == ("Q4_0", "F16")
    narrow = types_of(shapes(width=576), MIXTURES["q4_k_m"], Model(num_layers=16))
    assert narrow["output.weight"] == "Q8_0" and narrow["blk.0.attn_v.weight"] == "Q8_0"
    assert narrow["blk.2.attn_v.weight"] == "Q5_0"
