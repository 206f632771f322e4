"""A closed loop: never more open requests than clients, everything asked once in order, an error ends it all."""

import pytest
from bench.load.made_up import Counting, make_job

from outdraft.bench.load.clients import Answer, serve


@pytest.mark.parametrize("clients", [1, 3, 50])
def test_so_many_at_once_and_each_job_once(clients: int):
    server, jobs = Counting(), [make_job(number) for number in range(12)]
    served = serve(server, jobs, clients)
    assert server.most == min(clients, 12) and server.prepared == 1
    assert server.asked == list(range(12)), "in the order of the list"
    assert sorted(served.answers) == list(range(12)) and served.num_tokens == 48 and served.seconds > 0
    assert served.work_seconds == 1.5 and server.rested == 1, "one round's, and then the cores are free"


def test_an_error_is_raised_and_no_client_is_left_waiting():
    server = Counting(broken=2)
    with pytest.raises(ValueError, match="out of luck"):
        serve(server, [make_job(number) for number in range(9)], 4)
    assert server.open == 0 and server.cancelled == 3 and len(server.asked) == 4


def test_what_an_answer_tells():
    answer = Answer(arrivals=(0.5, 0.7, 1.3), num_first=2, num_tokens=10, text="")
    assert answer.first_seconds == 0.5 and answer.gaps == pytest.approx([0.2, 0.6])
    assert answer.token_seconds == pytest.approx(0.8 / 8), "of the tokens after the first piece"
    whole = Answer(arrivals=(0.5,), num_first=3, num_tokens=3, text="")
    assert whole.gaps == [] and whole.token_seconds is None
