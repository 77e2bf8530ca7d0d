#!/usr/bin/env bash
# Attention's benchmarks on a machine with the card and no network, from what attention_carry.sh
# left in .decode. The first argument is "decode", "prefill", "coded" (caches of codes, windows) or
# "attention_checks", and the others go to it; or it is "all": the checks, then prefill, then decode, in about four minutes. Results go to
# $OUT (here: build/NAME).
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
run() { # run NAME ARGUMENTS...
    local name=$1
    shift
    "$python" -m "benchmarks.$name" --out "$out" "$@" 2>&1 | tee "$out/$name.log"
}
if [ "$name" = all ]; then
    run attention_checks --seconds 120
    run prefill --seconds 110
    run decode --no-checks --seconds 90
else
    run "$name" "$@"
fi
