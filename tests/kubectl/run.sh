#!/usr/bin/env bash
# Runs kubectl's commands against any cluster and checks what they print:
#   run.sh --kubeconfig FILE [--kubectl PROGRAM] [--ferrovirt PROGRAM] [AREA…]
# One line per check, then "N passed, N failed". The areas are the files in commands/; without any, all of them run. Each works in a
# namespace of its own, and nothing is left behind. Ferrovirt's kinds are installed from `ferrovirt crds` where they are missing.
# It passes on a real kube-apiserver without nodes (tests/reference), so it asks nothing of controllers that our server does not have.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
kubeconfig='' program=kubectl ferrovirt=ferrovirt areas=()
passed=0 failed=0

while [ $# -gt 0 ]; do
  case $1 in
    --kubeconfig) kubeconfig=$2; shift 2 ;;
    --kubectl) program=$2; shift 2 ;;
    --ferrovirt) ferrovirt=$2; shift 2 ;;
    -*) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    *) areas+=("$1"); shift ;;
  esac
done
[ -r "$kubeconfig" ] || { echo "--kubeconfig FILE is needed" >&2; exit 2; }
if [ ${#areas[@]} = 0 ]; then for file in "$here"/commands/*.sh; do areas+=("$(basename "$file" .sh)"); done; fi

# A wrong answer must not look like a hanging test; a cache of another server's discovery must not answer for this one.
work=$(mktemp -d) || exit 1
export KUBECONFIG=$work/kubeconfig KUBECACHEDIR=$work/cache
cp "$kubeconfig" "$KUBECONFIG"
kubectl() { timeout --foreground 90 "$program" "$@" </dev/null; }
kubectl_stdin() { timeout --foreground 90 "$program" "$@"; }

# Names of objects without a namespace carry the run's own mark, so that two runs do not meet.
run=r$$
watcher=
cleanup() {
  local status=$?
  trap - EXIT INT TERM
  [ -z "$watcher" ] || kill "$watcher" 2>/dev/null
  cp "$kubeconfig" "$KUBECONFIG"
  kubectl delete namespaces,nodes,priorityclasses,clusterroles,clusterrolebindings,storageclasses,persistentvolumes -l "kubectl-checks=$run" \
    --wait=false >/dev/null 2>&1
  rm -rf "$work"
  exit $status
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

result() { # result NAME OK COMMAND-LINE: $output and $status are what the command did
  if [ "$2" = yes ]; then
    passed=$((passed + 1))
    printf 'ok      %s: %s\n' "$area" "$1"
  else
    failed=$((failed + 1))
    printf 'FAILED  %s: %s\n    $ %s\n    expected%s %s\n    got status %s and:\n' "$area" "$1" "${3//$'\n'/ }" "$4" "$5" "$status"
    printf '%s\n' "$output" | head -n 40 | sed 's/^/      /'
  fi
}

# In the patterns (extended regular expressions over the whole output) a dot is any character, also a line's end.
check() { # check NAME PATTERN COMMAND…: the command succeeds and its output matches
  local name=$1 pattern=$2 ok=no
  shift 2
  output=$("$@" 2>&1) status=$?
  [ $status = 0 ] && [[ $output =~ $pattern ]] && ok=yes
  result "$name" $ok "$*" " success and" "$pattern"
}
refuse() { # refuse NAME PATTERN COMMAND…: the command fails, and says why
  local name=$1 pattern=$2 ok=no
  shift 2
  output=$("$@" 2>&1) status=$?
  [ $status != 0 ] && [ $status != 124 ] && [[ $output =~ $pattern ]] && ok=yes
  result "$name" $ok "$*" " a refusal and" "$pattern"
}
lacks() { # lacks NAME PATTERN COMMAND…: the command succeeds and its output does not match
  local name=$1 pattern=$2 ok=no
  shift 2
  output=$("$@" 2>&1) status=$?
  [ $status = 0 ] && ! [[ $output =~ $pattern ]] && ok=yes
  result "$name" $ok "$*" " success without" "$pattern"
}
k() { kubectl --namespace "$namespace" "$@"; }
stdin() { # stdin TEXT ARGUMENTS…: kubectl with the text on its standard input
  local text=$1
  shift
  kubectl_stdin --namespace "$namespace" "$@" <<<"$text"
}
# soon NAME PATTERN COMMAND…: as check, for what a controller does after the answer; asks again for up to half a minute
soon() {
  local name=$1 pattern=$2 ok=no deadline=$((SECONDS + 30))
  shift 2
  until output=$("$@" 2>&1) && [[ $output =~ $pattern ]]; do
    status=$?
    [ $SECONDS -lt $deadline ] || break
    sleep 0.2
  done
  status=$?
  [[ $output =~ $pattern ]] && ok=yes
  result "$name" $ok "$*" " soon" "$pattern"
}

prepare_cluster() {
  kubectl version >/dev/null || { echo "the cluster of $kubeconfig does not answer" >&2; exit 1; }
  if ! kubectl get crd virtualmachines.kubevirt.io >/dev/null 2>&1; then
    "$ferrovirt" crds | kubectl_stdin apply -f - || exit 1
  fi
  kubectl wait crd --for=condition=Established --timeout=60s virtualmachines.kubevirt.io virtualmachineinstances.kubevirt.io >/dev/null || exit 1
}
prepare_area() { # a fresh namespace; pods need its service account
  area=$1 namespace=kubectl-$1-$run
  kubectl create namespace "$namespace" >/dev/null && kubectl label namespace "$namespace" "kubectl-checks=$run" >/dev/null \
    && kubectl -n "$namespace" wait --for=create --timeout=60s serviceaccount/default >/dev/null \
    || { echo "namespace $namespace cannot be prepared" >&2; exit 1; }
}

prepare_cluster
cd "$here/manifests" || exit 1
for area in "${areas[@]}"; do
  [ -r "$here/commands/$area.sh" ] || { echo "there is no area $area" >&2; exit 2; }
  prepare_area "$area"
  # shellcheck source=/dev/null
  . "$here/commands/$area.sh"
  kubectl delete namespace "$namespace" --wait=false >/dev/null 2>&1
done
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
