"""`outdraft merge`: what it writes runs as any model, and says its texts' tokenizer; nothing is written over."""

import shutil

from models.test_peft_lora import learned

from outdraft import LLM, SamplingParams
from outdraft.cli.main import main
from outdraft.models.files.load import load_model
from outdraft.models.remake.lora import FOLDER, save_lora
from outdraft.models.remake.merge import merge_lora


def test_the_command_writes_a_model_that_runs(tiny, tmp_path, capsys):
    target = load_model(tiny)
    save_lora(learned(target), target, tmp_path)
    words = ["merge", str(tiny), "--lora", str(tmp_path / FOLDER), "--out", str(tmp_path / "out")]
    assert main(words) == 0
    assert f"next: outdraft generate TEXT --model {tmp_path / 'out'}" in capsys.readouterr().out
    plain, pair, other = (
        LLM(model, drafter=drafter).generate("the cat", SamplingParams(max_tokens=24)).token_ids
        for model, drafter in ((tmp_path / "out", "none"), (tmp_path / "out", "ngram"), (tiny, "none"))
    )
    assert plain == pair != other
    assert main(words) == 2 and "exists: name a new directory" in capsys.readouterr().err
    assert main(words[:2]) == 2 and "an adapter and a new directory" in capsys.readouterr().err


def test_rounded_weights_are_refused(tiny, tmp_path, capsys):
    target = load_model(tiny)
    save_lora(learned(target), target, tmp_path)
    assert main(["quantize", str(tiny), "--out", str(tmp_path / "rounded"), "--group-size", "0"]) == 0
    words = ["merge", str(tmp_path / "rounded"), "--lora", str(tmp_path / FOLDER), "--out", str(tmp_path / "out")]
    assert main(words) == 2 and "take the model that they were rounded from" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_texts_are_read_as_the_adapters_tokenizer_says_where_it_has_one(tiny, tmp_path):
    target = load_model(tiny)
    save_lora(learned(target), target, tmp_path)
    for own in (False, True):
        if own:
            shutil.copy(tiny / "tokenizer.json", tmp_path / FOLDER)
            (tmp_path / FOLDER / "chat_template.jinja").write_text("{{ messages }}")
        merge_lora(str(tiny), str(tmp_path / FOLDER), tmp_path / f"out{own}")
        assert (tmp_path / f"out{own}/tokenizer.json").is_file()
        assert (tmp_path / f"out{own}/chat_template.jinja").is_file() is own
