#!/usr/bin/env bash
# A training run as a shell script: all that a recovery drill asks for, without any library.
# A step is a line of output, a checkpoint is a file that gets its name last, and two lines of JSON
# say who is there and from what the script went on.
#
#   rackproof drill gpu-loss --steps 200 --replicas 1 --require L4 --log-regex \
#   'step (?P<step>\d+) loss (?P<loss>\S+) samples (?P<samples>\d+) digest (?P<digest>\S+) in (?P<ckpt>.+)' \
#       -- bash docs/examples/train.sh 200
#
# Its "model" is one number that every step before went into, so that a step which was left out, or
# done twice, shows.
set -euo pipefail

steps=${1:-200}
folder=${RP_RUN_DIR:-.}/checkpoints # the same place as RP_CKPT_URL, as a path
mkdir -p "$folder"

tell() { [[ -z ${RP_EVENTS:-} ]] || printf '%s\n' "$1" >>"$RP_EVENTS"; }

tell '{"kind": "hello", "pid": '$$', "rank": 0, "world": 1}'

step=0 model=${RP_SEED:-0}
newest=$(find "$folder" -name 'step-*' | sort | tail -n 1)
if [[ ${RP_RESUME:-0} == 1 && -n $newest ]]; then
    read -r step model <"$newest"
    tell '{"kind": "restore", "step": '"$step"', "uri": "'"$newest"'"}'
fi

# SIGTERM means: save and exit. All steps before are saved, so it may just end.
while ((step < steps)); do
    step=$((step + 1))
    model=$(((model * 6364136223846793005 + 1442695040888963407 + step) & 0x7fffffffffffffff))
    sleep 0.02 # the work

    file=$(printf '%s/step-%08d' "$folder" "$step")
    echo "$step $model" >"$folder/.writing"
    sync "$folder/.writing"
    digest=$(sha256sum <"$folder/.writing")
    mv "$folder/.writing" "$file"
    echo "step $step loss 0.$((1000000 / (step + 1))) samples 8 digest ${digest%% *} in $file"
done
