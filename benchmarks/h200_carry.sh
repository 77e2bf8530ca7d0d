#!/usr/bin/env bash
# Collects what h200_suite.sh needs on a machine without a network: wheels in .whl for what its
# Python (3.12) lacks, in .gl Debian's loaders for Vulkan and EGL, the Vulkan validation layer and
# spirv-val, and in .model the checkpoint in two pieces.
# $1: a folder with pycuda's wheel, which PyPI has as source alone.
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
cp -Lf /usr/lib/x86_64-linux-gnu/libVkLayer_khronos_validation.so .gl/
sed 's#"library_path": *"[^"]*"#"library_path": "./libVkLayer_khronos_validation.so"#' \
    /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json \
    >.gl/VkLayer_khronos_validation.json
cp -Lf "$(command -v spirv-val)" .gl/spirv-val

model=$(PYTHONPATH=src:. "$python" -c \
    'from tests.support.smollm2 import smollm2_path; print(smollm2_path())')
split -n 2 -d -a 1 "$model" .model/part
sha256sum "$model" | cut -d' ' -f1 >.model/sha256
du -sh .whl .gl .model
