"""Names of the package are imported when they are touched, with the garbage collector paused meanwhile; libraries that
nothing asked for are not."""

import gc
import subprocess
import sys
import types

import pytest

import outdraft


@pytest.fixture
def collector():
    was = gc.isenabled()
    yield
    (gc.enable if was else gc.disable)()


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("fails", [False, True])
def test_the_collector_is_paused_and_left_as_it_was(before, fails, collector, monkeypatch):
    during = []

    def load(place):
        during.append(gc.isenabled())
        if fails:
            raise ImportError(place)
        return types.SimpleNamespace(LLM="found")

    monkeypatch.setattr(outdraft, "import_module", load)
    (gc.enable if before else gc.disable)()
    if fails:
        with pytest.raises(ImportError, match=r"outdraft\.engine\.llm"):
            outdraft.__getattr__("LLM")
    else:
        assert outdraft.__getattr__("LLM") == "found"
    assert during == [False] and gc.isenabled() is before


def test_no_library_is_imported_before_a_model_or_a_text_needs_it():
    code = (
        "import sys, outdraft; outdraft.SamplingParams(structured_outputs={'json': {}}); "
        "outdraft.StructuredOutputsParams(regex='a'); outdraft.LLM; "
        "print([name for name in ('transformers', 'llguidance') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
