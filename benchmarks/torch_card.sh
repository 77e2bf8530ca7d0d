#!/usr/bin/env bash
# What of poot in a torch program needs a card, in under two minutes: the marked tests of the ops, of
# arrays and of the device's lifetimes, then benchmarks/torch_graph.py. Wheels that the machine lacks
# lie in $WHEELS; results go to $OUT (here: build/torch).
set -euo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-build/torch}
site=${SITE:-/tmp/poot-site}
python=${PYTHON:-python3}
mkdir -p "$out" "$site"
if [ -n "${WHEELS-}" ]; then
    "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade \
        --target "$site" "$WHEELS"/*.whl
fi
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 POOT_CACHE_DIR=/tmp/poot-cache
export PYTHONPATH="$PWD/src:$PWD:$site" POOT_CUDA_PROVIDER=cuda-bindings
failed=0
timeout --kill-after=5s 60 "$python" -m pytest -p no:cacheprovider -q --tb=short --show-capture=no --timeout=30 \
    --junitxml "$out/tests.xml" tests/frontends/torch tests/backends/cuda/test_array.py \
    tests/backends/test_cuda.py tests/test_foreign_array.py \
    -m cuda -k "not pycuda" >"$out/tests.log" 2>&1 || failed=1
timeout --kill-after=5s 60 "$python" -m benchmarks.torch_graph --out "$out/torch.json" \
    >"$out/torch.log" 2>&1 || failed=1
tail -n 40 "$out/tests.log"
tail -n 12 "$out/torch.log"
exit $failed
