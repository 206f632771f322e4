"""The head of a GGUF file: every value as the `gguf` package reads it, and files that are none."""

import struct

import gguf
import numpy as np
import pytest

from outdraft.options.errors import ModelLoadError
from outdraft.weights.gguf import GgufFile
from outdraft.weights.gguf_header import GgufHeader

VALUES = {
    "a.uint8": (200, gguf.GGUFValueType.UINT8),
    "a.int8": (-3, gguf.GGUFValueType.INT8),
    "a.uint16": (60000, gguf.GGUFValueType.UINT16),
    "a.int16": (-300, gguf.GGUFValueType.INT16),
    "a.uint32": (1 << 31, gguf.GGUFValueType.UINT32),
    "a.int32": (-5, gguf.GGUFValueType.INT32),
    "a.float": (1e-5, gguf.GGUFValueType.FLOAT32),
    "a.double": (0.1, gguf.GGUFValueType.FLOAT64),
    "a.big": (1 << 40, gguf.GGUFValueType.UINT64),
    "a.long": (-(1 << 40), gguf.GGUFValueType.INT64),
    "a.yes": (True, gguf.GGUFValueType.BOOL),
    "a.text": ("größe", gguf.GGUFValueType.STRING),
    "a.x": ("x", gguf.GGUFValueType.STRING),
}
LISTS = {
    "b.texts": ["a", "", "日本", "x" * 300],
    "b.ids": [3, 1, 2],
    "b.scores": [0.5, -1.25],
    "b.flags": [True, False],
}


@pytest.fixture(params=[None, 256])
def file(tmp_path, request):
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    if request.param:
        writer.add_custom_alignment(request.param)
    for key, (value, kind) in VALUES.items():
        writer.add_key_value(key, value, kind)
    for key, values in LISTS.items():
        writer.add_array(key, values)
    writer.add_tensor("first", np.arange(12, dtype=np.float32).reshape(3, 4))
    writer.add_tensor("half", np.arange(5, dtype=np.float16))
    writer.add_tensor(
        "blocks", np.arange(2 * 34, dtype=np.uint8).reshape(2, 34), raw_dtype=gguf.GGMLQuantizationType.Q8_0
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tmp_path / "x.gguf"


def test_every_value_and_tensor_is_what_the_package_reads(file):
    header, reader = GgufHeader(file), gguf.GGUFReader(file)
    theirs = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert set(header.names()) == set(theirs) >= {*VALUES, *LISTS}
    assert {key: header.get(key) for key in reversed(theirs)} == theirs
    assert header.get("absent", 7) == 7
    opened = GgufFile(file)
    for tensor in reader.tensors:
        assert opened.shape(tensor.name) == tuple(int(size) for size in reversed(tensor.shape))
        assert opened.kind(tensor.name) == tensor.tensor_type.name
        assert opened.num_bytes(tensor.name) == tensor.n_bytes
        whole = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        assert np.array_equal(opened.tensor(tensor.name).float().numpy(), whole.astype(np.float32))


def test_a_file_that_is_cut_short_anywhere_is_refused(file, tmp_path):
    whole, cut = file.read_bytes(), tmp_path / "cut.gguf"
    end = len(whole.rstrip(b"\0"))
    for length in {*range(1, end, 7), end - 1}:
        cut.write_bytes(whole[:length])
        with pytest.raises(ModelLoadError, match="no GGUF file, or cut short"):
            GgufFile(cut)


@pytest.mark.parametrize(
    ("at", "new", "said"),
    [
        (0, b"GGML", "does not begin with GGUF"),
        (4, struct.pack("<I", 1), "version 1 is not read, 2 and 3 are"),
        (4, struct.pack(">I", 3), r"x\.gguf is a big-endian GGUF file .*`gguf-convert-endian x\.gguf little`"),
        (8, struct.pack("<Q", 1 << 60), "cut short"),  # whichever tensor is the first that is none
        (16, struct.pack("<Q", 1 << 60), "cut short"),  # or whichever key
        (24, struct.pack("<Q", 1 << 63), "bytes are announced"),
    ],
)
def test_a_damaged_head_is_refused(file, at, new, said):
    whole = bytearray(file.read_bytes())
    whole[at : at + len(new)] = new
    file.write_bytes(whole)
    with pytest.raises(ModelLoadError, match=said):
        GgufFile(file)


def test_rows_that_do_not_divide_into_blocks_are_refused(file):
    sizes = struct.pack("<IQQ", 2, 32, 2)
    whole = file.read_bytes()
    assert whole.count(b"blocks" + sizes) == 1
    file.write_bytes(whole.replace(b"blocks" + sizes, b"blocks" + struct.pack("<IQQ", 2, 33, 1)))
    with pytest.raises(ModelLoadError, match="33 numbers do not divide into blocks of 32"):
        GgufFile(file)


def test_a_key_that_stands_there_twice_is_refused(file):
    file.write_bytes(file.read_bytes().replace(b"a.uint8", b"a.int32", 1))
    with pytest.raises(ModelLoadError, match=r"'a\.int32' stands there twice"):
        GgufFile(file)


def test_a_tensor_of_many_dimensions_is_refused(file):
    whole, begun = file.read_bytes(), b"half" + struct.pack("<I", 1)
    assert whole.count(begun) == 1
    file.write_bytes(whole.replace(begun, b"half" + struct.pack("<I", 9)))
    with pytest.raises(ModelLoadError, match="a tensor has 9 dimensions, 1 to 4 are possible"):
        GgufFile(file)
