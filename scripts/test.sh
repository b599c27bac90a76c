#!/usr/bin/env bash
# Runs the tests and cleans up after them, also when they fail or are interrupted:
#   test.sh            everything but the last, with a quarter of the simulated clusters (all with SIMULATION_PART=0/1)
#   test.sh rust       the Rust tests of the workspace
#   test.sh seeds      of these, only the thousands of simulated clusters
#   test.sh suites     everything but the Rust tests and the last
#   test.sh api        the API suite, on our server and on the reference
#   test.sh kubectl    kubectl's commands, on our server and on the reference
#   test.sh guests     real guests and machines on the local cluster, ours and KubeVirt's virtctl, and kill -9 of everything around them
#   test.sh moves      live migration on a local cluster with two nodes, and kill -9 and cut links in its middle
#   test.sh kubernetes an installation on a real Kubernetes with two nodes: guests, machines, moves, kill -9, removal (needs root)
#   test.sh kubernetes part  of that the installation, an update and the removal, and a quarter of the cases; 0/4 to 3/4 say which
# Which quarter it is, the commit's hash says: a few commits cover all.
# A phase that fails does not keep the later ones from running. Ends with a line per phase; fails when any phase failed.
# A black-box case that passes only when it is run again is listed as unsteady at the end; more than three of them fail the run. They are
# counted in the file that FERROVIRT_UNSTEADY names, so that several runs can be judged together.
# The reference is a real kube-apiserver, built with Go. Where no Go is there nor can be fetched, what needs it is skipped, and said so.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
bin=${FERROVIRT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ferrovirt}/reference/bin
target=${CARGO_TARGET_DIR:-target}/debug
failed=0 report= group=

say() { printf '\n== %s\n' "$*"; }
note() { report+=$(printf '%-7s %-40s %5s s   %s' "$@")$'\n'; }

work=$(mktemp -d "${TMPDIR:-/tmp}/ferrovirt-test.XXXXXX") || exit 1
mkdir "$work/tmp"
# Whatever a test leaves behind goes with the directory.
export TMPDIR=$work/tmp
unsteady=${FERROVIRT_UNSTEADY:-$work/unsteady}
touch "$unsteady" || exit 1
most_unsteady=3
# shellcheck source=beside.sh
source scripts/beside.sh

end_group() { # what runs may want to clean up too, so it gets some seconds
  kill -TERM -- "-$group" 2>/dev/null
  for _ in $(seq 150); do
    kill -0 -- "-$group" 2>/dev/null || return
    sleep 0.1
  done
  kill -KILL -- "-$group" 2>/dev/null
}
cleanup() {
  local status=$?
  trap - EXIT
  # A second signal (make passes on the one that its whole group got) must not end this.
  trap '' INT TERM HUP
  end_besides
  [ -z "$group" ] || end_group
  stop_ours >/dev/null 2>&1
  stop_cluster >/dev/null 2>&1
  stop_reference >/dev/null 2>&1
  stop_kubernetes >/dev/null 2>&1
  rm -rf "$work"
  exit $status
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

start_ours() { "$target/ferrovirt" up --nodes 0 --state "$work/ours" --listen 127.0.0.1:0; }
stop_ours() { [ ! -d "$work/ours" ] || "$target/ferrovirt" down --state "$work/ours"; }
start_cluster() { # start_cluster [NODES]
  images/guest/build.sh "$work/guest" || return
  "$target/ferrovirt" up --nodes "${1:-1}" --state "$work/cluster" || return
  for image in "$work"/guest/*.tar; do "$target/ferrovirt" images import --state "$work/cluster" "$image" || return; done
}
stop_cluster() { [ ! -d "$work/cluster" ] || "$target/ferrovirt" down --delete --state "$work/cluster"; }
start_reference() { tests/reference/reference.sh up "$work/reference"; }
stop_reference() { [ ! -d "$work/reference" ] || tests/reference/reference.sh down "$work/reference"; }
kubernetes_state=$work/kubernetes
in_kubernetes() { tests/kubernetes/cluster.sh --state "$kubernetes_state" "$@"; }
stop_kubernetes() { [ ! -d "$kubernetes_state" ] || in_kubernetes down; }

# What a test program said about itself: the sum of its lines "N passed, N failed", or of cargo's.
counts() {
  sed -n 's/^\(test result: [^ ]* \)\{0,1\}\([0-9]* passed[,;] [0-9]* failed\).*/\2/p' "$1" \
    | awk '{ passed += $1; failed += $3 } END { if (NR) print passed + 0 " passed, " failed + 0 " failed" }'
}

# Which tests failed, by cargo's and nextest's lines and those of our suites: the last lines of a long log should say it.
failures() {
  sed -n -e 's/^test \(.*\) \.\.\. FAILED$/\1/p' -e 's/^ *FAIL \[[^]]*\] *//p' -e 's/^FAILED  *\([^:]*\).*/\1/p' "$1" | sort -u \
    | grep -vxFf <(sed -n 's/^unsteady: //p' "$1") | sed 's/^/          /'
}

phase() { # phase NAME COMMAND…: status 3 means that it cannot be done here
  local name=$1 started=$SECONDS status
  shift
  say "$name"
  # A process group of its own: one interrupt then ends the phase at once, whatever it has started.
  set -m
  { "$@" 2>&1 | tee "$work/log"; exit "${PIPESTATUS[0]}"; } </dev/null &
  group=$!
  set +m
  wait $group
  status=$? group=
  ended "$name" $status $((SECONDS - started)) "$work/log"
  return "$status"
}
ended() { # ended NAME STATUS SECONDS LOG
  sed -n "s|^unsteady: .*|&, in: $1|p" "$4" >>"$unsteady"
  case $2 in
    0) note ok "$1" "$3" "$(counts "$4")" ;;
    3) note skipped "$1" "$3" "$(tail -n 1 "$4")" ;;
    *)
      note FAILED "$1" "$3" "$(counts "$4")"
      report+=$(failures "$4")$'\n'
      failed=1
      ;;
  esac
}
collected() { # collected NAME STATUS SECONDS LOG
  say "$1"
  cat "$4"
  ended "$@"
}

