#!/usr/bin/env bash
# Shows that cluster.sh's Kubernetes does what our suites need, survives what they do to it, and leaves nothing behind:
#   smoke.sh [ROUNDS]     up, all checks, down, a look at what is left; two rounds unless told otherwise
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${FERROVIRT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ferrovirt}/reference/bin
rounds=${1:-2}
# shellcheck source=../checks.sh
source "$here/../checks.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/kubernetes-smoke.XXXXXX")
state=$work/state

cluster() { "$here/cluster.sh" --state "$state" "$@"; }
kubectl() { "$bin/kubectl" --kubeconfig "$state/admin.kubeconfig" --cache-dir "$work/kubectl" --namespace smoke "$@"; }
cleanup() {
  [ ! -d "$state" ] || cluster down
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

in_pod() { local pod=$1; shift; kubectl exec "$pod" -- "$@"; }
field() { kubectl get "$1" --output "jsonpath=$2"; } # field OBJECT PATH
handler_on() { kubectl get pods --selector app=handler --field-selector "spec.nodeName=$1" --output name; }
get() { in_pod "$1" timeout 5 wget -q -O - "$2"; } # get POD URL
get_from_host() { timeout 5 busybox wget -q -O - "$1"; }

prepare() {
  mkdir "$state/smoke"
  cp "$here/webhook.py" "$state/smoke/"
  openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=webhook.smoke.svc -addext subjectAltName=DNS:webhook.smoke.svc \
    -keyout "$state/smoke/webhook.key" -out "$state/smoke/webhook.crt" 2>/dev/null
  sed "s|STATE|$state|g" "$here/smoke.yaml" | kubectl apply --filename - >/dev/null
  kubectl rollout status daemonset/handler --timeout 120s >/dev/null
  kubectl wait --for=condition=Ready pod --all --timeout 120s >/dev/null
}

pods() {
  expect "a pod runs on each node" '^node1 node2$' kubectl get pods one two --output 'jsonpath={.items[*].spec.nodeName}'
  expect "logs of node1" 'served by one' kubectl logs one
  expect "logs of node2" 'served by two' kubectl logs two
  expect "a pod reaches one on the other node" 'served by two' get one "http://$(field pod/two '{.status.podIP}')"
  expect "and the other way" 'served by one' get two "http://$(field pod/one '{.status.podIP}')"
  expect "an image is mounted as a volume" 'busybox' in_pod one ls /image/bin
  expect "the host reaches pods" 'served by one' get_from_host "http://$(field pod/one '{.status.podIP}')"
}

services() {
  local address token=/var/run/secrets/kubernetes.io/serviceaccount/token
  address=$(field service/two '{.spec.clusterIP}')
  expect "a Service from the other node" 'served by two' get one "http://$address"
  expect "a Service from its own pod" 'served by two' get two "http://$address"
  expect "a Service from a pod beside its own" 'served by two' get webhook "http://$address"
  expect "a Service from a node itself" 'served by two' get "$(handler_on node1)" "http://$address"
  # shellcheck disable=SC2016 # the pod's shell expands it
  expect "the API server at its Service's address" '"gitVersion"' in_pod webhook sh -c "chroot /host $bin/kubectl"' \
    --server "https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT" --token "$(cat '$token')" --certificate-authority '"$state/pki/ca.crt get --raw /version"
}

calls_of_the_api_server() {
  local ca
  ca=$(base64 -w0 "$state/smoke/webhook.crt")
  kubectl apply --filename - >/dev/null <<YAML
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.smoke.example}
spec: {group: smoke.example, version: v1, groupPriorityMinimum: 1000, versionPriority: 10, caBundle: $ca, service: {namespace: smoke, name: webhook}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: smoke}
webhooks:
- name: webhook.smoke.example
  clientConfig: {caBundle: $ca, service: {namespace: smoke, name: webhook}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: smoke}}
  admissionReviewVersions: [v1]
  sideEffects: None
YAML
  expect "an aggregated API behind a Service" 'smoke.example/v1' kubectl get --raw /apis/smoke.example/v1
  expect "the APIService is available" '^True$' field apiservice/v1.smoke.example '{.status.conditions[?(@.type=="Available")].status}'
  expect "a webhook behind a Service refuses" 'it is labelled so' refused
  expect "and admits" 'created' kubectl create configmap admitted --dry-run=server
  expect "the API server's proxy to a Service" 'served by two' kubectl get --raw /api/v1/namespaces/smoke/services/two:80/proxy/
}
refused() { ! kubectl create --filename - 2>&1 <<<'{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "refused", "labels": {"refuse-me": ""}}}'; }

