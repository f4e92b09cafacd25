#!/bin/sh
# Runs the tests on moto: an AWS on this machine. Needs Python, a registry of its packages, and 8 GB of memory to build
# the SDK. What it installs is under the target directory.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
venv=${CARGO_TARGET_DIR:-$here/../../../target}/moto/venv
if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet 'moto[server]==5.2.5'
fi
KARPENTER_MOTO_PYTHON="$venv/bin/python" cargo test -p karpenter-aws --features sdk --test moto -- --ignored "$@"
