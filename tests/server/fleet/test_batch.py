"""A batch is answered exactly once by id, however often it is killed, with texts that depend on the seed alone."""

import json
import random

import pytest

from outdraft.options.errors import ConfigError
from outdraft.server.fleet.batch.jobs import BatchJob, read_jobs, seed_of
from outdraft.server.fleet.batch.ledger import Ledger
from outdraft.server.fleet.batch.worker import BatchWorker

ENGINE = {"model": "zoo:target", "drafter": "ngram", "num_speculative_tokens": 4}


def line(i, **body):
    body = {"prompt": f"On day {i} the", "max_tokens": 8, **body}
    return {"custom_id": f"job-{i}", "method": "POST", "url": "/v1/completions", "body": body}


def write(path, lines):
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return path


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    return BatchWorker(ENGINE, str(tmp_path_factory.mktemp("ledger")))


def run(worker, source, folder, *, batch_size, dies=None, seed=0, engine=ENGINE, **more):
    """What `answer_batch` does, without Ray. `dies`: before which batch the run is killed."""
    jobs, ledger = [job.seeded(seed) for job in read_jobs(source)], Ledger(folder, engine)
    todo = ledger.missing(jobs, **more)
    worker._ledger = ledger
    for i, start in enumerate(range(0, len(todo), batch_size)):
        if i == dies:
            return None
        worker.answer(todo[start : start + batch_size])
    return ledger.finish(jobs, todo)


def results(folder):
    return [json.loads(one) for one in (folder / "results.jsonl").read_text().splitlines()]


def texts(folder):
    return {one["custom_id"]: one["response"]["body"]["choices"][0]["text"] for one in results(folder)}


def test_a_killed_run_goes_on_and_everything_is_there_once(worker, tmp_path):
    lines = [line(i) for i in range(20)]
    lines[3]["body"]["temprature"] = 1  # the server refuses it
    source = write(tmp_path / "in.jsonl", lines)
    assert run(worker, source, tmp_path / "out", batch_size=4, dies=2) is None
    assert not (tmp_path / "out/results.jsonl").exists()
    account = run(worker, source, tmp_path / "out", batch_size=5)
    assert (account.total, account.done, account.failed, account.skipped) == (20, 12, 0, 8)
    assert [one["custom_id"] for one in results(tmp_path / "out")] == [one["custom_id"] for one in lines]
    assert "temprature" in results(tmp_path / "out")[3]["error"]["message"]
    whole = run(worker, source, tmp_path / "whole", batch_size=20)
    assert (whole.done, whole.failed, whole.skipped) == (19, 1, 0) and whole.is_complete
    lines[3]["body"].pop("temprature")
    good = write(tmp_path / "good.jsonl", lines)
    again = run(worker, good, tmp_path / "out", batch_size=20, retry_failed=True)
    assert (again.done, again.failed, again.skipped) == (1, 0, 19)
    run(worker, good, tmp_path / "whole", batch_size=7, retry_failed=True)
    assert texts(tmp_path / "out") == texts(tmp_path / "whole")


def test_texts_depend_on_seed_and_id_alone(worker, tmp_path):
    lines = [line(i) for i in range(6)]
    random.Random(1).shuffle(lines)
    source = write(tmp_path / "in.jsonl", lines)
    other = write(tmp_path / "other.jsonl", sorted(lines, key=lambda one: one["custom_id"]))
    run(worker, source, tmp_path / "a", batch_size=6, seed=5)
    run(worker, other, tmp_path / "b", batch_size=1, seed=5)
    run(worker, source, tmp_path / "c", batch_size=6, seed=6)
    assert texts(tmp_path / "a") == texts(tmp_path / "b") != texts(tmp_path / "c")


def test_an_answer_to_something_else_does_not_count(worker, tmp_path):
    """Another body, another seed or another engine: the texts are those of a run in an empty folder."""
    lines = [line(i) for i in range(4)]
    source, out = write(tmp_path / "in.jsonl", lines), tmp_path / "out"
    run(worker, source, out, batch_size=4)
    lines[2]["body"]["max_tokens"] = 5
    changed = write(tmp_path / "changed.jsonl", lines)
    assert run(worker, changed, out, batch_size=4).done == 1
    run(worker, changed, tmp_path / "empty", batch_size=4)
    assert texts(out) == texts(tmp_path / "empty")
    assert run(worker, changed, out, batch_size=4, seed=5).done == 4
    run(worker, changed, tmp_path / "seeded", batch_size=4, seed=5)
    assert texts(out) == texts(tmp_path / "seeded") != texts(tmp_path / "empty")
    assert run(worker, changed, out, batch_size=4, engine={**ENGINE, "model": "another"}).done == 4
    assert run(worker, source, out, batch_size=4).skipped == 4


