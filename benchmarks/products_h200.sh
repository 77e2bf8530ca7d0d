#!/usr/bin/env bash
# Products of few rows and whole decodes on a machine with the card and no network, in half a minute:
# results go to $OUT (here: build/products), tables last. $1: a folder with wheels of what its Python
# lacks (platformdirs).
set -euo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-build/products}
python=${PYTHON:-python3}
site=${SITE:-/tmp/products-site}
mkdir -p "$out" "$site"
if [ -n "${1-}" ]; then
    "$python" -m pip install -q --no-index --no-deps --upgrade --target "$site" "$1"/platformdirs*.whl
fi
export PYTHONUNBUFFERED=1 PYTHONPATH="$PWD/src:$PWD:$site"
"$python" -m benchmarks.gemv --out "$out" --model forms smollm2-135m --rounds 9 | tee "$out/gemv.log"
"$python" -m benchmarks.model_decode --out "$out" --models smollm2-135m llama-1b llama-8b --no-check \
    --rounds 3 | tee "$out/model-decode.log"
