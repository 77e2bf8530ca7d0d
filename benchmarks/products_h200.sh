#!/usr/bin/env bash
# Products of few and of many rows and whole decodes on a machine with the card and no network: results
# go to $OUT (here: build/products), tables last. $1: a folder with wheels of what its Python lacks
# (platformdirs, gguf, tokenizers). $2: "gemm" for products of many rows alone, "gemv" for the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-build/products}
python=${PYTHON:-python3}
site=${SITE:-/tmp/products-site}
mkdir -p "$out" "$site"
if [ -n "${1-}" ]; then
    "$python" -m pip install -q --no-index --no-deps --upgrade --target "$site" "$1"/*.whl
fi
export PYTHONUNBUFFERED=1 PYTHONPATH="$PWD/src:$PWD:$site"
part=${2-all}
if [ "$part" != gemv ]; then
    "$python" -m benchmarks.gemm --out "$out" --rounds 5 | tee "$out/gemm.log"
fi
if [ "$part" = gemm ]; then exit; fi
"$python" -m benchmarks.gemv --out "$out" --model forms smollm2-135m --rounds 9 | tee "$out/gemv.log"
"$python" -m benchmarks.model_decode --out "$out" --models smollm2-135m llama-1b llama-8b --no-check \
    --rounds 3 | tee "$out/model-decode.log"
