#!/usr/bin/env bash
# Everything that wants a GPU, in under eight minutes, on a machine with Python and PyTorch: kernels against their
# reference, recorded passes against launched ones, whole texts, packed weights, then speeds.
#
#   bash lab/on_gpu.sh [OUTDIR] [--device cpu] [--size tiny]       writes OUTDIR/on_gpu.json, and a log of each part
#
# `--device cpu --size tiny` tries it without a GPU. Needs no installation, of the packages that outdraft imports no more
# than torch, tokenizers, safetensors and numpy; the tests are left out where there is no pytest, and the file says so.
# To carry the tree to another machine below 60 MB, leave docs, lab/smollm2/written and tests/mutation behind.
set -u
OUT=on-gpu DEVICE=cuda SIZE=1b
while [ $# -gt 0 ]; do
  case $1 in
    --device) DEVICE=$2; shift 2 ;;
    --size) SIZE=$2; shift 2 ;;
    *) OUT=$1; shift ;;
  esac
done
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
cd "$(dirname "$0")/.." || exit 2
for model in target draft eagle3; do
  [ -f "src/outdraft/zoo/$model/config.json" ] || { echo "on_gpu: src/outdraft/zoo/$model did not travel" >&2; exit 2; }
done
PY=${PY:-python3}
export PYTHONPATH=src:.:${PYTHONPATH:-} PYTHONUNBUFFERED=1
if [ "$SIZE" = tiny ]; then MINUTES=0.3; else MINUTES=1.6; fi
rm -f "$OUT"/*.jsonl "$OUT"/*.log

part() { # name, seconds, command...: one line of parts.jsonl
  local name=$1 limit=$2 began=$SECONDS
  shift 2
  timeout "$limit" "$@" >"$OUT/$name.log" 2>&1
  local status=$?
  echo "{\"part\": \"$name\", \"status\": $status, \"seconds\": $((SECONDS - began))}" | tee -a "$OUT/parts.jsonl"
}

# Tests and texts run beside each other, a process for each way of computing: nothing in them is a measurement.
for way in recorded guarded float32 launched exact; do
  part "texts-$way" 150 "$PY" -m lab.gpu.texts --device "$DEVICE" --ways $way --minutes "$MINUTES" --out "$OUT/texts-$way.jsonl" &
done
if "$PY" -c "import pytest" 2>/dev/null; then
  workers=$("$PY" -c "import xdist" 2>/dev/null && echo "-n ${WORKERS:-$(($(nproc) / 2))}")
  # shellcheck disable=SC2086
  part tests 150 "$PY" -m pytest -q --import-mode=importlib -p no:cacheprovider $workers -m "gpu or not gpu" tests/gpu tests/nn/attention
else
  echo '{"part": "tests", "skipped": "no pytest"}' | tee -a "$OUT/parts.jsonl"
fi
wait
part packed 120 "$PY" -m lab.gpu.packed --device "$DEVICE" --size "$SIZE" --out "$OUT/packed.jsonl"
part bench 170 "$PY" -m lab.gpu --device "$DEVICE" --size "$SIZE" --minutes 2.3 --out "$OUT/bench.jsonl"
"$PY" -m lab.gpu.gather "$OUT"
echo "on_gpu: $SECONDS s, written to $OUT/on_gpu.json"
