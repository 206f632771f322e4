#!/bin/sh
# A running server asked by curl: `outdraft serve zoo:target`, then this file. URL and OUTDRAFT_API_KEY say where and who.
set -eu
URL=${URL:-http://127.0.0.1:8000}
ask() { curl --silent --show-error --fail-with-body --no-buffer -H "Authorization: Bearer ${OUTDRAFT_API_KEY:-none}" "$@"; echo; }

echo "what is served, and how it is drafted:"
ask "$URL/v1/models"

echo "a completion:"
ask "$URL/v1/completions" --json '{"prompt": "It was late when", "max_tokens": 20, "temperature": 0}'

echo "a chat, piece by piece:"
ask "$URL/v1/chat/completions" --json '{"messages": [{"role": "user", "content": "How are you?"}], "max_tokens": 12, "stream": true}'

echo "the same text without speculation:"
ask "$URL/v1/completions" --json '{"prompt": "It was late when", "max_tokens": 20, "temperature": 0, "speculative": false}'

echo "one of two answers:"
ask "$URL/v1/completions" --json '{"prompt": "Is it late? ", "structured_outputs": {"choice": ["yes", "no"]}, "temperature": 0}'

echo "token ids in, token ids out:"
ask "$URL/inference/v1/generate" --json '{"token_ids": [298, 267], "sampling_params": {"max_tokens": 8, "temperature": 0}}'

echo "how much is under way:"
ask "$URL/load"
