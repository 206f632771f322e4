"""OpenVINO's pipeline is set up so that nothing of an earlier text is used again; its library is stood in for."""

import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lab.bench.peers.process import WORKERS


@pytest.fixture
def made(monkeypatch) -> dict[str, Any]:
    """What the worker asks the library for."""
    asked: dict[str, Any] = {}
    genai: Any = ModuleType("openvino_genai")
    genai.SchedulerConfig = lambda: SimpleNamespace(enable_prefix_caching=True, max_num_batched_tokens=256)
    genai.draft_model = lambda path, device, **options: ("draft", path, options)
    genai.LLMPipeline = lambda path, device, **options: asked.update(options)
    monkeypatch.setitem(sys.modules, "openvino", ModuleType("openvino"))
    monkeypatch.setitem(sys.modules, "openvino_genai", genai)
    spec = importlib.util.spec_from_file_location("with_openvino", WORKERS / "with_openvino.py")
    assert spec is not None and spec.loader is not None
    worker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(worker)
    asked["load"] = worker.Engine
    return asked


@pytest.mark.parametrize("mode", ["plain", "assisted", "lookup"])
def test_no_prompt_is_remembered(made: dict[str, Any], mode: str):
    made["load"](model="m", draft="d", mode=mode, k=8, threads=2)
    schedules = [made["scheduler_config"]]
    if mode == "assisted":
        schedules.append(made["draft_model"][2]["scheduler_config"])
    for schedule in schedules:
        assert schedule.enable_prefix_caching is False, "a prompt that came before would cost nothing"
        assert schedule.max_num_batched_tokens > 1_000_000, "a long prompt is read in one pass"
