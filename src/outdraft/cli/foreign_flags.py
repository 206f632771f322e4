"""Flags of other servers: what they are called here, or why they can be left out. Read when the user gives one of them.

Data in: a flag that a command does not know; data out: the end of the sentence that refuses it.
"""

from collections.abc import Sequence as Seq

_CALLED = {  # vLLM, SGLang, TGI, llama-server, and our own of earlier versions -> here
    "--recipe": "--drafter",
    "--model-path": "--model",
    "-m": "--model",
    "--hf-repo": "--model",
    "--draft-model-path": "--draft-model",
    "--speculative-draft-model-path": "--draft-model",
    "--speculative-model": "--draft-model",
    "--model-draft": "--draft-model",
    "-md": "--draft-model",
    "--spec-model": "--draft-model",
    "--speculative-algorithm": "--drafter",
    "--spec-method": "--drafter",
    "--spec-type": "--drafter",
    "--spec-tokens": "--num-speculative-tokens",
    "--speculative-num-draft-tokens": "--num-speculative-tokens",
    "--speculative-num-steps": "--num-speculative-tokens",
    "--draft-max": "--num-speculative-tokens",
    "--draft": "--num-speculative-tokens",
    "--draft-n": "--num-speculative-tokens",
    "--spec-draft-n-max": "--num-speculative-tokens",
    "--context-length": "--max-model-len",
    "--ctx-size": "--max-model-len",
    "-c": "--max-model-len",
    "--max-total-tokens": "--max-model-len",
    "--max-running-requests": "--max-num-seqs",
    "--parallel": "--max-num-seqs",
    "-np": "--max-num-seqs",
    "--max-batch-size": "--max-num-seqs",
    "--max-concurrent-requests": "--max-num-waiting",
    "--max-queued-requests": "--max-num-waiting",
    "--chunked-prefill-size": "--max-num-batched-tokens",
    "--batch-size": "--max-num-batched-tokens",
    "--max-batch-prefill-tokens": "--max-num-batched-tokens",
    "--kv-cache-memory-bytes": "--kv-cache-memory",
    "--cache-type-k": "--kv-cache-dtype",
    "-ctk": "--kv-cache-dtype",
    "--hostname": "--host",
    "--alias": "--served-model-name",
    "-a": "--served-model-name",
    "--ssl-cert-file": "--ssl-certfile",
    "--ssl-key-file": "--ssl-keyfile",
    "--allowed-origins": "--allow-origins",
    "--cors-allow-origin": "--allow-origins",
    "--sse-keep-alive-interval": "--keep-alive",
    "--shutdown-timeout": "--drain-timeout",
    "--enable-log-requests": "--log-requests",
    "--timeout": "--request-timeout",
    "-to": "--request-timeout",
    "--predict": "--max-tokens",
    "--n-predict": "--max-tokens",
    "-n": "--max-tokens",
    "--reasoning-format": "--reasoning-parser",
    "--dtype-kv": "--kv-cache-dtype",
}
_PLAN = {"--recipe": "--plan"}  # of `train`, by its name of earlier versions
_ONE_DEVICE = "one device is used: leave it out"
_ALWAYS = "it is always so: leave it out"
_PROXY = "that is for a proxy before the server (docs/deploy.md): leave it out"
_DIRECTORY = "it is read from the model's directory: put it there, and leave the flag out"
_CURES = {
    **dict.fromkeys(
        (
            "--tensor-parallel-size",
            "-tp",
            "--tp",
            "--tp-size",
            "--pipeline-parallel-size",
            "-pp",
            "--data-parallel-size",
            "-dp",
            "--num-shard",
            "--distributed-executor-backend",
        ),
        _ONE_DEVICE,
    ),
    **dict.fromkeys(
        (
            "--enable-chunked-prefill",
            "--enable-prompt-tokens-details",
            "--metrics",
            "--enable-metrics",
            "--cont-batching",
            "-cb",
            "--jinja",
            "--disable-log-requests",
            "--disable-fastapi-docs",
            "--no-slots",
            "--disable-uvicorn-access-log",
        ),
        _ALWAYS,
    ),
    **dict.fromkeys(("--root-path", "--uds", "--ssl-ca-certs", "--ssl-cert-reqs", "--api-prefix", "--path"), _PROXY),
    **dict.fromkeys(("--tokenizer", "--chat-template", "--chat-template-file", "--generation-config"), _DIRECTORY),
    "--enable-auto-tool-choice": "--tool-call-parser auto finds how the model calls, and is the default: leave it out",
    "--gpu-memory-utilization": "--kv-cache-memory limits the memory of keys and values",
    "--mem-fraction-static": "--kv-cache-memory limits the memory of keys and values",
    "--gpu-layers": "--device says where to compute",
    "-ngl": "--device says where to compute",
    "--threads": "the environment's OMP_NUM_THREADS says how many",
    "-t": "the environment's OMP_NUM_THREADS says it",
    "--trust-remote-code": "no code of a model's repository is run: leave it out",
    "--quantization": "round the model with `outdraft quantize`, or name one that is rounded",
    "-q": "round the model with `outdraft quantize`, or name one that is rounded",
    "--seed": "a seed belongs to a request: leave it out",
    "--temp": "it belongs to a request: leave it out",
    "--max-log-len": "texts are not in the log, unless --log-requests: leave it out",
    "--max-logprobs": "a request may ask for 20: leave it out",
    "--no-webui": "the page at / holds nothing, and what it asks needs a key: leave it out",
    "--disable-by-batch-size": "the policy measures what a batch costs: leave it out",
    "--enable-lora": "an adapter is merged into its model first: outdraft merge MODEL --lora ADAPTER --out DIR",
    "--lora-modules": "an adapter is merged into its model first: outdraft merge MODEL --lora ADAPTER --out DIR",
    "--workers": "one engine serves all requests; start more servers on other ports, behind a proxy (docs/deploy.md)",
    "--ssl-keyfile-password": "the key is read without one: openssl pkey -in KEY -out PLAIN writes it so",
}


def cure(flag: str, known: Seq[str]) -> str | None:
    """`known`: the command's own flags. None: no server calls anything so."""
    for names in (_CALLED, _PLAN):
        if (called := names.get(flag)) in known:
            return f": here it is called {called}"
    return f": {told}" if "--host" in known and (told := _CURES.get(flag)) is not None else None
