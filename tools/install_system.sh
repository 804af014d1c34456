#!/bin/sh
# What the system must have before anything is installed: Python 3.11 or newer with venv, and what the device core is compiled
# with. Installs what is missing where apt-get exists and is allowed, else lists it. Without Python nothing works, so the script
# fails; without a compiler the Python part is installed alone, so the script only reports them.
set -eu

python=${PYTHON:-python3}
needed=""
"$python" -c 'import ensurepip, venv' >/dev/null 2>&1 || needed="python3 python3-venv"

core=""
command -v c++ >/dev/null 2>&1 && command -v cc >/dev/null 2>&1 || core="$core g++"
command -v cmake >/dev/null 2>&1 || core="$core cmake"
command -v ninja >/dev/null 2>&1 || core="$core ninja-build"

# For tests alone, each of which says what it lacks where it is skipped.
tests=""
[ -e /usr/include/doctest/doctest.h ] || tests="$tests doctest-dev"
command -v aarch64-linux-gnu-g++ >/dev/null 2>&1 || tests="$tests g++-aarch64-linux-gnu"
command -v qemu-aarch64-static >/dev/null 2>&1 || tests="$tests qemu-user-static"
command -v clang++ >/dev/null 2>&1 || tests="$tests clang"
command -v llvm-cov >/dev/null 2>&1 || tests="$tests llvm"
ls /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer*.a >/dev/null 2>&1 || tests="$tests libclang-rt-14-dev"
command -v chromium >/dev/null 2>&1 || tests="$tests chromium"

# install NAME...: all of them, or 1 where that is not possible here
install() {
  command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ] || return 1
  [ -n "${updated:-}" ] || apt-get update -qq || return 1
  updated=yes
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# shellcheck disable=SC2086  # lists of packages
if [ -n "$needed" ] && ! install $needed; then
  echo "Please install: $needed" >&2
  echo "On Debian or Ubuntu: sudo apt-get install $needed" >&2
  exit 1
fi
# shellcheck disable=SC2086
if [ -n "$core" ] && ! install $core; then
  echo "The device core cannot be compiled without:$core" >&2
  echo "On Debian or Ubuntu: sudo apt-get install$core; then make install again. Until then training runs on torch." >&2
fi
for package in $tests; do # one by one: what one release does not have must not keep the others away
  install "$package" || echo "Some tests will be skipped without $package" >&2
done

"$python" - <<'PY'
import sys
if sys.version_info < (3, 11):
    sys.exit(f"Python is {sys.version.split()[0]}; bespoke needs 3.11 or newer. Run: make PYTHON=python3.11 ...")
PY
