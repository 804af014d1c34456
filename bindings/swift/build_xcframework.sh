#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build_xcframework.sh EXECUTORCH [PLATFORM ...]: CBespoke.xcframework next to this script, which Package.swift takes on a Mac: the core as
# a static framework for each of ios, ios-simulator and macos (all three unless named), arm64.
#
# EXECUTORCH is a checkout of the version that pyproject.toml pins, with its submodules, which is built first: the runtime, the data
# loader, the thread pool, the XNNPACK delegate, and optimized_native_cpu_ops_lib, which has every ATen operator of ExecuTorch. Our own
# operators are in the core (sdk/bespoke/ops/operators.py). The Python wheel has the runtime of the system that it was installed on, and
# none for iOS. Xcode 26 or later, cmake, ninja and python3 are on the path (ExecuTorch's build wants its own Python packages: see its
# docs).
#
# All that the core is made of is linked into one object, in which the header's functions alone are visible (bindings/native/cmake/
# static.cmake; tests link the same object on Linux). Nobody has run this script on a Mac yet.
set -euo pipefail

[ $# -ge 1 ] || { sed -n '3,14s/^# \{0,1\}//p' "$0"; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
executorch=$(cd "$1" && pwd)
shift
[ $# -ge 1 ] || set -- ios ios-simulator macos
out=${OUT:-$here/build/apple}

pinned=$(sed -n 's/^executorch = \["executorch==\([0-9.]*\)"\]$/\1/p' "$root/pyproject.toml")
found=$(cat "$executorch/version.txt")
case $found in
  "$pinned"*) ;;
  *) echo "$executorch: got ExecuTorch $found; expected $pinned. Check out v$pinned, with its submodules" >&2; exit 1 ;;
esac
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$root/sdk/bespoke/version.py")

# configure SOURCE BUILD ARGUMENT...: for the platform at hand. CMAKE_SYSTEM_PROCESSOR chooses the kernels, and iOS leaves it empty.
configure() {
  local source=$1 build=$2
  shift 2
  # No path of this machine in what is shipped: sources are named as if they lay in /src.
  local paths="-ffile-prefix-map=$root=/src/bespoke -ffile-prefix-map=$executorch=/src/executorch -ffile-prefix-map=$work=/src/build"
  cmake -S "$source" -B "$build" -G Ninja "${target[@]}" -DCMAKE_BUILD_TYPE=Release -DCMAKE_OSX_ARCHITECTURES=arm64 \
    -DCMAKE_SYSTEM_PROCESSOR=arm64 -DCMAKE_MACOSX_BUNDLE=OFF "-DCMAKE_C_FLAGS=$paths" "-DCMAKE_CXX_FLAGS=$paths" "$@"
}

# framework FOLDER: what Xcode takes for CBespoke, with the library, the headers and the privacy manifest.
framework() {
  local inside=$1 resources=$1
  if [ "$platform" = macos ]; then  # frameworks of macOS have versions
    inside=$1/Versions/A
    resources=$inside/Resources
    mkdir -p "$resources"
    ln -sfn A "$1/Versions/Current"
    for name in CBespoke Headers Modules Resources; do ln -sfn "Versions/Current/$name" "$1/$name"; done
  fi
  mkdir -p "$inside/Headers" "$inside/Modules"
  cp "$work/core/libbespoke_static.a" "$inside/CBespoke"
  cp "$root"/bindings/native/include/bespoke*.h "$inside/Headers/"
  sed 's/^module/framework module/' "$root/bindings/native/include/module.modulemap" > "$inside/Modules/module.modulemap"
  cp "$root/bindings/native/PrivacyInfo.xcprivacy" "$resources/"
  cat > "$resources/Info.plist" <<PLIST
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>CFBundleExecutable</key><string>CBespoke</string>
  <key>CFBundleIdentifier</key><string>dev.bespoke.CBespoke</string>
  <key>CFBundleInfoDictionaryVersion</key><string>6.0</string>
  <key>CFBundleName</key><string>CBespoke</string>
  <key>CFBundlePackageType</key><string>FMWK</string>
  <key>CFBundleShortVersionString</key><string>$version</string>
  <key>CFBundleVersion</key><string>$version</string>
  <key>$least_key</key><string>$least</string>
</dict>
</plist>
PLIST
}

frameworks=()
for platform in "$@"; do
  work=$out/$platform
  least_key=MinimumOSVersion
  least=17.0
  case $platform in
    ios) target=(-DCMAKE_SYSTEM_NAME=iOS -DCMAKE_OSX_SYSROOT=iphoneos) ;;
    ios-simulator) target=(-DCMAKE_SYSTEM_NAME=iOS -DCMAKE_OSX_SYSROOT=iphonesimulator) ;;
    macos) target=(-DCMAKE_SYSTEM_NAME=Darwin -DCMAKE_OSX_SYSROOT=macosx) least_key=LSMinimumSystemVersion least=14.0 ;;
    *) echo "$platform: expected ios, ios-simulator or macos" >&2; exit 2 ;;
  esac
  target+=("-DCMAKE_OSX_DEPLOYMENT_TARGET=$least")
  mkdir -p "$work"

  configure "$executorch" "$work/executorch" "-DCMAKE_INSTALL_PREFIX=$work/executorch/installed" -DBUILD_TESTING=OFF \
    -DEXECUTORCH_BUILD_XNNPACK=ON -DEXECUTORCH_BUILD_KERNELS_OPTIMIZED=ON -DEXECUTORCH_BUILD_EXTENSION_DATA_LOADER=ON \
    -DCMAKE_POSITION_INDEPENDENT_CODE=ON
  cmake --build "$work/executorch" --parallel
  cmake --install "$work/executorch"

  configure "$root/bindings/native" "$work/core" "-Dexecutorch_DIR=$work/executorch/installed/lib/cmake/ExecuTorch"
  cmake --build "$work/core" --parallel --target bespoke_static

  visible=$(nm -gU "$work/core/libbespoke_static.a" | awk 'NF == 3 && $3 !~ /^_bespoke_/ {print $3}')
  [ -z "$visible" ] || { printf '%s: symbols that are not of the header are visible:\n%s\n' "$work" "$visible" >&2; exit 1; }
  rm -rf "$work/CBespoke.framework"
  framework "$work/CBespoke.framework"
  frameworks+=(-framework "$work/CBespoke.framework")
done

rm -rf "$here/CBespoke.xcframework"
xcodebuild -create-xcframework "${frameworks[@]}" -output "$here/CBespoke.xcframework"
