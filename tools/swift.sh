#!/bin/sh
# swift.sh COMMAND...: runs a command of Swift's toolchain, in the tree of tools/install_swift.sh where there is one, else in this
# machine. In the tree it sees of this machine the checkout, /tmp and $BESPOKE_CORE, may write to .cache/swift_build and /tmp, and has no
# network. With BESPOKE_SERVERS=1 it has this machine's, for tests with a server here, and trusts the certificates in $BESPOKE_CA_FILE.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$here/.cache/swift_build"
tree=$here/.cache/swift
if [ ! -e "$tree.ok" ]; then
  exec "$@"
fi
network=--unshare-net
[ -z "${BESPOKE_SERVERS:-}" ] || network=--share-net
if [ -n "${BESPOKE_CA_FILE:-}" ]; then
  set -- --tmpfs /etc/ssl/certs --ro-bind "$BESPOKE_CA_FILE" /etc/ssl/certs/ca-certificates.crt "$@"
fi
exec bwrap --tmpfs / --ro-bind "$tree/usr" /usr --ro-bind "$tree/etc" /etc --symlink usr/bin /bin --symlink usr/lib /lib \
  --symlink usr/lib64 /lib64 --proc /proc --dev /dev --bind /tmp /tmp --ro-bind "$here" "$here" \
  --ro-bind "${BESPOKE_CORE:-$here}" "${BESPOKE_CORE:-$here}" --bind "$here/.cache/swift_build" "$here/.cache/swift_build" \
  --unshare-pid $network --die-with-parent --setenv PATH /usr/libexec/swift/bin:/usr/bin:/bin --setenv HOME /tmp \
  --setenv LANG C.UTF-8 --setenv SWIFT_BACKTRACE enable=no "$@"
