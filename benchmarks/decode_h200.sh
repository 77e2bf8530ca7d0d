#!/usr/bin/env bash
# The decode benchmark on a machine with the card and no network, from what decode_carry.sh left in
# .decode. Results go to $OUT (here: build/decode). Arguments go to benchmarks.decode.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-build/decode}
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
"$python" -m benchmarks.decode --out "$out" "$@" 2>&1 | tee "$out/decode.log"
