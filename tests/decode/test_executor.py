"""Work beside a pass: order, word that the pass is over, and errors from either side."""

import threading

import pytest
import torch

from outdraft.decode.executor import Overlapped, Serial

BOTH = pytest.mark.parametrize("executor", [Serial(), Overlapped()], ids=["serial", "overlapped"])


def test_serial_works_after_the_pass():
    order = []
    with Serial().beside(lambda is_over: order.append("work")):
        order.append("pass")
    assert order == ["pass", "work"]


def test_overlapped_works_during_the_pass_and_is_joined():
    began, may_end = threading.Event(), threading.Event()
    done = []

    def work(is_over):
        assert not is_over() and torch.is_inference_mode_enabled()
        began.set()
        may_end.wait(10)
        while not is_over():
            pass
        done.append(threading.current_thread() is not threading.main_thread())

    with Overlapped().beside(work):
        assert began.wait(10)  # the pass has not ended, the work has begun
        may_end.set()
        assert not done
    assert done == [True]


@BOTH
def test_an_error_of_the_work_surfaces(executor):
    def work(is_over):
        raise ValueError("draft")

    with pytest.raises(ValueError, match="draft"), executor.beside(work):
        pass
    with executor.beside(None):  # and the next pass is not harmed
        pass


@BOTH
def test_an_error_of_the_pass_wins(executor):
    def work(is_over):
        raise ValueError("draft")

    with pytest.raises(OSError, match="pass"), executor.beside(work):
        raise OSError("pass")
