#!/bin/sh
# install_swift.sh: a Swift 6.2 toolchain for the tests of bindings/swift, as a tree of Debian's packages under .cache/swift, in which
# tools/swift.sh runs it. Debian 12 has no package of its own, and nothing of the tree is installed outside of it. Takes 4 GB.
set -eu
cd "$(dirname "$0")/.."
tree=.cache/swift
[ ! -e "$tree.ok" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" != 0 ]; then
  echo "A tree of Debian's packages is made by root on Debian. Elsewhere install Swift 6.2 or later from swift.org." >&2
  exit 1
fi
missing=""
command -v mmdebstrap >/dev/null 2>&1 || missing="$missing mmdebstrap"
command -v bwrap >/dev/null 2>&1 || missing="$missing bubblewrap"
if [ -n "$missing" ]; then
  apt-get update -qq
  # shellcheck disable=SC2086  # a list of packages
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi

# A machine may keep even root from making file systems of its own. Then the tests are skipped, and say why.
if ! unshare --mount true || ! bwrap --ro-bind / / --proc /proc --dev /dev --unshare-pid --unshare-net true; then
  echo "This machine does not let bubblewrap run, so there is no Swift here." >&2
  exit 0
fi

# The mirror of this machine's own packages. A mirror may be a copy that is older than its lists say they are good for.
# shellcheck disable=SC2016  # apt-get's own format
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -m 1 -v security)
rm -rf --one-file-system "$tree"
mkdir -p .cache
mmdebstrap --quiet --mode=root --variant=extract --aptopt='Acquire::Check-Valid-Until "false"' \
  --include=swiftlang,libc6-dev,libstdc++-15-dev,bash,coreutils,git,ca-certificates sid "$tree" "$mirror"
rm -rf "$tree"/usr/libexec/swift/bin/lldb* "$tree"/usr/libexec/swift/lib/liblldb* "$tree"/usr/share/doc "$tree"/usr/share/locale
touch "$tree.ok"
