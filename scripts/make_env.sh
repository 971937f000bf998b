#!/usr/bin/env bash
# make_env.sh [RELEASE...]: what the tests and the quick start run in, all of it under .cache/ (no GPU, no root).
#
#   .cache/venv                one Python environment with torch and this project (editable): serves every release
#   .cache/sglang/RELEASE      SGLang's wheel, unpacked: a site-packages folder with one package in it
#   .cache/overlay-transformers4   older transformers for the releases that need it (first on PYTHONPATH)
#
# Without RELEASE it makes the environment for 0.5.20. A second run takes seconds.
# PYTHON names the interpreter (3.11 or 3.12). pip's own settings apply: with PIP_EXTRA_INDEX_URL at PyTorch's index of
# CPU builds the environment takes 2.4 GB; with the CUDA build that the default index has, about 8 GB.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=$root/.cache
venv=$cache/venv
log=$cache/make_env.log
releases=("${@:-0.5.20}")

# What SGLang's imports need on CPU. SGLang itself goes in without its dependencies, which are CUDA builds.
needs=(torch transformers tokenizers xgrammar openai aiohttp fastapi msgspec orjson psutil pybase64 pydantic pyzmq requests
  setproctitle uvicorn uvloop partial-json-parser prometheus-client einops interegular pillow ipython compressed-tensors
  scipy python-multipart packaging tqdm zstandard dill sentencepiece gguf triton jsonschema soundfile)

say() { printf '\033[36m[env]\033[0m %s\n' "$*" >&2; }
die() { printf '\033[31m[env] %s\033[0m\n' "$*" >&2; exit 2; }

# run LABEL COMMAND...: the command's output goes to the log; the user sees a label, a clock and, on failure, the errors.
run() {
  local label=$1 start=$SECONDS pid
  shift
  printf '\n$ %s\n' "$*" >>"$log"
  local from
  from=$(wc -l <"$log")
  "$@" >>"$log" 2>&1 &
  pid=$!
  trap 'kill "$pid" 2>/dev/null; exit 130' INT TERM
  while kill -0 "$pid" 2>/dev/null; do
    [ -t 2 ] && printf '\r\033[36m[env]\033[0m %s ... %ss ' "$label" $((SECONDS - start)) >&2
    sleep 0.5
  done
  [ -t 2 ] && printf '\r\033[K' >&2
  trap - INT TERM
  if ! wait "$pid"; then
    tail -n "+$from" "$log" | grep -i 'error' | tail -n 5 >&2 || true
    die "$label failed; the whole output is in .cache/make_env.log. Is a package registry reachable, and is there disk space?"
  fi
  say "$label: $((SECONDS - start))s"
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3.11 python3.12 python3}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  die "No Python 3.11 or 3.12 found (looked for: ${PYTHON:-python3.11, python3.12, python3}): install one, or set PYTHON to its path."
}

make_venv() {
  local python stamp
  # The stamp holds what the environment was made from, so an edited list makes it anew and nothing else does.
  stamp=$(cat "$root/pyproject.toml" "$root/scripts/constraints.txt" "${BASH_SOURCE[0]}" | sha256sum)
  if [ -x "$venv/bin/python" ] && [ "$(cat "$venv/.made-from" 2>/dev/null)" = "$stamp" ]; then
    return
  fi
  if [ ! -x "$venv/bin/python" ]; then
    python=$(find_python)
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
      die "$python has no venv module: install it (on Debian and Ubuntu: apt-get install python3-venv), then run this again."
    say "Python: $("$python" --version); 2.4 GB (a CPU build of torch) to 8 GB (a CUDA build) go to .cache/venv"
    run 'virtual environment' "$python" -m venv "$venv"
  fi
  # torch first and alone: pip then finds it installed and never looks for another one.
  run 'torch' "$venv/bin/python" -m pip install -c "$root/scripts/constraints.txt" torch
  run "SGLang's dependencies" "$venv/bin/python" -m pip install -c "$root/scripts/constraints.txt" "${needs[@]}"
  run 'this project' "$venv/bin/python" -m pip install -c "$root/scripts/constraints.txt" -e "$root[dev,bench]"
  echo "$stamp" >"$venv/.made-from"
}

fetch_tree() {
  local release=$1 tree=$cache/sglang/$1 wheel
  [ -d "$tree/sglang" ] && return
  wheel=$(wheel_of "$release")
  if [ -z "$wheel" ]; then
    run "SGLang $release: download" "$venv/bin/python" -m pip download --no-deps -d "$cache/wheels" "sglang==$release"
    wheel=$(wheel_of "$release")
  fi
  mkdir -p "$cache/sglang"
  rm -rf "$tree.part"
  run "SGLang $release: unpack" "$venv/bin/python" -m zipfile -e "$wheel" "$tree.part"
  mv "$tree.part" "$tree" # a tree is there whole or not at all
}

wheel_of() { find "$cache/wheels" -name "sglang-$1-*.whl" | head -n 1; }

make_overlay() {
  local overlay=$cache/overlay-transformers4
  grep -q '^Requires-Dist: transformers==4' "$cache/sglang/$1"/sglang-*.dist-info/METADATA || return 0
  [ -d "$overlay" ] && return
  rm -rf "$overlay.part"
  run 'transformers 4 for early releases' "$venv/bin/python" -m pip install --target "$overlay.part" --no-deps \
    transformers==4.57.1 tokenizers==0.22.2 huggingface_hub==0.36.2
  mv "$overlay.part" "$overlay"
}

mkdir -p "$cache/wheels"
touch "$log"
# Two runs at once would unpack into each other.
exec 9>"$cache/make_env.lock"
flock -n 9 || { say 'another make_env.sh is at work: waiting for it'; flock 9; }

make_venv
for release in "${releases[@]}"; do
  fetch_tree "$release"
  make_overlay "$release"
done
say "ready: .cache/venv, SGLang ${releases[*]}"
