#!/usr/bin/env bash
# A real Kubernetes with two nodes on this machine. Needs root.
#   cluster.sh up                       install and build what is missing, start what is not running, print the admin kubeconfig's path
#   cluster.sh down                     stop everything and leave nothing behind but the programs in the cache
#   cluster.sh status                   what runs; fails unless everything does
#   cluster.sh kubeconfig               print the admin kubeconfig
#   cluster.sh import ARCHIVE…          put images (OCI or Docker archives) on both nodes
#   cluster.sh enter NODE COMMAND…      run a command in a node's namespaces
#   cluster.sh kill NODE [PROGRAM]      kill -9 containerd, kubelet or kube-proxy of node1 or node2, or cut the power of the whole node
#   cluster.sh kill PROGRAM             kill -9 etcd, kube-apiserver, kube-controller-manager or kube-scheduler
#   cluster.sh start …                  start it again
# Before the command: --state DIR, where everything lives (default ${FERROVIRT_CACHE:-~/.cache/ferrovirt}/kubernetes).
# FERROVIRT_KUBERNETES_VERSION=1.34: the control plane behaves like that version, which has no image volumes unless it is told to.
# Exit status 3: no Go to build Kubernetes with. Why things are as they are is in README.md.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${FERROVIRT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ferrovirt}
bin=$cache/reference/bin
dir=$cache/kubernetes
if [ "${1:-}" = --state ]; then
  dir=$(realpath -m "${2:?--state needs a directory}")
  shift 2
fi
pki=$dir/pki
export me=kubernetes PATH=$PATH:/usr/sbin:/sbin

nodes=(node1 node2)
programs=(etcd kubectl kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy containerd containerd-shim-runc-v2 ctr pause)
control_plane=(etcd kube-apiserver kube-controller-manager kube-scheduler)
# Services are 10.96.0.0/16, in the nodes only. These are routed on the host, too:
range=10.198
host_address=$range.255.1
uplink=fvkube0
server=$host_address:6443
volumes=/tmp/hostpath_pv

# shellcheck source=SCRIPTDIR/../reference/common.sh
. "$here/../reference/common.sh"
# shellcheck source=SCRIPTDIR/network.sh
. "$here/network.sh"
# shellcheck source=SCRIPTDIR/images.sh
. "$here/images.sh"
# shellcheck source=SCRIPTDIR/node.sh
. "$here/node.sh"

step() { # step WHAT COMMAND…: says what is done, and how long it took
  local what=$1 started=$SECONDS
  shift
  say "$what …"
  "$@"
  [ $((SECONDS - started)) -lt 2 ] || say "$what: done in $((SECONDS - started)) s"
}

until_true() { # until_true SECONDS WHAT COMMAND…
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $deadline ] || fail "$what: not in time; the logs are in $dir"
    sleep 0.2
  done
}

is_node() { [[ " ${nodes[*]} " = *" $1 "* ]] || fail "unknown part '$1'; there are: ${nodes[*]} ${control_plane[*]}"; }

more_certificates() {
  local node
  issue scheduler /CN=system:kube-scheduler ca
  issue kube-proxy /CN=system:kube-proxy ca
  for node in "${nodes[@]}"; do
    issue "$node" "/O=system:nodes/CN=system:node:$node" ca "IP:$(node_address "$node"),DNS:$node"
  done
}
kubeconfigs() {
  local name
  for name in admin controller-manager scheduler kube-proxy "${nodes[@]}"; do kubeconfig "$name" "$server"; done
}

start_control_plane() {
  local port emulated=(${FERROVIRT_KUBERNETES_VERSION:+--emulated-version="$FERROVIRT_KUBERNETES_VERSION"})
  # etcd's two, kube-controller-manager, kube-scheduler
  choose_ports 27443
  port=$(cat "$dir/port")
  start_etcd "$port" $((port + 1))
  # Nodes have no names that this machine could look up, and no proxy of Services runs on it.
  start_apiserver "$port" --bind-address="$host_address" --secure-port="${server#*:}" --advertise-address="$host_address" \
    --enable-admission-plugins=NodeRestriction --kubelet-preferred-address-types=InternalIP --kubelet-certificate-authority="$pki/ca.crt" \
    --kubelet-client-certificate="$pki/admin.crt" --kubelet-client-key="$pki/admin.key" "${emulated[@]}"
  wait_for 120 "ready kube-apiserver" kube-apiserver kubectl get --raw /readyz
  start_controllers $((port + 2)) --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key" \
    --enable-hostpath-provisioner --flex-volume-plugin-dir="$dir/no-plugins" "${emulated[@]}"
  start kube-scheduler "$bin/kube-scheduler" --kubeconfig="$dir/scheduler.kubeconfig" --bind-address=127.0.0.1 --secure-port=$((port + 3)) --leader-elect=false "${emulated[@]}"
}

# The controller manager's own provisioner makes folders at a fixed place, from where both nodes mount them: every volume is shared.
storage() {
  mkdir -p "$dir/volumes"
  if [ "$(readlink $volumes)" != "$dir/volumes" ]; then
    if [ -e $volumes ] || [ -L $volumes ]; then fail "$volumes is in the way: persistent volumes are made there; remove it if nothing needs it"; fi
    ln -s "$dir/volumes" $volumes
  fi
  kubectl apply --filename - >/dev/null <<'YAML'
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: shared, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: kubernetes.io/host-path
YAML
}

