#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build_with_ndk.sh EXECUTORCH [ABI ...]: libbespoke_core.so and libbespoke_jni.so for Android, in build/ndk/ABI (or $OUT/ABI), where the
# Gradle build takes them from. ABIs: arm64-v8a and x86_64 unless named.
#
# EXECUTORCH is a checkout of the pinned version with its submodules, which is built first, or the folder of an executorch-config.cmake.
# SQLite, libsodium and all else are pinned sources of this repository, compiled into the core. ANDROID_NDK names an NDK, r27 or newer;
# cmake, ninja and python3 are on the path (ExecuTorch's build wants its own Python packages: see its docs).
#
# The NDK does not run where this is tested: there, TOOLCHAIN names another toolchain, and the libraries are for glibc.
set -euo pipefail

[ $# -ge 1 ] || { sed -n '3,10s/^# \{0,1\}//p' "$0"; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
executorch=$(cd "$1" && pwd)
shift
[ $# -ge 1 ] || set -- arm64-v8a x86_64
out=${OUT:-$here/build/ndk}
pinned=$(sed -n 's/^executorch = \["executorch==\([0-9.]*\)"\]$/\1/p' "$root/pyproject.toml")

standin=()
if [ -n "${TOOLCHAIN:-}" ]; then
  toolchain=$TOOLCHAIN
  standin=(--glibc)
else
  : "${ANDROID_NDK:?names no NDK; get r27 or newer and set ANDROID_NDK to its folder}"
  export ANDROID_NDK
  toolchain=$ANDROID_NDK/build/cmake/android.toolchain.cmake
fi
[ -f "$toolchain" ] || { echo "$toolchain: got no such file; expected a CMake toolchain" >&2; exit 1; }

# build SOURCE BUILD ARGUMENT...: configured, compiled, and installed stripped into BUILD/installed
build() {
  local source=$1 build=$2
  shift 2
  cmake -S "$source" -B "$build" "-DCMAKE_TOOLCHAIN_FILE=$toolchain" -DCMAKE_BUILD_TYPE=Release "-DCMAKE_INSTALL_PREFIX=$build/installed" \
    "-DCMAKE_C_FLAGS=$paths" "-DCMAKE_CXX_FLAGS=$paths" "$@"
  cmake --build "$build" --parallel
}

for abi in "$@"; do
  work=$out/work/$abi
  mkdir -p "$work" "$out/$abi"
  # No path of this machine in what is shipped: sources are named as if they lay in /src.
  paths="-ffile-prefix-map=$root=/src/bespoke -ffile-prefix-map=$executorch=/src/executorch -ffile-prefix-map=$work=/src/build"
  config=$executorch
  if [ ! -f "$executorch/executorch-config.cmake" ]; then
    found=$(cat "$executorch/version.txt")
    case $found in
      "$pinned"*) ;;
      *) echo "$executorch: got ExecuTorch $found; expected $pinned. Check out v$pinned, with its submodules" >&2; exit 1 ;;
    esac
    build "$executorch" "$work/executorch" -G Ninja "-DANDROID_ABI=$abi" -DANDROID_PLATFORM=android-26 -DANDROID_STL=c++_static \
      -DBUILD_TESTING=OFF -DEXECUTORCH_PAL_DEFAULT=android -DEXECUTORCH_BUILD_XNNPACK=ON -DEXECUTORCH_BUILD_KERNELS_OPTIMIZED=ON \
      -DEXECUTORCH_BUILD_EXTENSION_DATA_LOADER=ON -DCMAKE_POSITION_INDEPENDENT_CODE=ON
    cmake --install "$work/executorch"
    config=$work/executorch/installed/lib/cmake/ExecuTorch
  fi

  build "$root/bindings/native" "$work/core" --preset "android-$abi" "-Dexecutorch_DIR=$config"
  cmake --install "$work/core" --strip
  build "$here/core" "$work/jni" -G Ninja "-DANDROID_ABI=$abi" -DANDROID_PLATFORM=android-26 -DANDROID_STL=c++_static \
    "-DBESPOKE_CORE=$work/core/installed" -DCMAKE_SKIP_RPATH=ON -DCMAKE_BUILD_TYPE=Release
  cp "$work/core/installed/lib/libbespoke_core.so" "$work/jni/libbespoke_jni.so" "$out/$abi/"
  python3 "$here/tools/check_libraries.py" "$abi" "$out/$abi" "${standin[@]}" --absent "$root" "$executorch" "$work" "$HOME/"
done
