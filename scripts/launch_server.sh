#!/usr/bin/env bash
# launch_server.sh TARGET DRAFT [SGLANG FLAGS...]: one host with 8 GPUs, a Kimi-K2.5-class target, an EAGLE-3 draft and
# the batch gate.
#
#   TARGET  the target model, DRAFT the EAGLE-3 draft trained for it: a local folder or a name your SGLang can fetch.
#           (TARGET_MODEL and DRAFT_MODEL in the environment do as well.)
#
# Further flags go through as they are; the last of a kind wins. For Kimi's chat API add
# --reasoning-parser kimi_k2 --tool-call-parser kimi_k2.
set -euo pipefail

usage() { sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; }
die() { printf '%s\n' "launch_server.sh: $*" >&2; exit 2; }

case ${1:-} in
  -h | --help) usage; exit 0 ;;
esac
target=${TARGET_MODEL:-} draft=${DRAFT_MODEL:-}
[ -n "$target" ] || { target=${1:-}; [ $# -eq 0 ] || shift; }
[ -n "$draft" ] || { draft=${1:-}; [ $# -eq 0 ] || shift; }
[[ -n $target && $target != -* ]] || { usage; die 'No target model: give it as the first argument or in TARGET_MODEL.'; }
[[ -n $draft && $draft != -* ]] || { usage; die 'No draft model: give it as the second argument or in DRAFT_MODEL.'; }

: "${PYTHON:=python3}" # the interpreter that has your SGLang
: "${GPUS:=8}"         # tensor parallelism over this host's GPUs
: "${STEPS:=3}"        # drafted tokens per step; more pays only if the draft is right more often
: "${THRESHOLD:=32}"   # a start: scripts/bench_fallback.py measures where speculation stops paying on your hardware
: "${HOST:=0.0.0.0}"
: "${PORT:=30000}"

command -v sglang-eagle3-patch >/dev/null || die 'sglang-eagle3-patch is not installed: run pip install . in this project.'
package=$("$PYTHON" -c 'import importlib.util, os; print(os.path.dirname(importlib.util.find_spec("sglang").origin))' \
  2>/dev/null) || die "$PYTHON has no SGLang: set PYTHON to the interpreter that has it."
state=$(sglang-eagle3-patch status "$package" 2>&1) || die "$state"
[[ $state == applied:* ]] || die "${state%%$'\n'*}. Patch it first: sglang-eagle3-patch apply $package"

flags=(
  --model-path "$target"
  --tp-size "$GPUS"   # weights of this class do not fit fewer; every rank takes the same decision at every step
  --trust-remote-code # models of this class bring their own configuration and tokenizer code
  --speculative-algorithm EAGLE3
  --speculative-draft-model-path "$draft"
  --speculative-num-steps "$STEPS"
  --speculative-eagle-topk 1 # a chain: the cheapest verify, and what holds up as the batch grows
  --speculative-num-draft-tokens $((STEPS + 1)) # with topk 1 it has to be the chain and the token it hangs on
  --speculative-disable-batch-threshold "$THRESHOLD" # larger batches decode plainly, smaller ones speculate; 0 is off
  --enable-metrics # the gate's mode and step counts are among them
  --host "$HOST"
  --port "$PORT"
)
set -x
exec "$PYTHON" -m sglang.launch_server "${flags[@]}" "$@"