def test_a_batch_that_was_written_and_not_reported_is_not_done_again(worker, tmp_path, monkeypatch):
    """The actor has died between writing and telling: Ray hands its batch out again."""
    worker._ledger = Ledger(tmp_path, ENGINE)
    jobs = [BatchJob(**{key: value for key, value in line(i).items() if key != "method"}) for i in range(3)]
    first = worker.answer(jobs)
    monkeypatch.setattr(worker, "_app", None)
    assert worker.answer(jobs) == first
    assert len(list(tmp_path.glob("part-*"))) == 1


def test_a_part_that_was_half_written_is_not_there(worker, tmp_path, monkeypatch):
    """The process is killed while it writes: what it left counts for nothing, and the run goes on."""
    source = write(tmp_path / "in.jsonl", [line(i) for i in range(4)])
    (tmp_path / "out").mkdir()
    (tmp_path / "out/part-00.jsonl.part-1-0").write_text('{"custom_id": "job-0", "resp')
    assert run(worker, source, tmp_path / "out", batch_size=4).done == 4


def test_an_id_in_two_parts_is_counted_once(tmp_path):
    ledger, jobs = Ledger(tmp_path / "out", ENGINE), read_jobs(write(tmp_path / "in.jsonl", [line(0), line(1)]))
    first, second = (
        {"custom_id": job.custom_id, "asked": ledger.key(job), "response": {"status_code": 200}} for job in jobs
    )
    ledger.write([first])
    ledger.write([first, second])
    account = ledger.finish(jobs, jobs)
    assert (account.total, account.done, account.failed, account.skipped) == (2, 2, 0, 0)
    assert len(results(tmp_path / "out")) == 2


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('{"custom_id": "a"', "line 1 is no JSON"),
        ("[]", "line 1 is []"),
        (json.dumps(line(0)) + "\n\n" + json.dumps(line(0)), "line 3: custom_id 'job-0' is that of line 1"),
        (json.dumps({**line(0), "custom_id": 5}), "custom_id=5"),
        (json.dumps({**line(0), "url": "/v1/embeddings"}), "POST to one of /v1/completions"),
        (json.dumps({**line(0), "bdy": 1}), "has 'bdy'"),
        (json.dumps(line(0, stream=True)), "without stream"),
    ],
)
def test_what_is_no_batch_is_refused_before_anything_is_asked(tmp_path, lines, says):
    (tmp_path / "in.jsonl").write_text(lines)
    with pytest.raises(ConfigError) as caught:
        read_jobs(tmp_path / "in.jsonl")
    assert says in str(caught.value)


def test_seeds_of_requests_are_their_own():
    assert len({seed_of(seed, f"{i}") for seed in range(10) for i in range(100)}) == 1000
    own = BatchJob(custom_id="x", url="/v1/completions", body={"prompt": "a", "seed": 3})
    greedy = BatchJob(custom_id="x", url="/v1/completions", body={"prompt": "a", "temperature": 0})
    tokens = BatchJob(custom_id="x", url="/inference/v1/generate", body={"token_ids": [1]})
    assert own.seeded(1) is own and greedy.seeded(1) is greedy
    assert tokens.seeded(1).body["sampling_params"]["seed"] == seed_of(1, "x")


def test_results_are_written_when_every_request_has_its_answer(tmp_path):
    jobs = [BatchJob(custom_id=name, url="/v1/completions", body={}) for name in ("a", "b")]
    ledger = Ledger(tmp_path, ENGINE)
    for job, is_there in zip(jobs, (False, True), strict=True):
        ledger.write([{"custom_id": job.custom_id, "asked": ledger.key(job), "response": {"status_code": 200}}])
        assert ledger.finish(jobs, jobs).is_complete == (tmp_path / "results.jsonl").exists() == is_there
