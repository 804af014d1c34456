#!/bin/sh
# What the system must have before anything is installed: Python 3.11 or newer with venv, and a C compiler (a few tests
# build a small fault-injection library). Installs what is missing where apt-get exists and is allowed, else lists it.
set -eu

missing=""
python=${PYTHON:-python3}
command -v "$python" >/dev/null 2>&1 || missing="$missing python3"
"$python" -c 'import ensurepip, venv' >/dev/null 2>&1 || missing="$missing python3-venv"
command -v cc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"

if [ -n "$missing" ]; then
  if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    apt-get update -qq
    # shellcheck disable=SC2086  # a list of packages
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing
  else
    echo "Please install:$missing" >&2
    echo "On Debian or Ubuntu: sudo apt-get install$missing" >&2
    exit 1
  fi
fi

"$python" - <<'PY'
import sys
if sys.version_info < (3, 11):
    sys.exit(f"Python is {sys.version.split()[0]}; bespoke needs 3.11 or newer. Run: make PYTHON=python3.11 ...")
PY
