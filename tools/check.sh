#!/bin/sh
# check.sh TARGET...: each of these targets of make, and then how many minutes each took. The first failure ends it. Targets joined by +
# run at the same time: the first next to all others, one after the other.
set -eu
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

timed() {  # target: makes it, and writes down the minutes where it succeeds
  began=$(date +%s)
  make "$1" || return 1  # said, because set -e does not hold in a condition
  echo "$1: $((($(date +%s) - began + 30) / 60)) min" >>"$logs/minutes"
}

for targets in "$@"; do
  first=${targets%%+*}
  others=$(echo "${targets#"$first"}" | tr '+' ' ')
  if [ -z "$others" ]; then
    timed "$first"
    continue
  fi
  (timed "$first") >"$logs/first" 2>&1 &
  failed=0
  for target in $others; do
    [ "$failed" = 1 ] || (timed "$target") || failed=1
  done
  wait $! || failed=1
  cat "$logs/first"
  [ "$failed" = 0 ] || exit 1
done
printf '\nminutes by target\n'
cat "$logs/minutes"
