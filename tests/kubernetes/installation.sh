#!/usr/bin/env bash
# Installs Ferrovirt on a running cluster of cluster.sh and removes it again, as docs/install.md says, and looks at what is there then:
#   installation.sh install STATE FERROVIRT VIRTCTL    the images have been imported
#   installation.sh remove STATE FERROVIRT VIRTCTL     with a machine that runs; afterwards nothing may be left
# With INSTALLER=helm in the environment it is done by the Helm chart, else by the manifests.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${FERROVIRT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ferrovirt}/reference/bin
[ $# = 4 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
what=$1 state=$2 ferrovirt=$3 virtctl=$4
export KUBECONFIG=$state/admin.kubeconfig
# shellcheck source=../checks.sh
source "$here/../checks.sh"

kubectl() { "$bin/kubectl" --cache-dir "$state/kubectl" "$@"; }
helm() { HELM_CACHE_HOME=$state/helm HELM_CONFIG_HOME=$state/helm HELM_DATA_HOME=$state/helm "$bin/helm" --namespace kubevirt "$@"; }
with_helm() { [ "${INSTALLER:-}" = helm ]; }
ready_pods() { # how many pods of a component are ready, and on how many nodes
  kubectl -n kubevirt get pods -l "kubevirt.io=$1" -o jsonpath='{range .items[?(@.status.phase=="Running")]}{.spec.nodeName} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}' \
    | awk '$2 == "True" { pods++; nodes[$1] } END { print pods + 0, length(nodes) }'
}
conditions() { kubectl -n kubevirt get kubevirt kubevirt -o jsonpath='{range .status.conditions[*]}{.type}={.status}: {.message}{"\n"}{end}'; }

apply_manifests() { "$ferrovirt" manifests | kubectl apply -f -; }
install_chart() {
  "$here/../reference/build.sh" helm && kubectl create namespace kubevirt \
    && kubectl label namespace kubevirt pod-security.kubernetes.io/enforce=privileged && helm install ferrovirt "$here/../../charts/ferrovirt"
}
install() {
  if with_helm; then install_chart; else apply_manifests; fi || return
  kubectl wait crd kubevirts.kubevirt.io --for condition=Established || return
  kubectl -n kubevirt wait kubevirt kubevirt --for create --timeout 5m || return
  if ! kubectl -n kubevirt wait kubevirt kubevirt --for condition=Available --timeout 10m; then
    conditions
    kubectl -n kubevirt get pods -o wide
    return 1
  fi
  for component in virt-operator virt-api virt-controller virt-handler; do
    expect "$component: one on each node" '^2 2$' ready_pods $component
  done
  expect "the aggregated API, through the API server" '"name":"virtualmachineinstances/console"' kubectl get --raw /apis/subresources.kubevirt.io/v1
  expect "virtctl reaches it" 'Server' "$virtctl" version
  expect "what is wrong is refused" 'spec.domain.memory' refused
  expect "nodes take guests" '^true true $' kubectl get nodes -o 'jsonpath={range .items[*]}{.metadata.labels.kubevirt\.io/schedulable} {end}'
  expect "kubelets offer devices" '^1k 1k $' kubectl get nodes -o 'jsonpath={range .items[*]}{.status.allocatable.devices\.kubevirt\.io/tun} {end}'
  local wish='{"resourceType": "Deployment", "resourceName": "virt-api", "type": "merge", "patch": "{\"metadata\": {\"annotations\": {\"team\": \"a\"}}}"}'
  customize "{\"patches\": [$wish]}"
  expect "what users change of it" '^a$' team_of_virt_api
  customize null
  expect "and change back" '^$' team_of_virt_api
}
customize() { kubectl -n kubevirt patch kubevirt kubevirt --type merge --patch "{\"spec\": {\"customizeComponents\": $1}}"; }
team_of_virt_api() { kubectl -n kubevirt get deployment virt-api -o 'jsonpath={.metadata.annotations.team}'; }
refused() { ! kubectl create -f - 2>&1 <<<'{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "wrong", "namespace": "default"}, "spec": {"domain": {"devices": {}}}}'; }

machine() {
  cat <<'YAML'
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: last, namespace: default}
spec:
  runStrategy: Always
  template:
    spec:
      domain:
        memory: {guest: 160Mi}
        devices:
          disks: [{name: root, disk: {bus: virtio}}]
          interfaces: [{name: default, masquerade: {}}]
      networks: [{name: default, pod: {}}]
      volumes: [{name: root, containerDisk: {image: "ferrovirt.io/guest:test", imagePullPolicy: Never}}]
YAML
}

delete_manifests() { "$ferrovirt" manifests | kubectl delete --ignore-not-found --timeout 3m -f -; }
uninstall_chart() { helm uninstall ferrovirt && kubectl delete --timeout 3m crd/kubevirts.kubevirt.io namespace/kubevirt; }
remove() {
  machine | kubectl apply -f - || return
  kubectl wait vm last --for condition=Ready --timeout 3m || return
  if ! kubectl -n kubevirt delete kubevirt kubevirt --timeout 5m; then
    conditions
    return 1
  fi
  if with_helm; then uninstall_chart; else delete_manifests; fi || return
  expect "no object is left" '^$' objects_left
  expect "nodes have no labels of ours" '^$' marks_left
  for node in node1 node2; do
    expect "$node has no processes of ours" '^$' processes_left $node
    expect "$node has no sockets of ours" '^$' sockets_left $node
  done
}
objects_left() {
  local kinds kind
  kinds=$(kubectl api-resources --verbs list -o name | grep -v '^events')
  for kind in $kinds; do kubectl get "$kind" --all-namespaces -o name --ignore-not-found 2>/dev/null; done | grep -E 'kubevirt|virt-|ferrovirt' || true
}
on_node() { "$here/cluster.sh" --state "$state" enter "$@"; }
processes_left() { on_node "$1" pgrep --list-full --full '^[^ ]*(qemu-system-x86_64|libvirtd|virt-launcher|ferrovirt)( |$)' || true; }
marks_left() { kubectl get nodes -o json | grep -E '"[^"]*kubevirt.io[^"]*": "(true|\\")' || true; }
sockets_left() { on_node "$1" find /var/lib/kubelet/device-plugins -name 'kubevirt-*'; }

case $what in
  install) install ;;
  remove) remove ;;
  *) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac || failed=$((failed + 1))
echo "$passed passed, $failed failed"
[ $failed = 0 ]
