#!/usr/bin/env bash
# Guests outlive what runs them: faults.sh STATE FERROVIRT VIRTCTL [update]
# The cluster of cluster.sh in STATE must run, with Ferrovirt installed and the image ferrovirt.io/guest-kernel:test imported.
# Guests on both nodes count on their serial ports. Kubelets, containerd, the API server and every pod of Ferrovirt are killed, and Ferrovirt is
# updated; after each, the objects must be right again and the same QEMU processes run. At the end, no guest's count has a gap.
# Then the power of a node fails: its machine must not start elsewhere before somebody vouches that the node is off, and must start then.
# With "update", only the update is done.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${FERROVIRT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ferrovirt}/reference/bin
[ $# = 3 ] || [ "$#:${4:-}" = 4:update ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
state=$1 ferrovirt=$2 virtctl=$3
export KUBECONFIG=$state/admin.kubeconfig
names=(one two)
# shellcheck source=../checks.sh
source "$here/../checks.sh"
namespace=faults-$$
# For a component to start, see what is there and say so.
patience=90

kubectl() { "$bin/kubectl" --cache-dir "$state/kubectl" "$@"; }
k() { kubectl --namespace "$namespace" "$@"; }
cluster() { "$here/cluster.sh" --state "$state" "$@"; }
cleanup() { k delete namespace "$namespace" --timeout 120s >/dev/null 2>&1; }
trap cleanup EXIT

beats() { timeout 30 "$virtctl" --namespace "$namespace" console "$1" --log 2>/dev/null | grep -ao 'beat [0-9]*' | cut -d' ' -f2; }
counted() { beats "$1" | without_gap; }
last_beat() { beats "$1" | tail -1; }
counts() { local beat; beat=$(last_beat "$1"); [ "${beat:-0}" -gt "${2:-0}" ]; }
qemus() { local name; for name in "${names[@]}"; do pgrep --full "guest=${namespace}_$name,"; done; }
# The objects are right: every guest is Running and Ready, and so are the nodes and all of Ferrovirt.
right() {
  [ "$(k get vmi -o jsonpath='{range .items[*]}{.status.phase}{.status.conditions[?(@.type=="Ready")].status} {end}')" = "RunningTrue RunningTrue " ] \
    && k get nodes --no-headers | awk '$2 != "Ready" { exit 1 }' \
    && k -n kubevirt get pods --no-headers | awk '$2 != "1/1" { exit 1 } END { exit NR != 8 }' \
    && [ "$(k -n kubevirt get kubevirt kubevirt -o jsonpath='{.status.conditions[?(@.type=="Available")].status}')" = True ]
}
survives() { # survives COMMAND…: after it has done its harm, and again when it should have been repaired
  local before=() index=0 name
  for name in "${names[@]}"; do before+=("$(last_beat "$name")"); done
  "$@" >/dev/null 2>&1 || { echo "        $* failed"; return 1; }
  soon $patience right || { echo "        not right within $patience s:"; k get vmi,nodes; k -n kubevirt get pods; return 1; }
  [ "$(qemus)" = "$running" ] || { echo "        other QEMU processes than before"; return 1; }
  for name in "${names[@]}"; do
    soon 30 counts "$name" "${before[$index]}" || { echo "        $name no longer counts"; return 1; }
    index=$((index + 1))
  done
}
restart() { # restart NODE PROGRAM, or PROGRAM
  cluster kill "$@" && sleep 5 && cluster start "$@"
}
replace() { k -n kubevirt delete pods -l "kubevirt.io in ($1)" --wait=true; }
# To the same programs under another name: every component is replaced, the agents on the nodes first.
update() {
  local version node image
  version=$("$ferrovirt" --version | cut -d' ' -f2)
  for node in node1 node2; do
    for image in control-plane launcher; do
      cluster enter $node "$bin/ctr" --namespace k8s.io images tag --force "ferrovirt.io/$image:$version" "ferrovirt.io/$image:next" || return
    done
  done
  "$ferrovirt" manifests --tag next | kubectl apply -f - && soon 300 updated
}
updated() { # the object says so, and no component is of another version
  [ "$(k -n kubevirt get kubevirt kubevirt -o jsonpath='{.status.observedKubeVirtVersion} {.status.conditions[?(@.type=="Progressing")].status}')" = "next False" ] \
    && ! k -n kubevirt get pods -o jsonpath='{range .items[*]}{.spec.containers[0].image}{"\n"}{end}' | grep -v ':next$'
}

machine() { # a machine with such a guest, which would rather be on node2
  printf '%s\n' 'apiVersion: kubevirt.io/v1' 'kind: VirtualMachine' 'metadata: {name: always}' 'spec:' '  runStrategy: Always' '  template:'
  counting_guest always | sed -n '/^spec:/,$s/^/    /p'
  cat <<'YAML'
      affinity:
        nodeAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 100
            preference: {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node2]}]}
