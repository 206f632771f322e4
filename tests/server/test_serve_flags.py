"""`outdraft serve`: its flags reach the engine and the server; those of other servers are refused with ours."""

import argparse
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest
from serve_command import certified, command

from outdraft.cli.commands import serve
from outdraft.cli.main import main
from outdraft.cli.options import add_flags, build
from outdraft.options.errors import ConfigError, OutdraftError
from outdraft.server.serve import Certificate


def read(*words: str) -> serve.Options:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(parser, serve.Options)
    return build(serve.Options, parser.parse_args(words))


def test_https_with_keys_and_a_draft_named_as_elsewhere(tmp_path: Path) -> None:
    certificate, key = certified(tmp_path)
    (tmp_path / "keys").write_text("first\n\n second \n")
    words = (
        "--model-id",
        "zoo:target",
        "--draft-model-id",
        "zoo:draft",
        "--speculate",
        3,
        "--max-model-len",
        256,
        "--max-num-seqs",
        5,
        "--served-model-name",
        "a",
        "--served-model-name",
        "b",
        "--stream-interval",
        1,
        "--api-key-file",
        tmp_path / "keys",
        "--ssl-certfile",
        certificate,
        "--ssl-keyfile",
        key,
    )
    with (
        command(*words) as address,
        httpx.Client(base_url=address, verify=ssl.create_default_context(cafile=certificate), timeout=60) as client,
    ):
        assert address.startswith("https://")
        assert client.get("/v1/models").status_code == 401
        client.headers["Authorization"] = "Bearer second"
        told = client.get("/v1/models").json()["data"]
        assert [one["id"] for one in told] == ["a", "b"] and told[0]["max_model_len"] == 256
        assert told[0]["speculative"]["methods"] == ["draft_model"]
        assert told[0]["speculative"]["num_speculative_tokens"] == 3
        text = client.post("/v1/completions", json={"model": "b", "prompt": "It was", "max_tokens": 4, "stream": True})
        assert len([line for line in text.text.splitlines() if '"text"' in line]) == 4
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{address}/live")
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(f"{address.replace('https', 'http')}/live")