# For scripts, whose cases lead from one to the next: all of it is done again.
twice() { # twice COMMAND…
  local status=0
  "$@" || status=$?
  case $status in 0 | 3) return $status ;; esac
  echo "note    ${1##*/} failed: once more"
  "$@" && echo "unsteady: $1"
}

build_tests() { cargo test --locked --workspace --no-run; }
rust_tests() {
  if cargo nextest --version >/dev/null 2>&1; then
    # nextest leaves the examples in the docs to cargo.
    cargo nextest run --locked --workspace --no-fail-fast && cargo test --locked --workspace --doc
  else
    cargo test --locked --workspace --no-fail-fast
  fi
}
of_commit() { echo $((16#$({ git rev-parse --short=7 HEAD || echo 0; } 2>/dev/null) % 4))/4; }
# What plays a number of seeds is called so.
seeds() { cargo test --locked --workspace --no-fail-fast --test moves --test simulation many_; }
with_few_seeds() { SIMULATION_SEEDS=${SIMULATION_SEEDS:-20} "$@"; }
# With one of the tests, although only programs are wanted: cargo would choose other features for the dependencies, and build them again.
build() { cargo build --locked --workspace --bins --test chart; }
api_suite() { "$target/api-suite" --kubeconfig "$1"; }
# The cluster of the suites of guests, machines and moves.
kubeconfig=$work/cluster/kubeconfig
vmi_suite() { "$target/vmi-suite" --kubeconfig "$kubeconfig" "$@"; }
vm_suite() { # vm_suite VIRTCTL [ARGUMENT…]
  local virtctl=$1
  shift
  "$target/vm-suite" --kubeconfig "$kubeconfig" --kubectl "$bin/kubectl" --virtctl "$virtctl" "$@"
}
tenant_suite() { "$target/tenant-suite" --kubeconfig "$kubeconfig" "$@"; }
# FERROVIRT_MOVES=10 and FERROVIRT_FAULT_MOMENTS=20 are the whole of it.
moves_there_and_back=4
migration_suite() {
  "$target/migration-suite" --kubeconfig "$kubeconfig" --kubectl "$bin/kubectl" --virtctl "$target/virtctl" --patience 600 \
    --moves "${FERROVIRT_MOVES:-$moves_there_and_back}" "$@"
}
move_faults() { "$target/fault-suite" --state "$1" --moments "${FERROVIRT_FAULT_MOMENTS:-$2}"; } # move_faults STATE MOMENTS
faults() { twice tests/faults/run.sh "$target/ferrovirt" "$work/cluster" "$bin/kubectl"; }
foreign_client() { twice tests/foreign/run.sh "$target/ferrovirt"; }
kubectl_commands() { twice tests/kubectl/run.sh --kubeconfig "$1" --kubectl "$bin/kubectl" --ferrovirt "$target/ferrovirt"; }

on_a_cluster() { # on_a_cluster KUBECONFIG NAME: the black-box suites that were asked for
  [ "$what" = kubectl ] || phase "API suite on $2" api_suite "$1"
  [ "$what" = api ] || [ ! -x "$bin/kubectl" ] || phase "kubectl on $2" kubectl_commands "$1"
}

black_box() {
  phase "build the server and the API suite" build || return
  [ "$what" = api ] || phase "build kubectl" tests/reference/build.sh kubectl
  if phase "start our server" start_ours; then on_a_cluster "$work/ours/kubeconfig" "our server"; fi
  stop_ours
  case $what in all | suites) phase "foreign client on our server" foreign_client ;; esac
  phase "build the reference" tests/reference/build.sh || return
  if phase "start the reference" start_reference; then on_a_cluster "$work/reference/admin.kubeconfig" "the reference"; fi
  stop_reference
}

foreign_virtctl() { # foreign_virtctl CLUSTER: what KubeVirt's own virtctl can do is judged by the cases of ours
  phase "build KubeVirt's virtctl" tests/reference/build.sh virtctl || return
  phase "KubeVirt's virtctl on $1" vm_suite "$bin/virtctl" --filter virtctl/
}

guests() {
  phase "build the programs" build || return
  phase "build kubectl" tests/reference/build.sh kubectl || return
  if phase "start the local cluster" start_cluster; then
    phase "guests on the local cluster" vmi_suite
    phase "machines on the local cluster" vm_suite "$target/virtctl"
    foreign_virtctl "the local cluster"
    phase "a hostile tenant on the local cluster" tenant_suite
    phase "guests survive kill -9" faults
  fi
  phase "stop the local cluster" stop_cluster
}

moves() {
  phase "build the programs" build || return
  phase "build kubectl" tests/reference/build.sh kubectl || return
  if phase "start a cluster with two nodes" start_cluster 2; then
    phase "live migration" migration_suite
    phase "faults in live migration" move_faults "$work/cluster" 3
  fi
  phase "stop the cluster with two nodes" stop_cluster
}

# The programs of the other phases, unless PROGRAMS says otherwise: PROGRAMS= builds the images that users get.
kubernetes_images() { PROGRAMS=${PROGRAMS-$target} images/build.sh "$work/images"; }
installation() { tests/kubernetes/installation.sh "$1" "$kubernetes_state" "$target/ferrovirt" "$target/virtctl"; }

kubernetes() {
  kubeconfig=$kubernetes_state/admin.kubeconfig
  [ -n "$part" ] || moves_there_and_back=10
  phase "build the programs" build || return
  phase "build the images" kubernetes_images || return
  if phase "start Kubernetes" in_kubernetes up && phase "import the images" in_kubernetes import "$work"/images/*.tar; then
    if phase "install" installation install; then
      on_kubernetes
      phase "remove" installation remove
    fi
  fi
  phase "stop Kubernetes" stop_kubernetes
  [ -n "$part" ] || phase "guests without image volumes" twice tests/kubernetes/sidecars.sh "$target" "$work/images"
}
outlive() { twice tests/kubernetes/faults.sh "$kubernetes_state" "$target/ferrovirt" "$target/virtctl" "$@"; }
on_kubernetes() {
  local of=(${part:+--part "$part"})
  # Its storage class makes directories, and its pods have addresses of one family.
  phase "guests on Kubernetes" vmi_suite --without block-claims --without ipv6 --without guarded-network "${of[@]}"
  phase "machines on Kubernetes" vm_suite "$target/virtctl" "${of[@]}"
  phase "live migration on Kubernetes" migration_suite "${of[@]}"
  phase "a hostile tenant on Kubernetes" tenant_suite --without local-nodes "${of[@]}"
  if [ -n "$part" ]; then
    phase "guests outlive an update" outlive update
  else
    foreign_virtctl Kubernetes
    phase "faults in live migration on Kubernetes" move_faults "$kubernetes_state" 1
    phase "guests outlive what runs them" outlive
  fi
}

what=${1:-all} part=${2:-}
[ "$part" != part ] || part=$(of_commit)
case $what in all | rust | seeds | suites | api | kubectl | guests | moves | kubernetes) ;; *) sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2 ;; esac
phase "install what is missing" scripts/setup.sh test || exit 1
case $what in all | rust)
  # The node's tests look inside pods with it.
  phase "build kubectl" tests/reference/build.sh kubectl
  phase "build the tests" build_tests || exit 1
  ;;
esac
case $what in
  rust) phase "Rust tests" rust_tests ;;
  all)
    phase "Rust tests" with_few_seeds rust_tests
    # The suites wait for guests most of the time: what only computes gets the processors meanwhile.
    beside "simulated clusters" env SIMULATION_PART="${SIMULATION_PART-$(of_commit)}" scripts/test.sh seeds
    ;;
esac
case $what in seeds) phase "simulated clusters" seeds ;; esac
case $what in all | suites | api | kubectl) black_box ;; esac
case $what in all | suites | guests) guests ;; esac
case $what in all | suites | moves) moves ;; esac
case $what in kubernetes) kubernetes ;; esac
collect collected

say "summary"
printf '%s' "$report"
if [ -s "$unsteady" ]; then
  echo "UNSTEADY: these failed, and passed when they were run again, alone. Each is a defect of the product or of the case:"
  cat "$unsteady"
  [ "$(wc -l <"$unsteady")" -le $most_unsteady ] || { echo "more than $most_unsteady are unsteady: the run has failed"; failed=1; }
fi
exit $failed
