#!/usr/bin/env bash
# A real etcd, kube-apiserver and kube-controller-manager on loopback: the judge of our API suite.
#   reference.sh up [DIR]           start what is not running, wait until it is ready, print the admin kubeconfig's path
#   reference.sh down [DIR]         stop everything and remove DIR
#   reference.sh kubeconfig [DIR]   print the admin kubeconfig
# DIR is ${FERROVIRT_CACHE:-~/.cache/ferrovirt}/reference/state when not given. build.sh makes the programs.
set -euo pipefail

cache=${FERROVIRT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ferrovirt}/reference
bin=$cache/bin
export me=reference
command=${1:-}
dir=${2:-$cache/state}
case $dir in /*) ;; *) dir=$PWD/$dir ;; esac
pki=$dir/pki

# Only the controllers whose work our own server does too: a Deployment, say, is a plain object on both.
controllers=${FERROVIRT_REFERENCE_CONTROLLERS:-garbage-collector-controller,namespace-controller,serviceaccount-controller,serviceaccount-token-controller,root-ca-certificate-publisher-controller,clusterrole-aggregation-controller,disruption-controller,resourcequota-controller,persistentvolume-binder-controller,persistentvolumeclaim-protection-controller,persistentvolume-protection-controller}

# shellcheck source=SCRIPTDIR/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# Users without any rights of their own, for those who want to see RBAC from outside.
more_certificates() { printf '%s\n' 'alice-token,alice,alice-uid,developers' 'nobody-token,nobody,nobody-uid' >tokens.csv; }

up() {
  local program port
  for program in etcd kube-apiserver kube-controller-manager kubectl; do
    [ -x "$bin/$program" ] || fail "$bin/$program is missing; tests/reference/build.sh builds it"
  done
  mkdir -p "$dir"
  chmod 700 "$dir"
  # kube-apiserver, etcd's two, kube-controller-manager
  choose_ports "${FERROVIRT_REFERENCE_PORT:-26443}"
  port=$(cat "$dir/port")
  certificates 127.0.0.1
  kubeconfig admin "127.0.0.1:$port"
  kubeconfig controller-manager "127.0.0.1:$port"
  start_etcd $((port + 1)) $((port + 2))
  # The advertised address only has to be one that is not loopback: nothing dials it here. This one is set aside for documents.
  start_apiserver $((port + 1)) --bind-address=127.0.0.1 --secure-port="$port" --advertise-address=192.0.2.1 --token-auth-file="$pki/tokens.csv"
  wait_for 120 "ready kube-apiserver" kube-apiserver kubectl get --raw /readyz
  start_controllers $((port + 3)) --controllers="$controllers" --concurrent-namespace-syncs=30
  wait_for 60 "default service account" kube-controller-manager kubectl get serviceaccount default
  say "Kubernetes $(server_version) is ready on 127.0.0.1:$port"
  echo "$dir/admin.kubeconfig"
}

down() {
  local name
  [ -d "$dir" ] || return 0
  [ -f "$dir/port" ] || fail "$dir is not a reference cluster's directory"
  for name in kube-controller-manager kube-apiserver etcd; do stop "$name"; done
  rm -rf "${dir:?}"
}

case $command in
  up) up ;;
  down) down ;;
  kubeconfig) cat "$dir/admin.kubeconfig" ;;
  *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
