"""Clients that are slow, or that send what is no HTTP: each gets one clear error, or loses its connection in time."""

import http.client
import json
import socket
from collections.abc import Iterator
from time import monotonic, sleep

import pytest
from serving import opened, received, serving

from outdraft import LLM
from outdraft.server.service import Service

BODY = json.dumps({"prompt": "It was late when", "max_tokens": 2}).encode()
NEXT = b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n"
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def hasty(llm: LLM) -> Iterator[tuple[str, Service]]:
    with serving(
        llm, head_timeout=0.3, body_timeout=0.3, send_timeout=0.3, max_connections=8, send_buffer=4096
    ) as made:
        yield made


def error_of(answer: bytes) -> tuple[int, dict[str, str]]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower() and b"connection: close" in head.lower()
    return int(head.split()[1]), json.loads(body)["error"]


@pytest.mark.parametrize("sent", [b"P", HEAD, HEAD + b"Content-Length: 9\r\nX-Slow"])
def test_a_head_that_does_not_end_is_refused(hasty: tuple[str, Service], sent: bytes) -> None:
    status, error = error_of(received(opened(hasty[0], sent)))
    assert status == 408 and "did not come within 0.3 seconds" in error["message"]


def test_a_head_has_no_longer_for_coming_byte_by_byte(hasty: tuple[str, Service]) -> None:
    connection = opened(hasty[0], b"GET /ready HTTP/1.1\r\nHost: a\r\nX: ")
    connection.settimeout(0.05)
    answer = b""
    for _ in range(600):  # thirty seconds: as long as an unused connection is kept
        try:
            answer += connection.recv(4096)
            break
        except TimeoutError:
            connection.sendall(b"y")
    assert b" 408 " in answer


def test_a_connection_that_says_nothing_ends(hasty: tuple[str, Service]) -> None:
    assert received(opened(hasty[0], b"")) == b""


def test_the_second_head_has_a_time_too(hasty: tuple[str, Service]) -> None:
    connection = opened(hasty[0], b"GET /live HTTP/1.1\r\nHost: a\r\n\r\nGET /li")
    answer = received(connection)
    assert b" 200 " in answer and b'{"status":"ready"}' in answer
    assert b" 408 " in answer


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", 400),
        (b"GET /live HTTP/1.1\r\n\r\n", 400),
        (b"GET /live HTTP/1.1\r\nHost: a\r\nBad Header: b\r\n\r\n", 400),
        (b"GET /live HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
        (HEAD + b"Content-Length: -1\r\n\r\n{}", 400),
        (HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + NEXT, 400),
        (HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 12\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + NEXT, 400),
        (b"GET /live HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 300_000, 431),
    ],
)
def test_what_is_no_http_is_answered(hasty: tuple[str, Service], sent: bytes, status: int) -> None:
    found, error = error_of(received(opened(hasty[0], sent)))
    assert (found, error["type"]) == (status, "invalid_request_error") and len(error["message"].split()) > 5


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"http://a/live", 200),
        (b"HTTPS://a:80/live?b=http://c/d", 200),
        (b"http://a", 200),
        (b"http://a?b", 200),
        (b"http:///live", 404),
        (b"http://a/live/http://a/live", 404),
    ],
)
def test_an_absolute_target_is_its_path(hasty: tuple[str, Service], target: bytes, status: int) -> None:
    answer = received(opened(hasty[0], b"GET " + target + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
    assert int(answer.split()[1]) == status, answer


def test_a_refused_body_is_read_so_that_its_sender_gets_the_answer(llm: LLM) -> None:
    """Twenty megabytes are sent before the answer is read; a reset would break the sending."""
    with serving(llm, max_body_bytes=4096) as (address, _):
        client = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
        for _ in range(2):
            client.request("POST", "/v1/completions", b" " * (20 << 20), {"Content-Type": "application/json"})
            reply = client.getresponse()
            assert reply.status == 413 and b"larger than the 4096 bytes" in reply.read()
        client.request("POST", "/v1/completions", BODY, {"Content-Type": "application/json"})
        assert client.getresponse().status == 200


def test_a_refusal_is_not_lost_where_the_client_wants_no_further_request(llm: LLM) -> None:
    """The connection ends with the answer, and not with a reset that takes the answer with it."""
    data = b" " * (8 << 20)
    head = HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(data)
    with serving(llm, max_body_bytes=4096) as (address, _):
        for _ in range(3):
            assert b" 413 " in received(opened(address, head + data))[:20]


@pytest.mark.parametrize("pieces", [1, 40])
@pytest.mark.parametrize(("size", "status"), [(65_536, b" 200 "), (65_537, b" 431 "), (240_000, b" 431 ")])
def test_a_head_may_be_so_large_and_no_larger(
    hasty: tuple[str, Service], size: int, status: bytes, pieces: int
) -> None:
    """However it comes: at once, in pieces, or behind another request."""
    first = b"GET /live HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: "
    head = first + b"y" * (size - len(first) - 4) + b"\r\n\r\n"
    connection = opened(hasty[0], b"")
    for i in range(0, size, step := -(-size // pieces)):
        connection.sendall(head[i : i + step])
    assert status in received(connection)[:20]
    if pieces == 1:
        both = received(opened(hasty[0], b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n" + head))
        assert both.count(b"HTTP/1.1") == 2 and status in both[both.rindex(b"HTTP/1.1") :]


def test_a_refused_body_that_never_ends_does_not_hold_its_connection(hasty: tuple[str, Service]) -> None:
    connection = opened(hasty[0], b"POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n{")
    assert b" 404 " in received(connection)


def test_who_takes_nothing_of_an_answer_is_given_up(hasty: tuple[str, Service]) -> None:
    address, service = hasty
    settings = {"prompt": "It was late when", "max_tokens": 900, "ignore_eos": True, "logprobs": 20}
    data = json.dumps({**settings, "temperature": 1, "stream": True, "return_token_ids": True}).encode()
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", int(address.rpartition(":")[2])))
    connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(data) + data)
    connection.settimeout(120)
    connection.recv(1)
    end = monotonic() + 60
    while service.num_under_way:  # it ends because the connection does, which has no reader
        assert monotonic() < end, "it is still under way"
        sleep(0.05)
    connection.close()


def test_there_are_so_many_connections_and_no_more(hasty: tuple[str, Service]) -> None:
    address, _ = hasty
    held = [opened(address, b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n") for _ in range(8)]
    for one in held:
        assert b" 200 " in one.recv(4096)
    status, error = error_of(received(opened(address, b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n")))
    assert status == 503 and "as many connections as it takes" in error["message"]
    for one in held:
        one.close()
    assert b" 200 " in received(opened(address, b"GET /live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