YAML
}
guest_of_machine() { k get vmi always -o 'jsonpath={.metadata.uid} {.status.nodeName}'; }
runs_on() { [ "$(k get vmi always -o 'jsonpath={.status.phase} {.status.nodeName}')" = "Running $1" ]; }
copies() { pgrep --full "guest=${namespace}_always," | wc -l; }
is_lost() { [ "$(k get node "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')" != True ]; }
# As Kubernetes does some minutes after a node's last word; without a kubelet the pod does not go.
evict() { k delete pods -l vm.kubevirt.io/name=always --wait=false; }
is_left_alone() { # is_left_alone GUEST: nothing begins to run within half a minute
  for _ in $(seq 30); do
    sleep 1
    [ "$(guest_of_machine)" = "$1" ] && [ "$(copies)" = 0 ] || { echo "        there is $(guest_of_machine), with $(copies) QEMU"; return 1; }
  done
}
# It ends with a code of its own when something is wrong.
why() { "$virtctl" --namespace "$namespace" why "$1" || true; }
is_whole() {
  k get nodes --no-headers | awk '$2 != "Ready" { exit 1 }' && k -n kubevirt get pods --no-headers | awk '$2 != "1/1" { exit 1 } END { exit NR != 8 }'
}
power_fails() {
  local guest vouch='node2 node.kubernetes.io/out-of-service'
  machine | k apply -f - >/dev/null || return
  soon 120 runs_on node2 || { echo "        the machine does not run on node2"; k describe vmi always; return 1; }
  guest=$(guest_of_machine)
  cluster kill node2 >/dev/null 2>&1 && soon 180 is_lost node2 || return
  evict >/dev/null || return
  check "a machine on a node that may live is left alone" is_left_alone "$guest"
  expect "and virtctl says what to do" "kubectl taint node $vouch=nodeshutdown:NoExecute" why always
  k taint node $vouch=nodeshutdown:NoExecute >/dev/null || return
  check "a node that is off for certain: it starts elsewhere" soon 180 runs_on node1
  k taint node $vouch- >/dev/null && cluster start node2 >/dev/null 2>&1 || return
  check "the node comes back" soon 180 is_whole
  expect "and there is one copy" '^1$' copies
  expect "the guest that was there has failed" '^Failed$' k get vmi two -o 'jsonpath={.status.phase}'
}

k create namespace "$namespace" >/dev/null || exit 1
soon 30 k get serviceaccount default
counting_guest one node1 | k apply -f - >/dev/null || exit 1
counting_guest two node2 | k apply -f - >/dev/null || exit 1
for name in "${names[@]}"; do soon 180 counts "$name" 5 || { echo "$name does not count"; k describe vmi "$name"; exit 1; }; done
running=$(qemus)
if [ -z "${4:-}" ]; then
  for node in node1 node2; do
    for program in kubelet containerd; do check "$program of $node is killed, and started" survives restart $node $program; done
  done
  check "kube-apiserver is killed, and started" survives restart kube-apiserver
  check "virt-handler is deleted on all nodes" survives replace virt-handler
  check "the whole control plane is deleted" survives replace virt-api,virt-controller,virt-operator
fi
check "Ferrovirt is updated" survives update
for name in "${names[@]}"; do check "$name counted without a gap" counted "$name"; done
[ -n "${4:-}" ] || power_fails || { echo "FAILED  the power of a node fails"; failed=$((failed + 1)); }
echo "$passed passed, $failed failed"
[ $failed = 0 ]
