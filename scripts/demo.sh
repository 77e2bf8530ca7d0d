#!/usr/bin/env bash
# Installs what is missing and runs the demo; arguments go to `poot demo`.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh demo
exec .venv/bin/poot demo "$@"
