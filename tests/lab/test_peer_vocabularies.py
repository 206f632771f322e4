"""The script that reads llama.cpp's own vocabularies and their texts, on a folder that looks like theirs."""

import gguf
import pytest

from lab.peer_vocabularies import main


@pytest.fixture
def folder(tmp_path):
    for name, model in (("mine", "llama"), ("other", "bert")):
        writer = gguf.GGUFWriter(tmp_path / f"ggml-vocab-{name}.gguf", "llama")
        writer.add_tokenizer_model(model)
        writer.add_token_list(["<unk>", "<s>", "</s>", "\u2581", "a", "\u2581a"])
        writer.add_token_scores([0.0, 0.0, 0.0, -2.0, -3.0, -1.0])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    mark = "\n__ggml_vocab_test__\n"
    (tmp_path / "ggml-vocab-mine.gguf.inp").write_text(f"a{mark}a a{mark}")
    (tmp_path / "ggml-vocab-mine.gguf.out").write_text(" 5\n 5 5\n")
    return tmp_path


def test_texts_that_get_the_listed_ids(folder, capsys):
    assert main([str(folder)]) == 0
    mine, other, total = capsys.readouterr().out.splitlines()
    assert mine.endswith("2 texts: 2 alike, 2 back, 2 joined") and "refused" in other and "WordPiece" in other
    assert total.startswith("2 of 2 texts")


def test_a_text_that_gets_others_is_counted(folder, capsys):
    (folder / "ggml-vocab-mine.gguf.out").write_text(" 5\n 5 3 4\n")
    assert main([str(folder)]) == 1
    assert "2 texts: 1 alike, 2 back, 2 joined" in capsys.readouterr().out


def test_a_folder_without_texts_proves_nothing(tmp_path):
    assert main([str(tmp_path)]) == 1
