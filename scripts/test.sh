#!/usr/bin/env bash
# test.sh [PYTEST ARGUMENTS]: everything that has to pass. Makes the environment, lints, checks types, runs the tests.
#
#   ./scripts/test.sh                 all of it: under 30 minutes on two cores
#   ./scripts/test.sh -m 'not e2e'    without the runs of a real SGLang: minutes
#   ./scripts/test.sh -m crash        the crash that started the project, on real SGLang
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
bin=$root/.cache/venv/bin

say() { printf '\033[36m[test]\033[0m %s\n' "$*"; }
step() { # step LABEL COMMAND...
  local label=$1
  shift
  say "$label"
  "$@" || { printf '\033[31m[test] %s failed: see above\033[0m\n' "$label" >&2; exit 1; }
}
types() { # types FOLDER SEARCH_PATH: the files of a folder that is itself on Python's path
  (cd "$1" && MYPYPATH=$2 "$bin/mypy" --config-file "$root/pyproject.toml" --explicit-package-bases .)
}

./scripts/make_env.sh 0.5.20 0.5.9 # tests fetch further releases as they need them
step 'ruff: lint' "$bin/ruff" check .
step 'ruff: format' "$bin/ruff" format --check .
step 'mypy: package' "$bin/mypy"
step 'mypy: tests' env MYPYPATH=tests/cpu_reference/site:scripts:tests/bench "$bin/mypy" --explicit-package-bases --exclude cpu_reference/site tests
step 'mypy: scripts' types scripts "$root"
step 'mypy: CPU reference' types tests/cpu_reference/site .
[ $# -gt 0 ] || step 'releases: every one downloaded, checked, patched, reverted' "$bin/python" scripts/check_releases.py
say 'pytest'
# Two at a time, a file on one of them: engines of a file share servers, and most of an engine's life is one busy core.
exec "$bin/python" -m pytest -v -n 2 --dist loadfile --durations=10 "$@"
