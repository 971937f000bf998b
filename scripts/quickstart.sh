#!/usr/bin/env bash
# quickstart.sh: from a fresh clone to a patched SGLang that serves, crosses the threshold both ways and is checked.
#
# Sets up .cache/ (make_env.sh), patches a copy of SGLang, starts the real server with the gate and one without
# speculation, and compares. No GPU is needed. If there is an NVIDIA GPU and PYTHON (default python3) can import your
# own sglang, a copy of that one is patched and run on the GPU instead; QUICKSTART_CPU=1 keeps to the CPU.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
release=0.5.20

own_sglang_on_gpu() {
  [ -z "${QUICKSTART_CPU:-}" ] && nvidia-smi -L >/dev/null 2>&1 &&
    "${PYTHON:-python3}" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("sglang") is None)' 2>/dev/null
}

"$root/scripts/make_env.sh" "$release"
where=(--release "$release")
if own_sglang_on_gpu; then
  where=(--gpu-python "$(command -v "${PYTHON:-python3}")")
fi
cd "$root"
exec "$root/.cache/venv/bin/python" -m scripts.quickstart "${where[@]}" "$@"
