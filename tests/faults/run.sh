#!/usr/bin/env bash
# kill -9 of the cluster's processes leaves every guest running: run.sh FERROVIRT STATE KUBECTL
# The local cluster in STATE must run, with the image ferrovirt.io/guest-kernel:test imported.
# Three guests count on their serial ports. The node, the control plane, the supervisor and all at once are killed; after each, the objects
# must be right again within 10 s and the same QEMU processes run. At the end, no guest's count has a gap.
# Then the cluster is stopped as users do it: a machine that shall always run is powered off, and runs again after the next start.
set -uo pipefail
ferrovirt=$1 state=$2 kubectl=$3
export KUBECONFIG=$state/kubeconfig
names=(one two three)
# shellcheck source=../checks.sh
source "$(dirname "${BASH_SOURCE[0]}")/../checks.sh"
namespace=faults-$$

k() { "$kubectl" --namespace "$namespace" "$@"; }
cleanup() { "$kubectl" delete namespace "$namespace" --timeout 60s >/dev/null 2>&1; }
trap cleanup EXIT

pid_in() { cut -d' ' -f1 "$1/process"; }
uid_of() { k get vmi "$1" -o jsonpath='{.metadata.uid}'; }
serial() { k exec "$(k get pods -l "kubevirt.io/created-by=$(uid_of "$1")" -o name)" -- cat "/var/run/kubevirt-private/$(uid_of "$1")/virt-serial0-log"; }
beats() { serial "$1" | grep -ao 'beat [0-9]*' | cut -d' ' -f2; }
counted() { beats "$1" | without_gap; }
counts() { [ "$(beats "$1" | tail -1)" -gt "${2:-0}" ]; }
qemus() { for name in "${names[@]}"; do pgrep -f "guest=${namespace}_$name,"; done; }
# The objects are right: every guest is Running and Ready on a node that is.
right() {
  [ "$(k get vmi -o jsonpath='{range .items[*]}{.status.phase}{.status.conditions[?(@.type=="Ready")].status} {end}')" = "RunningTrue RunningTrue RunningTrue " ] \
    && "$kubectl" get nodes --no-headers | awk '$2 != "Ready" { exit 1 }' && counts one 0
}
survives() { # survives NAME PID…: after kill -9 of these processes
  local name=$1 before
  shift
  before=$(for guest in "${names[@]}"; do beats "$guest" | tail -1; done | tr '\n' ' ')
  kill -9 "$@"
  # Without its supervisor nothing starts what was killed: that is what up does.
  "$ferrovirt" up --state "$state" >/dev/null || return 1
  soon 10 right || { echo "        not right within 10 s:"; k get vmi; return 1; }
  [ "$(qemus)" = "$running" ] || { echo "        other QEMU processes than before"; return 1; }
  local index=0 guest
  for guest in $before; do
    soon 10 counts "${names[$index]}" "$guest" || { echo "        ${names[$index]} no longer counts"; return 1; }
    index=$((index + 1))
  done
}
machine() { # such a guest as a machine that shall always run
  printf '%s\n' 'apiVersion: kubevirt.io/v1' 'kind: VirtualMachine' 'metadata: {name: always}' 'spec:' '  runStrategy: Always' '  template:'
  counting_guest always | sed -n '/^spec:/,$s/^/    /p'
}
begins() { machine | k apply -f - >/dev/null && k wait vmi always --for condition=Ready --timeout 60s >/dev/null; }
stops_and_starts() {
  soon 20 begins || { echo "        the machine does not run"; return 1; }
  local before
  before=$(uid_of always)
  "$ferrovirt" down --state "$state" >/dev/null || return 1
  ! pgrep -f "guest=${namespace}_" >/dev/null || { echo "        a guest was left running"; return 1; }
  "$ferrovirt" up --state "$state" >/dev/null || return 1
  soon 60 k wait vmi always --for condition=Ready --timeout 10s || { echo "        the machine does not run again"; k get vm,vmi,pods; return 1; }
  [ "$(uid_of always)" != "$before" ]
}

"$kubectl" create namespace "$namespace" >/dev/null || exit 1
for name in "${names[@]}"; do counting_guest "$name" | k apply -f - >/dev/null || exit 1; done
for name in "${names[@]}"; do soon 120 counts "$name" 5 || { echo "$name does not count"; k describe vmi "$name"; exit 1; }; done
running=$(qemus)
nodes=("$state"/nodes/*/)
node=$(pid_in "${nodes[0]}")
check "the node process and its virt-handler" survives node "$node"
check "the control plane" survives control-plane "$(pid_in "$state")"
check "the supervisor" survives supervisor "$(pid_in "$state/supervisor")"
everything=("$(pid_in "$state/supervisor")" "$(pid_in "$state")")
for node in "${nodes[@]}"; do everything+=("$(pid_in "$node")"); done
check "all at once" survives everything "${everything[@]}"
for name in "${names[@]}"; do check "$name counted without a gap" counted "$name"; done
check "a machine that always runs is stopped and started with the cluster" stops_and_starts
echo "$passed passed, $failed failed"
[ $failed = 0 ]
