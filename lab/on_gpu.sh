#!/usr/bin/env bash
# Everything that wants a GPU, on a machine with PyTorch and nothing else: kernels against their reference, recorded
# passes against launched ones, whole texts, then speeds. Writes into the folder $1 (default: on-gpu); under 8 minutes.
#
# Needs no installation. Of the weights it takes zoo/target, draft, eagle3 and early_exit: leave packages/, docs/pictures,
# recipes/claims and the zoo's other folders behind where the tree must stay below 60 MB.
# `DEVICE=cpu SIZE=tiny lab/on_gpu.sh` tries it without a GPU.
set -u
cd "$(dirname "$0")/.."
OUT=${1:-on-gpu}
DEVICE=${DEVICE:-cuda}
SIZE=${SIZE:-1b}
PY=${PY:-python3}
export PYTHONPATH=src:${PYTHONPATH:-} PYTHONUNBUFFERED=1
mkdir -p "$OUT"

part() { # name, seconds, command...
  local name=$1 limit=$2 began=$SECONDS
  shift 2
  timeout "$limit" "$@" >"$OUT/$name.log" 2>&1
  local status=$?
  echo "== $name: status $status, $((SECONDS - began)) s"
  tail -n "${LINES_SHOWN:-12}" "$OUT/$name.log" | cut -c -400
}

part machine 60 "$PY" -c "import torch, sys; print(sys.version.split()[0], torch.__version__, torch.cuda.is_available() and torch.cuda.get_device_name())"
part tests 110 "$PY" -m pytest -q --import-mode=importlib -p no:cacheprovider -n "${WORKERS:-4}" -m "gpu or not gpu" tests/gpu tests/nn/attention
part texts 130 "$PY" -m lab.gpu.texts --device "$DEVICE" --minutes 1.7 --out "$OUT/texts.jsonl"
part bench 180 "$PY" -m lab.gpu --device "$DEVICE" --size "$SIZE" --minutes 2.5 --out "$OUT/bench.jsonl"
echo "on_gpu: $SECONDS s, written to $OUT"
