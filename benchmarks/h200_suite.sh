#!/usr/bin/env bash
# Runs the CUDA suite on a machine with the card. Each argument is a step, run in order:
#   stash        keeps .model/part* in /tmp/poot-model (pieces may come in several calls)
#   facts        the card, the driver, the tools
#   cuda pycuda  the tests of one provider: backend, op rows, every suite on target cuda
#   vulkan wgpu  the same suites on the card's own Vulkan driver
#   sanitize     compute-sanitizer's memcheck, racecheck and initcheck over the attention suite
#   model        SmolLM2: logits, text, tokens a second, replay (benchmarks/smollm2.py)
# Logs and JSON go to $OUT (here: build/h200); a table of the steps is printed last.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-build/h200}
site=${SITE:-/tmp/poot-site}
stash=/tmp/poot-model
python=${PYTHON:-python3}
mkdir -p "$out" "$stash"
export PYTHONUNBUFFERED=1 POOT_CACHE_DIR=/tmp/poot-cache PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH="$PWD/src:$PWD:$site"

install_wheels() {
    if [ -d .whl ] && [ ! -d "$site/wgpu" ]; then
        "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade \
            --target "$site" .whl/*.whl
    fi
    if [ -d .gl ]; then
        export LD_LIBRARY_PATH="$PWD/.gl:${LD_LIBRARY_PATH-}" VK_LAYER_PATH="$PWD/.gl"
        export PATH="$PWD/.gl:$PATH"
        chmod +x .gl/spirv-val
    fi
}

# A manifest for NVIDIA's Vulkan driver, by whichever of its libraries is there.
find_icd() {
    local library
    library=$(find / -xdev \( -name 'libGLX_nvidia.so.0' -o -name 'libEGL_nvidia.so.0' \) \
        -not -path '/proc/*' 2>/dev/null | sort -r | head -1)
    [ -n "$library" ] || return 1
    export LD_LIBRARY_PATH="$(dirname "$library"):${LD_LIBRARY_PATH-}"
    printf '{"file_format_version": "1.0.0", "ICD": {"library_path": "%s", "api_version": "1.3"}}' \
        "$library" >"$out/nvidia_icd.json"
    export VK_DRIVER_FILES="$out/nvidia_icd.json" VK_ICD_FILENAMES="$out/nvidia_icd.json"
}

tests() { # tests NAME SECONDS ARGUMENTS...
    local name=$1 seconds=$2
    shift 2
    timeout --kill-after=10s "$seconds" "$python" -m pytest -p no:cacheprovider -q --maxfail=25 \
        --timeout=240 --junitxml "$out/$name.xml" "$@" >"$out/$name.log" 2>&1
}

model_path() {
    if [ ! -f "$stash/model.gguf" ] && [ -f "$stash/part0" ] && [ -f "$stash/part1" ]; then
        cat "$stash/part0" "$stash/part1" >"$stash/model.gguf"
        echo "$(cat "$stash/sha256")  $stash/model.gguf" | sha256sum --check --quiet
    fi
    [ -f "$stash/model.gguf" ]
}

step_stash() {
    for piece in .model/*; do if [ -f "$piece" ]; then cp -f "$piece" "$stash/"; fi; done
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

suites=(tests/suites tests/codegen tests/test_session.py)
step_cuda() { POOT_CUDA_PROVIDER=cuda-bindings tests cuda 500 tests/backends/cuda "${suites[@]}" -k cuda; }
step_pycuda() { POOT_CUDA_PROVIDER=pycuda tests pycuda 500 tests/backends/cuda "${suites[@]}" -k cuda; }
step_vulkan() { find_icd && tests vulkan 500 tests/backends/vulkan "${suites[@]}" -k vulkan; }
step_wgpu() { find_icd && tests wgpu 500 tests/backends/wgpu "${suites[@]}" -k wgpu; }

step_sanitize() {
    local tool failed=0
    for tool in memcheck racecheck initcheck; do
        timeout --kill-after=10s 170 compute-sanitizer --tool "$tool" --error-exitcode 99 \
            --target-processes all "$python" -m pytest -p no:cacheprovider -q --timeout=160 \
            tests/suites -k "cuda and attention" >"$out/$tool.log" 2>&1 || failed=1
        echo "$tool: $(grep -c '=========     at' "$out/$tool.log" || true) reports;" \
            "$(grep 'ERROR SUMMARY\|RACECHECK SUMMARY' "$out/$tool.log" | tail -1)"
    done
    return $failed
}

step_model() {
    model_path || { echo "no model: stash its pieces first"; return 1; }
    timeout --kill-after=10s 500 "$python" -m benchmarks.smollm2 --target cuda:0 \
        --model "$stash/model.gguf" --out "$out/smollm2.json" >"$out/model.log" 2>&1
}

install_wheels
rows=()
failed=0
for step in "$@"; do
    start=$SECONDS
    if "step_$step"; then word=passed; else word=FAILED failed=1; fi
    rows+=("$(printf '%-10s %-8s %4d s' "$step" "$word" $((SECONDS - start)))")
    tail -n 25 "$out/$step.log" 2>/dev/null || true
done
printf '{%s}\n' "$(printf '"%s",' "${rows[@]}" | sed 's/,$//; s/"\([a-z]*\) *\([A-Za-z]*\) *\([0-9]*\) s"/"\1": ["\2", \3]/g')" >"$out/steps.json"
printf '%s\n' "----" "${rows[@]}"
exit $failed
