"""Flags of other servers: what they are called here, or why they can be left out. Read when the user gives one of them.

Data in: a flag that a command does not know; data out: the end of the sentence that refuses it.
"""

from collections.abc import Sequence as Seq

_CALLED = {  # here -> in vLLM, SGLang, TGI, llama-server, and in our own earlier versions
    "--drafter": "--recipe --speculative-algorithm --spec-method --spec-type",
    "--model": "--model-path -m --hf-repo",
    "--draft-model": "--draft-model-path --speculative-draft-model-path --speculative-model --model-draft -md "
    "--spec-model",
    "--num-speculative-tokens": "--spec-tokens --speculative-num-draft-tokens --speculative-num-steps --draft-max "
    "--draft --draft-n --spec-draft-n-max",
    "--max-model-len": "--context-length --ctx-size -c --max-total-tokens",
    "--max-num-seqs": "--max-running-requests --parallel -np --max-batch-size",
    "--max-num-waiting": "--max-concurrent-requests --max-queued-requests",
    "--max-num-batched-tokens": "--chunked-prefill-size --batch-size --max-batch-prefill-tokens",
    "--kv-cache-memory": "--kv-cache-memory-bytes",
    "--kv-cache-dtype": "--cache-type-k -ctk --dtype-kv",
    "--host": "--hostname",
    "--served-model-name": "--alias -a",
    "--ssl-certfile": "--ssl-cert-file",
    "--ssl-keyfile": "--ssl-key-file",
    "--allow-origins": "--allowed-origins --cors-allow-origin",
    "--keep-alive": "--sse-keep-alive-interval",
    "--drain-timeout": "--shutdown-timeout",
    "--log-requests": "--enable-log-requests",
    "--request-timeout": "--timeout -to",
    "--max-tokens": "--predict --n-predict -n",
    "--reasoning-parser": "--reasoning-format",
    "--plan": "--recipe",
}
_CURES = {  # of flags of other servers that have none here
    "--tensor-parallel-size -tp --tp --tp-size --pipeline-parallel-size -pp --data-parallel-size -dp --num-shard "
    "--distributed-executor-backend": "one device is used: leave it out",
    "--enable-chunked-prefill --enable-prompt-tokens-details --metrics --enable-metrics --cont-batching -cb --jinja "
    "--disable-log-requests --disable-fastapi-docs --no-slots --disable-uvicorn-access-log": "it is always so: leave "
    "it out",
    "--root-path --uds --ssl-ca-certs --ssl-cert-reqs --api-prefix --path": "that is for a proxy before the server "
    "(docs/deploy.md): leave it out",
    "--tokenizer --chat-template --chat-template-file --generation-config": "it is read from the model's directory: "
    "put it there, and leave the flag out",
    "--enable-auto-tool-choice": "--tool-call-parser auto finds how the model calls, and is the default: leave it out",
    "--gpu-memory-utilization --mem-fraction-static": "--kv-cache-memory limits the memory of keys and values",
    "--gpu-layers -ngl": "--device says where to compute",
    "--threads": "the environment's OMP_NUM_THREADS says how many",
    "-t": "the environment's OMP_NUM_THREADS says it",
    "--trust-remote-code": "no code of a model's repository is run: leave it out",
    "--quantization -q": "round the model with `outdraft quantize`, or name one that is rounded",
    "--seed": "a seed belongs to a request: leave it out",
    "--temp": "it belongs to a request: leave it out",
    "--max-log-len": "texts are not in the log, unless --log-requests: leave it out",
    "--max-logprobs": "a request may ask for 20: leave it out",
    "--no-webui": "the page at / holds nothing, and what it asks needs a key: leave it out",
    "--disable-by-batch-size": "the policy measures what a batch costs: leave it out",
    "--enable-lora --lora-modules": "an adapter is merged into its model first: outdraft merge MODEL --lora ADAPTER "
    "--out DIR",
    "--workers": "one engine serves all requests; start more servers on other ports, behind a proxy (docs/deploy.md)",
    "--ssl-keyfile-password": "the key is read without one: openssl pkey -in KEY -out PLAIN writes it so",
}


def cure(flag: str, known: Seq[str]) -> str | None:
    """`known`: the command's own flags. None: no server calls anything so."""
    for ours, theirs in _CALLED.items():
        if ours in known and flag in theirs.split():
            return f": here it is called {ours}"
    told = next((told for flags, told in _CURES.items() if flag in flags.split()), None)
    return f": {told}" if told is not None and "--host" in known else None
