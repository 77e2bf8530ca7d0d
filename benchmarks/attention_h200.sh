#!/usr/bin/env bash
# An attention benchmark ("decode" or "prefill", the first argument) on a machine with the card and
# no network, from what attention_carry.sh left in .decode. Results go to $OUT (here: build/NAME);
# the other arguments go to the benchmark.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1
shift
out=${OUT:-build/$name}
site=${SITE:-/tmp/decode-site}
python=${PYTHON:-python3}
mkdir -p "$out" "$site"
if [ -d .decode ] && [ ! -d "$site/platformdirs" ]; then
    "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade \
        --target "$site" .decode/*.whl
fi
if [ -d "$site/flashinfer" ] && [ -d .decode/aot ]; then
    mkdir -p "$site/flashinfer/data/aot"
    cp -r .decode/aot/. "$site/flashinfer/data/aot/"
fi
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 POOT_CACHE_DIR=/tmp/poot-cache
export FLASHINFER_CUDA_ARCH_LIST=9.0a FLASHINFER_WORKSPACE_BASE=/tmp/flashinfer
export PYTHONPATH="$PWD/src:$PWD:$site"
"$python" -m "benchmarks.$name" --out "$out" "$@" 2>&1 | tee "$out/$name.log"
