#!/usr/bin/env bash
# Guests on a Kubernetes without image volumes, whose container disks sidecars hold: sidecars.sh TARGET IMAGES
#   TARGET   the folder with ferrovirt, virtctl, vmi-suite and migration-suite
#   IMAGES   the folder with what images/build.sh made
# Starts a cluster of its own whose API server behaves like Kubernetes 1.34, installs Ferrovirt with Helm, boots guests from container disks and
# kernel images, moves one, and takes everything away, also when something fails. Needs root.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${FERROVIRT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ferrovirt}/reference/bin
[ $# = 2 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
target=$1 images=$2 failed=0
state=$(mktemp -d "${TMPDIR:-/tmp}/ferrovirt-sidecars.XXXXXX")/kubernetes || exit 1
kubeconfig=$state/admin.kubeconfig
export FERROVIRT_KUBERNETES_VERSION=${FERROVIRT_KUBERNETES_VERSION:-1.34}

cluster() { "$here/cluster.sh" --state "$state" "$@"; }
cleanup() {
  [ ! -d "$state" ] || cluster down
  rm -rf "${state%/kubernetes}"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

kubectl() { "$bin/kubectl" --kubeconfig "$kubeconfig" --cache-dir "$state/kubectl" "$@"; }
installation() { INSTALLER=helm "$here/installation.sh" "$1" "$state" "$target/ferrovirt" "$target/virtctl"; }
step() { # step WHAT COMMAND…
  local what=$1
  shift
  if "$@"; then echo "ok      $what"; else echo "FAILED  $what"; failed=$((failed + 1)); return 1; fi
}

# The very question of virt-controller: such a server leaves the volume out, and says nothing.
has_no_image_volumes() {
  [ -z "$(kubectl create --dry-run=server -o 'jsonpath={.spec.volumes[?(@.name=="v")].name}' -f - <<'YAML'
apiVersion: v1
kind: Pod
metadata: {name: question, namespace: default}
spec:
  containers: [{name: c, image: c, volumeMounts: [{name: v, mountPath: /v}]}]
  volumes: [{name: v, image: {reference: c}}]
YAML
  )" ]
}

guest() {
  cat <<'YAML'
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: held, namespace: default}
spec:
  terminationGracePeriodSeconds: 0
  domain:
    memory: {guest: 160Mi}
    devices: {disks: [{name: root, disk: {bus: virtio}}], interfaces: [{name: default, masquerade: {}}]}
  networks: [{name: default, pod: {}}]
  volumes: [{name: root, containerDisk: {image: "ferrovirt.io/guest:test", imagePullPolicy: Never}}]
YAML
}
launcher() { kubectl get pods -l vm.kubevirt.io/name=held "$@"; }
runs_with_a_sidecar() {
  guest | kubectl create -f - && kubectl wait vmi held --for jsonpath='{.status.phase}'=Running --timeout 3m || return
  [ "$(launcher -o 'jsonpath={.items[0].spec.initContainers[*].name}')" = "container-disk-binary volumeroot" ]
}
# The sidecar must not keep the pod from ending, and its end is not the guest's.
ends_with_its_guest() {
  kubectl delete vmi held --timeout 2m && kubectl wait pods -l vm.kubevirt.io/name=held --for delete --timeout 1m
}
# The mount is the launcher's alone.
nothing_is_mounted() { ! cluster enter "$1" grep -F kubevirt-image-volume /proc/mounts; }

step "start Kubernetes like $FERROVIRT_KUBERNETES_VERSION" cluster up && step "import the images" cluster import "$images"/*.tar \
  && step "install with Helm" installation install || exit 1
step "this API server leaves image volumes out" has_no_image_volumes
step "a guest runs with a sidecar" runs_with_a_sidecar
for node in node1 node2; do step "$node itself has no mount of it" nothing_is_mounted $node; done
step "both end together" ends_with_its_guest
step "guests boot" "$target/vmi-suite" --kubeconfig "$kubeconfig" --filter boot/
step "guests with disks of images" "$target/vmi-suite" --kubeconfig "$kubeconfig" --filter volumes/ephemeral
step "a guest moves" "$target/migration-suite" --kubeconfig "$kubeconfig" --kubectl "$bin/kubectl" --virtctl "$target/virtctl" --patience 600 --filter moves/status
step "remove" installation remove
echo "$failed failed"
[ $failed = 0 ]
