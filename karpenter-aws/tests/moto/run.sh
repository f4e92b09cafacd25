#!/bin/sh
# Runs the tests on moto: an AWS on this machine. Needs Python, a registry of its packages, and 8 GB of memory to build
# the SDK. What it installs is under the target directory. Where moto cannot be had they are skipped; with
# KARPENTER_MOTO=required that is a failure.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$(cd "$here/../../.." && pwd)/target}
venv=$target/moto/venv

install() {
  [ -e "$venv/installed" ] && return
  python3 -m venv "$venv" && "$venv/bin/pip" install --quiet 'moto[server]==5.2.5' && : >"$venv/installed"
}

if ! install; then
  echo "skipped: moto cannot be installed into $venv" >&2
  [ "${KARPENTER_MOTO:-}" != required ]
  exit
fi
PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" "$here/../published/dump.py" "$target/moto-instance-types.json"
export KARPENTER_MOTO_PYTHON="$venv/bin/python"
cargo test --locked -p karpenter-aws --features replay --lib --test published --test replay --test userdata
cargo test --locked -p karpenter-aws --features replay --test moto -- --ignored "$@"