no_other_cluster() {
  local other
  other=$(cat "/sys/class/net/$uplink/ifalias" 2>/dev/null || true)
  [ -z "$other" ] || [ "$other" = "$dir" ] || fail "there is room for one cluster, and there is one in $other (cluster.sh --state $other down)"
}
check_machine() {
  [ "$(id -u)" = 0 ] || fail "namespaces, mounts and cgroups need root: run this as root"
  case $dir/ in
    /run/* | /var/*) fail "--state $dir: every node has its own /run and /var, so the state has to be elsewhere" ;;
  esac
  no_other_cluster
  ! ip -4 route | grep -v "dev $uplink" | grep "^$range\." >&2 || fail "this machine has a route into $range.0.0/16, which are the addresses of the nodes and pods"
}

ready() { kubectl wait --for=condition=Ready --timeout=1s "${nodes[@]/#/node/}"; }

up() {
  local node
  check_machine
  if status >/dev/null 2>&1; then
    say "is up already"
    usage_of_cluster
    return
  fi
  "$here/../../scripts/setup.sh" kubernetes >&2
  "$here/../reference/build.sh" "${programs[@]}"
  mkdir -p "$dir"
  chmod 700 "$dir"
  step "certificates" certificates "$host_address"
  kubeconfigs
  step "network" network
  step "control plane" start_control_plane
  step "images" make_images
  for node in "${nodes[@]}"; do step "$node" start_node "$node"; done
  storage
  step "waiting for the nodes" until_true 120 "ready nodes" ready
  # Pods are refused before it exists.
  wait_for 60 "default service account" kube-controller-manager kubectl get serviceaccount default
  say "Kubernetes $(server_version) is up with ${nodes[*]}"
  usage_of_cluster
}

usage_of_cluster() {
  say "use it:  export KUBECONFIG=$dir/admin.kubeconfig; $bin/kubectl get nodes"
  echo "$dir/admin.kubeconfig"
}

# Everything is looked for where it could be, as an earlier run may have been interrupted, or its files deleted.
down() {
  local node pid
  [ "$(id -u)" = 0 ] || fail "run this as root, as it was started"
  [ ! -d "$dir" ] || [ -d "$pki" ] || fail "$dir is not a cluster's directory"
  no_other_cluster
  for node in "${nodes[@]}"; do step "stopping $node" stop_node "$node"; done
  step "stopping the control plane" stop_control_plane
  stop switch
  for pid in $(pgrep --full -- "^$bin/[a-z-]+ .*$dir/"); do kill -9 "$pid" 2>/dev/null || true; done
  for node in "${nodes[@]}"; do remove_cgroups "$node"; done
  if [ "$(readlink $volumes)" = "$dir/volumes" ]; then rm $volumes; fi
  # The kernel takes a network's last traces away a moment after its last process.
  until_true 20 "removing the network" no_uplink
  rm -rf "${dir:?}"
  say "is down"
}
stop_control_plane() {
  local program
  for program in kube-scheduler kube-controller-manager kube-apiserver etcd; do stop "$program"; done
}

status() {
  local node program missing=0
  line() { # line WHAT COMMAND…
    local what=$1
    shift
    if "$@" >/dev/null 2>&1; then echo "$what: runs"; else echo "$what: does not run"; missing=1; fi
  }
  line network network_is_up
  for program in "${control_plane[@]}"; do line "$program" alive "$program"; done
  for node in "${nodes[@]}"; do
    for program in containerd kubelet kube-proxy; do line "$node $program" pid_in_node "$node" "$program"; done
  done
  line "ready nodes" ready
  return $missing
}

in_control_plane() { [[ " ${control_plane[*]} " = *" $1 "* ]]; }
kill_part() { # kill_part NODE [PROGRAM], or kill_part PROGRAM
  if in_control_plane "$1"; then
    alive "$1" || fail "no $1 runs"
    kill -9 "$(cat "$dir/$1.pid")"
    until_true 10 "the end of $1" is_off "$1"
    return
  fi
  is_node "$1"
  if [ $# = 1 ]; then stop_node "$1"; else kill_in_node "$1" "$2"; fi
}
start_part() { # start_part NODE [PROGRAM], or start_part PROGRAM
  [ -d "$pki" ] || fail "nothing is up in $dir"
  # Each of these is of no use without the others.
  if in_control_plane "$1"; then start_control_plane; return; fi
  is_node "$1"
  if [ $# = 1 ]; then start_node "$1"; else start_program "$1" "$2"; fi
}

command=${1:-}
[ $# = 0 ] || shift
case $command:$# in
  up:0) up ;;
  down:0) down ;;
  status:0) status ;;
  kubeconfig:0) cat "$dir/admin.kubeconfig" ;;
  import:[1-9]*) for archive in "$@"; do import "$archive"; done ;;
  kill:[12]) kill_part "$@" ;;
  start:[12]) start_part "$@" ;;
  enter:[2-9]*) is_node "$1"; in_node "$@" ;;
  *) sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