def test_the_speculative_config_of_vllm() -> None:
    options = read("zoo:target", "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 6}')
    with options.engine.naming(options.place).load() as llm:
        assert llm.config["drafter"]["name"] == "ngram" and llm.config["policy"]["num_speculative_tokens"] == 6
    both = read("--speculative-config", '{"method": "ngram"}', "--speculate", "3")
    with pytest.raises(OutdraftError, match="given beside speculative_config"):
        both.engine.load()


def test_speculative_decoding_asks_for_what_is_the_default() -> None:
    asked, plain = read("--speculative-decoding"), read()
    assert asked.speculative_decoding and asked.engine == plain.engine and asked.server == plain.server
    serve._check_speculation(asked)
    for more in (("--drafter", "none"), ("--speculate", "0"), ("--speculative-config", '{"method": "none"}')):
        serve._check_speculation(read(*more))
        with pytest.raises(ConfigError, match="speculative_decoding asks for drafts"):
            serve._check_speculation(read("--speculative-decoding", *more))
    for more in (("--drafter", "ngram"), ("--draft-model-id", "zoo:draft"), ("--speculate", "3")):
        serve._check_speculation(read("--speculative-decoding", *more))


def test_a_server_keeps_prefixes_unless_a_flag_forbids_it() -> None:
    with read("zoo:target", "--max-model-len", "128").engine.load() as llm:
        assert llm.config["prefix_caching"] == (llm.config["kernels"] != "pytorch")
    assert not read("--no-enable-prefix-caching").engine.enable_prefix_caching


def test_every_flag_of_the_server_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the others there is a test of each above."""
    words: dict[str, Any] = {
        "max_tokens": 7,
        "max_prompts": 2,
        "max_texts": 3,
        "max_body_bytes": 2048,
        "max_schema_bytes": 2048,
        "body_timeout": 2.0,
        "request_timeout": 3.0,
        "rate_limit": 4,
        "stream_interval": 2,
        "keep_alive": 1.0,
        "drain_timeout": 5.0,
        "allow_origins": "https://a.org",
        "tool_call_parser": "mistral",
        "reasoning_parser": "qwen3",
        "special_tokens_in_messages": "asked",
    }
    flags = [word for name, value in words.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    monkeypatch.setenv("OUTDRAFT_API_KEY", "x,y")
    made = serve._settings(read(*flags, "--trust-request-chat-template", "--log-requests"))
    for name, value in words.items():
        wanted = (value,) if name == "allow_origins" else value
        assert getattr(made, "timeout" if name == "request_timeout" else name) == wanted, name
    assert made.trust_request_chat_template and made.log_requests and made.api_keys == ("x", "y")
    assert made.served_model_name == ("zoo:target",)
    assert serve._settings(read("--api-key", " z ")).api_keys == ("z",)


def test_keys_of_the_environment_are_known_without_their_blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTDRAFT_API_KEY", "a, b,, c\n")
    assert serve._settings(read()).api_keys == ("a", "b", "c")
    monkeypatch.delenv("OUTDRAFT_API_KEY")
    assert serve._settings(read()).api_keys == ()


@pytest.mark.parametrize("told", ["", ",", " , "])
def test_no_client_is_let_in_because_a_key_is_empty(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTDRAFT_API_KEY", told)
    with pytest.raises(ConfigError, match="OUTDRAFT_API_KEY is set and holds no key: write keys into it"):
        serve._settings(read())
    with pytest.raises(ConfigError, match="one of the api_keys is empty"):
        serve._settings(read("--api-key", told.strip(" ,")))
    assert serve._settings(read("--api-key", "a")).api_keys == ("a",)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--ctx-size", "4096"), "'--ctx-size': here it is called --max-model-len"),
        (("--allowed-origins", '["*"]'), "here it is called --allow-origins"),
        (("-np", "4"), "here it is called --max-num-seqs"),
        (("--shutdown-timeout", "5"), "here it is called --drain-timeout"),
        (("--tensor-parallel-size", "2"), "one device is used: leave it out"),
        (("--enable-auto-tool-choice",), "is the default: leave it out"),
        (("--gpu-memory-utilization=0.9",), "--kv-cache-memory limits"),
        (("--draining-timeout", "5"), "did you mean '--drain-timeout'?"),
        (("zoo:draft", "--model", "zoo:draft"), "both name the model"),
        (("--ssl-certfile", "a.pem"), "ssl_certfile and ssl_keyfile belong together"),
        (("--ssl-certfile", "a.pem", "--ssl-keyfile", "b.pem"), "there is no file a.pem"),
        (("--api-key-file", "/dev/null"), "holds no key"),
        (("--api-key-file", "nowhere"), "api_key_file nowhere cannot be read"),
        (("--stream-interval", "-1"), "stream_interval=-1"),
    ],
)
def test_what_is_refused_gets_its_cure(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str) -> None:
    try:
        code = main(["serve", *words])
    except SystemExit as left:
        code = left.code  # type: ignore[assignment]
    told = capsys.readouterr().err
    assert code == 2 and says in told and told.count("\n") == 1, told


def test_only_a_server_takes_the_words_of_servers(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["generate", "x", "--tensor-parallel-size", "2"])
    assert "leave it out" not in capsys.readouterr().err


def test_a_certificate_that_cannot_be_used_is_refused_before_the_model_is_loaded(tmp_path: Path) -> None:
    (first, key), (_, other) = certified(tmp_path), certified(tmp_path, name="other")
    Certificate(certfile=first, keyfile=key)
    with pytest.raises(ConfigError, match=r"KEY_VALUES_MISMATCH.*belongs together"):
        Certificate(certfile=first, keyfile=other)
    with pytest.raises(ConfigError, match="in PEM"):
        Certificate(certfile=Path(__file__), keyfile=key)
    locked = certified(tmp_path, "-passout", "pass:abc", name="locked")
    with pytest.raises(ConfigError, match="is encrypted: openssl pkey"):
        Certificate(certfile=locked[0], keyfile=locked[1])


def test_a_model_on_this_machine_is_called_by_its_name_and_not_by_its_path(chat_model: Path) -> None:
    """Which would stand in every answer, and in /metrics for anybody."""
    (chat_model / "x").mkdir(exist_ok=True)
    for given in (chat_model, f"{chat_model}/", chat_model / "x/.."):
        assert serve._name_of(str(given)) == chat_model.name
    (chat_model / "x").rmdir()
    assert [serve._name_of(one) for one in ("zoo:target", "Qwen/Qwen3-0.6B")] == ["zoo:target", "Qwen/Qwen3-0.6B"]
    with command(chat_model) as address:
        assert httpx.get(f"{address}/v1/models").json()["data"][0]["id"] == chat_model.name
        asked = {"model": str(chat_model), "prompt": "It", "max_tokens": 2}
        assert httpx.post(f"{address}/v1/completions", json=asked).status_code == 200
        assert str(chat_model) not in httpx.get(f"{address}/metrics").text
