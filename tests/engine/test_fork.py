"""After `os.fork()`: a child writes its own texts, or is refused at once. Each case in a process of its own
with a time limit, since what went wrong here were hangs."""

import os

import pytest
from warm import started

from outdraft.kernels.library import library

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

BEGIN = """
import os, sys, torch
torch.set_num_threads({threads})
from outdraft import LLM, OutdraftError, SamplingParams
PARAMS = SamplingParams(max_tokens=24, ignore_eos=True)
LONG = SamplingParams(max_tokens=60, ignore_eos=True)
PROMPT = {{"prompt_token_ids": [5, 6, 7, 5, 6, 7]}}
llm = LLM({model!r}, **{options!r})

def in_child(work):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if work() else 2
        except BaseException as error:
            print("child:", repr(error), flush=True)
        finally:
            os._exit(code)
    assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 0
"""
IDLE = """
text = llm.generate(PROMPT, PARAMS).token_ids
other = llm.with_drafter("none")
for _ in range(2):
    in_child(lambda: llm.generate(PROMPT, PARAMS).token_ids == text == other.generate(PROMPT, PARAMS).token_ids)
    assert llm.generate(PROMPT, PARAMS).token_ids == text
"""
RUNNING = """
whole = llm.generate(PROMPT, LONG).token_ids
stream = llm.stream(PROMPT, LONG)
begun = list(next(stream).token_ids)

def refused(ask):
    try:
        ask()
    except OutdraftError as error:
        return "forked" in str(error)

import time
step = llm.engine.step
llm.engine.step = lambda: time.sleep(0.02) or step()
other = llm.with_drafter("none")
in_child(lambda: all(map(refused, [lambda: list(stream), lambda: llm.generate(PROMPT, PARAMS), llm.forget,
                                   lambda: other.generate(PROMPT, PARAMS)])))
assert tuple(begun + [token for chunk in stream for token in chunk.token_ids]) == whole
"""


def run(model_dir, script, *, threads=1, fresh=False, **options):
    begin = BEGIN.format(model=str(model_dir), options=options, threads=threads)
    with started(begin + script, fresh=fresh) as made:
        code, out, err = made.whole()
    assert code == 0, out + err


@pytest.fixture(scope="module")
def native_dir(tmp_path_factory):
    """What the kernels take: bfloat16, widths in steps of 32."""
    import torch

    from outdraft.models.files.load import save_model
    from outdraft.testing.tiny import random_decoder, tiny_config

    place = tmp_path_factory.mktemp("native")
    save_model(
        random_decoder(
            tiny_config(layers=4, hidden=64, inner=96, heads=2, kv_heads=1), dtype=torch.bfloat16, exact=False
        ),
        place,
    )
    return place


needs_kernels = pytest.mark.skipif(library() is None, reason="the native kernels are not built (no C++ compiler)")


@needs_kernels
def test_a_child_of_an_idle_parent_writes_on_two_threads(native_dir):
    run(native_dir, IDLE, threads=2)


def test_a_child_writes_through_pytorch(model_dir):
    run(model_dir, IDLE, threads=2, dtype="float32")


@needs_kernels
def test_a_drafter_that_works_beside_the_pass_and_weights_on_disk(native_dir):
    """Both have a thread of their own, which no child has."""
    inner = {"method": "draft_model", "model": str(native_dir)}
    run(native_dir, IDLE, drafter={"name": "pearl", "drafter": inner}, weights_memory="150KiB")


LEFT = """
import time
text, step = llm.generate(PROMPT, PARAMS).token_ids, llm.engine.step
llm.engine.step = lambda: time.sleep(0.2) or step()
for chunk in llm.stream(PROMPT, LONG):
    break
time.sleep(0.05)  # into the next step, without a waiting caller
in_child(lambda: len(llm.generate(PROMPT, SamplingParams(max_tokens=2, ignore_eos=True)).token_ids) == 2)
llm.engine.step = step
for _ in range(8):
    llm.generate(PROMPT, SamplingParams(max_tokens=2, ignore_eos=True))
    in_child(lambda: not llm._thread._is_lost)
    llm.forget()
    in_child(lambda: not llm._thread._is_lost)
assert llm.generate(PROMPT, PARAMS).token_ids == text
"""


def test_a_child_forked_when_all_callers_have_left_is_not_refused(model_dir):
    run(model_dir, LEFT, dtype="float32")


def test_a_child_forked_while_a_request_runs_is_refused_at_once(model_dir):
    run(model_dir, RUNNING, dtype="float32")


@needs_kernels
def test_a_child_that_only_ends_does_not_hang(native_dir):
    """It lets go of a model whose team of threads it does not have."""
    run(
        native_dir,
        """
llm.generate(PROMPT, PARAMS)
def end():
    import gc
    global llm
    del llm
    gc.collect()
    return True
in_child(end)
if os.fork() == 0:
    sys.exit()  # the ordinary way out
os.wait()
""",
        threads=2,
        fresh=True,
    )
