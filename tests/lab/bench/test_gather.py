"""What the parts of `lab/on_gpu.sh` wrote comes together in one object."""

from lab.gpu.gather import gather


def test_parts_lines_and_logs_come_together(tmp_path):
    (tmp_path / "parts.jsonl").write_text('{"part": "texts", "status": 124, "seconds": 130}\n')
    (tmp_path / "texts.log").write_text("\n".join(map(str, range(40))))
    (tmp_path / "texts.jsonl").write_text('{"way": "recorded"}\n{"way": "gua')  # ended within a line
    told = gather(tmp_path)
    assert told["texts"] == [{"way": "recorded"}] and told["bench"] == []
    assert told["parts"][0]["said"][-1] == "39" and len(told["parts"][0]["said"]) == 12
