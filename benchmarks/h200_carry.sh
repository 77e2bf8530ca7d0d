#!/usr/bin/env bash
# Collects what h200_suite.sh needs on a machine without a network: wheels in .whl for what its
# Python (3.12) lacks, in .gl Debian's loaders for Vulkan and EGL, the Vulkan validation layer and
# spirv-val, in .model the checkpoint in two pieces, and the commit in .commit.json.
# $1: a folder with pycuda's wheel, which PyPI has as source alone.
#
# A whole run is three calls on one machine, each of which carries less than 64 MiB:
#   .whl .gl .commit.json .model/part0 .model/sha256    bash benchmarks/h200_suite.sh first
#   .commit.json .model/part1                           bash benchmarks/h200_suite.sh second
#   .commit.json                                        bash benchmarks/h200_suite.sh third
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
mkdir -p .whl .gl .model

flags=(--no-deps --only-binary=:all: --python-version 3.12 --implementation cp)
for tag in any manylinux_2_28_x86_64 manylinux_2_27_x86_64 manylinux_2_17_x86_64 \
    manylinux2014_x86_64 manylinux1_x86_64; do
    flags+=(--platform "$tag")
done
"$python" -m pip download -q "${flags[@]}" -d .whl wgpu==0.32.0 vulkan cffi pycparser rendercanvas \
    gguf platformdirs pytools mako siphash24 hip-python rocm-bindings-hip rocm-bindings-core
if [ -n "${1-}" ]; then cp -f "$1"/pycuda-*cp312*.whl .whl/; fi

(cd .gl && apt-get download -q libvulkan-dev libvulkan1 libegl1 libglvnd0 libopengl0 libgl1 libglx0 libgles2)
xz -6 -c /usr/lib/x86_64-linux-gnu/libVkLayer_khronos_validation.so \
    >.gl/libVkLayer_khronos_validation.so.xz
rm -f .gl/libVkLayer_khronos_validation.so
sed 's#"library_path": *"[^"]*"#"library_path": "./libVkLayer_khronos_validation.so"#' \
    /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json \
    >.gl/VkLayer_khronos_validation.json
cp -Lf "$(command -v spirv-val)" .gl/spirv-val

model=$(PYTHONPATH=src:. "$python" -c \
    'from tests.support.smollm2 import smollm2_path; print(smollm2_path())')
head -c 40000000 "$model" >.model/part0
tail -c +40000001 "$model" >.model/part1
sha256sum "$model" | cut -d' ' -f1 >.model/sha256
PYTHONPATH=src:. "$python" -m benchmarks.record --note

# What each call carries, with the files that travel by themselves.
tree=$(git ls-files -z | du -cb --files0-from=- | tail -1 | cut -f1)
call() { # call PATHS...
    local nbytes
    nbytes=$(($(du -cb "$@" | tail -1 | cut -f1) + tree))
    echo "$* and the tree: $nbytes bytes"
    [ "$nbytes" -lt $((64 << 20)) ] || { echo "that is over 64 MiB" >&2; exit 1; }
}
call .whl .gl .commit.json .model/part0 .model/sha256
call .commit.json .model/part1