node_access() { # node_access NODE
  local handler
  handler=$(handler_on "$1")
  expect "$1: its device plugins' socket" 'kubelet.sock' in_pod "$handler" ls /var/lib/kubelet/device-plugins
  expect "$1: sees the kubelet, and no other node's" '^1$' in_pod "$handler" sh -c 'pidof kubelet | wc -w'
  # shellcheck disable=SC2016 # the pod's shell expands it
  expect "$1: sees the network of its pods" 'net:' in_pod "$handler" sh -c 'readlink /proc/$(pidof httpd)/ns/net'
  expect "$1: mounts for the whole node" '' in_pod "$handler" sh -c 'mkdir -p /var/lib/kubelet/smoke && mount -t tmpfs smoke /var/lib/kubelet/smoke'
  expect "$1: that mount is seen" tmpfs cluster enter "$1" findmnt /var/lib/kubelet/smoke
  expect "$1: that mount is undone" '' in_pod "$handler" umount /var/lib/kubelet/smoke
  expect "$1: has its own /run" "^$1\$" in_pod "$handler" sh -c "echo $1 >>/run/smoke/names && cat /run/smoke/names"
}

storage() {
  expect "a claim for several nodes is bound" '^Bound$' field pvc/shared '{.status.phase}'
  expect "a claim for one node is bound" '^Bound$' field pvc/own '{.status.phase}'
  in_pod one sh -c 'echo from one >/shared/file'
  expect "what node1 writes, node2 reads" 'from one' in_pod two cat /shared/file
  kubectl delete pvc own >/dev/null
  expect "a claim's volume goes with it" '^1$' count_of_volumes
}
count_of_volumes() { kubectl get pv --no-headers | wc -l; }

# The container of a pod that was never restarted.
container() { field "pod/$1" '{.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}'; }
faults() {
  local node pod program before address
  for node in node1 node2; do
    case $node in node1) pod=one ;; *) pod=two ;; esac
    before=$(container $pod)
    address=$(field pod/$pod '{.status.podIP}')
    for program in kubelet containerd kube-proxy; do
      cluster kill $node $program
      expect "$node without $program: its pod serves" "served by $pod" get_from_host "http://$address"
      cluster start $node $program
      expect "$node with $program again: exec" "served by $pod" in_pod $pod cat /tmp/index.html
      expect "$node with $program again: the same container" "^$before\$" container $pod
    done
  done
  cluster kill kube-apiserver
  expect "without kube-apiserver: pods serve" 'served by two' get_from_host "http://$address"
  cluster start kube-apiserver
  expect "with kube-apiserver again: exec" 'served by two' in_pod two cat /tmp/index.html
  cluster kill node2
  expect "node1 goes on without node2" 'served by one' get one http://127.0.0.1
  expect "the cluster is not whole" 'node2 kubelet: does not run' sh -c "'$here/cluster.sh' --state '$state' status || true"
  expect "up repairs it" 'admin.kubeconfig' cluster up
  expect "node2's pod runs again" 'served by two' get one "http://$(field service/two '{.spec.clusterIP}')"
}

# What a cluster could leave on the machine: lines to compare.
traces() {
  pgrep --list-full --full -- "$work/|^$bin/(containerd|kubelet|kube-proxy)" || true
  ip -oneline link | cut -d: -f2 | sed 's/@.*//; s/^/link/'
  ip route | sed 's/^/route /'
  ip netns | sed 's/^/netns /'
  findmnt --raw --noheadings --output TARGET,FSTYPE | sed 's/^/mount /'
  nft list ruleset | sed 's/^/nft /'
  find /sys/fs/cgroup -type d | sed 's/^/cgroup /'
  find /run /var/lib /var/log /opt /etc /usr/libexec -maxdepth 1 | sed 's/^/file /'
  find /tmp/hostpath_pv ~/.kube 2>/dev/null || true
  (cd /proc/sys && grep --with-filename '' net/ipv4/ip_forward vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops)
}
left_over() { comm -13 <(sort "$work/before") <(traces | sort); }

"$here/../../scripts/setup.sh" kubernetes
for round in $(seq "$rounds"); do
  echo "== round $round"
  traces >"$work/before"
  cluster up
  expect "up again: nothing to do" 'is up already' cluster up
  prepare
  pods
  services
  calls_of_the_api_server
  for node in node1 node2; do node_access $node; done
  storage
  faults
  cluster down
  expect "nothing is left" '^$' left_over
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
