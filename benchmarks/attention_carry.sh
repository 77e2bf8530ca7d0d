#!/usr/bin/env bash
# Collects in .decode what attention_h200.sh needs on a machine without a network: platformdirs, and as
# a peer FlashInfer with two of its modules for each width, compiled here for sm_90a (nvcc and a few
# minutes). $1: "modules" to compile them too; what is there is kept.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
version=0.6.6
mkdir -p .decode/aot
flags=(--no-deps --only-binary=:all: --python-version 3.12 --implementation cp)
for tag in any manylinux_2_28_x86_64 manylinux_2_17_x86_64 manylinux2014_x86_64; do
    flags+=(--platform "$tag")
done
"$python" -m pip download -q "${flags[@]}" -d .decode platformdirs \
    "flashinfer-python==$version" apache-tvm-ffi

if [ "${1-}" = modules ]; then
    site=$(mktemp -d)
    "$python" -m pip install -q --no-deps --target "$site" "flashinfer-python==$version" \
        apache-tvm-ffi nvidia-ml-py tabulate
    # The driver's library is of the machine with the card: its name is enough to link.
    : >"$site/none.c"
    gcc -shared -o "$site/libcuda.so" -Wl,-soname,libcuda.so.1 "$site/none.c"
    FLASHINFER_WORKSPACE_BASE=$site FLASHINFER_CUDA_ARCH_LIST=9.0a MAX_JOBS=${MAX_JOBS:-2} \
        LIBRARY_PATH="$site:/usr/local/cuda/lib:/usr/local/cuda/lib64" PYTHONPATH="$site" \
        "$python" - <<'PY'
import torch
from flashinfer.jit.attention.modules import (
    gen_batch_decode_module,
    gen_batch_mla_module,
    gen_batch_prefill_module,
)

b = torch.bfloat16
for width in (128, 64, 256):
    types = (b, b, b, torch.int32, width, width, 0, False, False)
    gen_batch_decode_module(*types).build(False)
    gen_batch_prefill_module("fa2", *types, False).build(False)
gen_batch_mla_module("fa3", b, b, b, torch.int32, 512, 64, False).build(False)
PY
    for built in "$site"/.cache/flashinfer/*/*/cached_ops/*/*.so; do
        name=$(basename "$built" .so)
        mkdir -p ".decode/aot/$name" && cp "$built" ".decode/aot/$name/"
    done
fi
du -sh .decode
