#!/usr/bin/env bash
# Installs what is missing and runs every check; arguments go to pytest. Every check runs, even after
# one has failed. pytest is the last, so that its closing line is the last line; a run of no test at
# all (pytest's exit code 5) is a failure like any other.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh test
bin=$PWD/.venv/bin
export PATH=$bin:$PATH POOT_REQUIRE=${POOT_REQUIRE-vulkan,wgpu,cpu}

folders=()
for folder in src tests scripts benchmarks; do
    if [ -d "$folder" ]; then folders+=("$folder"); fi
done
failed=0
check() { # check NAME COMMAND...
    local name=$1 start=$SECONDS
    shift
    if "$@"; then echo "$name: passed in $((SECONDS - start)) s"
    else
        echo "$name: FAILED"
        failed=1
    fi
}
check "ruff check" ruff check --output-format concise --quiet "${folders[@]}"
check "ruff format" ruff format --output-format concise --quiet --check "${folders[@]}"
check "pyright" pyright --pythonpath "$bin/python"
python -m tests.support.report

code=0
run() { python -m pytest -n 2 --dist worksteal --durations=10 "$@" || code=$?; }
if [ $# -gt 0 ]; then
    run "$@"
else
    # In two parts: a process that has loaded the kernels of every suite and several compilers
    # holds very many mappings, of which the system grants a process 65530.
    run tests --ignore tests/suites --ignore tests/cases
    run tests/suites tests/cases
fi
if [ "$code" != 0 ]; then exit "$code"; fi
exit "$failed"
