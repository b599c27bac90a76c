#!/usr/bin/env bash
# What `make run` does: run.sh. Installs what is missing, builds, starts the local cluster and a demo guest.
# Each step is announced with how long it takes about, and says at its end how long it took, so that nobody wonders whether it hangs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ferrovirt=target/release/ferrovirt
# Measured: what a processor has to do for a build from nothing.
processor_minutes=13
steps=5 step=0 began=$SECONDS
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

minutes() { # minutes N: rounded up, in words
  if [ "$1" -le 1 ]; then echo "a minute"; else echo "$1 minutes"; fi
}
took() { if [ "$1" -lt 90 ]; then echo "$1 s"; else echo "$(($1 / 60)) min $(($1 % 60)) s"; fi; }
next() { # next WHAT HOW-LONG COMMAND…
  local what=$1 how_long=$2 at=$SECONDS
  shift 2
  step=$((step + 1))
  echo "[$step/$steps] $what: $how_long"
  "$@"
  echo "[$step/$steps] done after $(took $((SECONDS - at)))"
}

processors=$(nproc)
whole=$(minutes $(((processor_minutes + processors - 1) / processors + 1)))
if [ -x $ferrovirt ]; then building="seconds, or up to $whole when much has changed"; else building="about $whole on $processors processors, once"; fi
cluster() {
  $ferrovirt up
  for image in guest guest-kernel; do $ferrovirt images import "$made/$image.tar"; done
}

echo "Five steps to a running guest: packages, build, the guest's image, the cluster, the guest. The build takes $building."
next "packages that are missing" "seconds, or about a minute the first time" scripts/setup.sh run
next "build target/release/{ferrovirt,virtctl,virt-launcher}" "$building" make build
next "the demo guest's image, from Debian's packages" "seconds, or about a minute the first time" images/guest/build.sh "$made"
next "the local cluster" "seconds" cluster
next "the demo guest" "seconds with KVM, up to half a minute without" $ferrovirt demo
echo "All of it took $(took $((SECONDS - began)))."
