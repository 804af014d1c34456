#!/bin/sh
# check.sh TARGET...: each of these targets of make, and then how many minutes each took. The first failure ends it.
set -eu
said=""
for target in "$@"; do
  began=$(date +%s)
  make "$target"
  said="$said$target: $((($(date +%s) - began + 30) / 60)) min
"
done
printf '\nminutes by target\n%s' "$said"
