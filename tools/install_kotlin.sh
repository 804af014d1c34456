#!/bin/sh
# What the tests of Kotlin and Android need beside what install_system.sh installs: a JDK 17, Maven, CMake, Android's tools for resources
# and signatures, and shellcheck. Everything else comes from Maven. Installs what is missing where apt-get exists and is allowed, else lists it.
set -eu

missing=""
command -v javac >/dev/null 2>&1 || missing="$missing openjdk-17-jdk-headless"
command -v mvn >/dev/null 2>&1 || missing="$missing maven"
command -v cmake >/dev/null 2>&1 || missing="$missing cmake"
command -v aapt2 >/dev/null 2>&1 || missing="$missing aapt"
command -v apksigner >/dev/null 2>&1 || missing="$missing apksigner"
command -v shellcheck >/dev/null 2>&1 || missing="$missing shellcheck"
[ -n "$missing" ] || exit 0

if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
  apt-get update -qq
  # shellcheck disable=SC2086  # a list of packages
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
  echo "Please install:$missing" >&2
  exit 1
fi
