#!/bin/bash
# A long run on one GPU with 80 GB and more: new answers are written while a head learns from those that are there.
#     lab/smollm2/train_eagle3.sh MODEL PROMPTS HEAD OUT [SECONDS] [SECONDS OF WRITING]
# OUT/eagle3-1 is the head, OUT/more-*.npz.xz the new answers, OUT/train_eagle3.json the account.
set -e
model=$1 prompts=$2 head=$3 out=$4 seconds=${5:-520} writing=${6:-240}
mkdir -p "$out"
export PYTHONUNBUFFERED=1
(
    sleep 22 # the trainer takes its room first
    python3 -m lab.smollm2.batch_answers "$model" "$prompts" "$out/more" --device cuda --dtype bfloat16 --files 2 \
        --seed 1 --seconds "$writing" >"$out/writing.log" 2>&1
    touch "$out/more.done"
) &
python3 -m lab.smollm2.train_eagle3 "$model" lab/smollm2/written/*.npz.xz --init "$head" --out "$out" --seconds "$seconds" \
    --more "$out/more" 2>&1 | tee "$out/train_eagle3.log"
wait
