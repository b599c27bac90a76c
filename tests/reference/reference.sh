#!/usr/bin/env bash
# A real etcd, kube-apiserver and kube-controller-manager on loopback: the judge of our API suite.
#   reference.sh up [DIR]           start what is not running, wait until it is ready, print the admin kubeconfig's path
#   reference.sh down [DIR]         stop everything and remove DIR
#   reference.sh kubeconfig [DIR]   print the admin kubeconfig
# DIR is ${FERROVIRT_CACHE:-~/.cache/ferrovirt}/reference/state when not given. build.sh makes the programs.
set -euo pipefail

cache=${FERROVIRT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ferrovirt}/reference
bin=$cache/bin
command=${1:-}
dir=${2:-$cache/state}
case $dir in /*) ;; *) dir=$PWD/$dir ;; esac
pki=$dir/pki

# Only the controllers whose work our own server does too: a Deployment, say, is a plain object on both.
controllers=${FERROVIRT_REFERENCE_CONTROLLERS:-garbage-collector-controller,namespace-controller,serviceaccount-controller,serviceaccount-token-controller,root-ca-certificate-publisher-controller,clusterrole-aggregation-controller,disruption-controller,resourcequota-controller,persistentvolume-binder-controller,persistentvolumeclaim-protection-controller,persistentvolume-protection-controller}

say() { echo "reference: $*" >&2; }
fail() { say "$*"; exit 1; }
kubectl() { "$bin/kubectl" --kubeconfig "$dir/admin.kubeconfig" "$@"; }

# A process is ours when its pid file names it and its command line names our directory: pids are used again.
alive() {
  local pid
  pid=$(cat "$dir/$1.pid" 2>/dev/null) || return 1
  grep -qs '^State:[[:space:]]*[^Z]' "/proc/$pid/status" && tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qF -- "$dir/"
}

start() { # start NAME ARGUMENTS…: in the background, with a log and a pid file
  local name=$1
  shift
  alive "$name" && return
  setsid "$bin/$name" "$@" >>"$dir/$name.log" 2>&1 </dev/null &
  echo $! >"$dir/$name.pid"
}

stop() { # stop NAME: politely, then not
  local pid
  if alive "$1"; then
    pid=$(cat "$dir/$1.pid")
    kill "$pid" 2>/dev/null || true
    for _ in $(seq 100); do alive "$1" || break; sleep 0.1; done
    if alive "$1"; then kill -9 "$pid" 2>/dev/null || true; fi
  fi
  rm -f "$dir/$1.pid"
}

wait_for() { # wait_for SECONDS WHAT PROGRAM COMMAND…: fails at once when PROGRAM ends
  local deadline=$((SECONDS + $1)) what=$2 program=$3
  shift 3
  until "$@" >/dev/null 2>&1; do
    alive "$program" || { tail -n 20 "$dir/$program.log" >&2; fail "$program ended; its log is $dir/$program.log"; }
    [ $SECONDS -lt $deadline ] || { tail -n 20 "$dir/$program.log" >&2; fail "no $what in time; see $dir/$program.log"; }
    sleep 0.2
  done
}

port_is_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
# Four neighbouring ports below the ephemeral range, chosen once and kept: kube-apiserver, etcd's two, kube-controller-manager.
choose_ports() {
  local base=${FERROVIRT_REFERENCE_PORT:-26443}
  [ -f "$dir/port" ] && return
  until port_is_free "$base" && port_is_free $((base + 1)) && port_is_free $((base + 2)) && port_is_free $((base + 3)); do
    base=$((base + 10))
    [ "$base" -lt 32700 ] || fail "no free ports on 127.0.0.1"
  done
  echo "$base" >"$dir/port"
}

# With any extension a certificate is of version 3; some TLS libraries refuse the older ones.
issue() { # issue NAME SUBJECT CA [SUBJECT-ALT-NAME]
  openssl req -newkey rsa:2048 -nodes -subj "$2" -keyout "$1.key" -out "$1.csr" 2>/dev/null
  openssl x509 -req -in "$1.csr" -CA "$3.crt" -CAkey "$3.key" -CAcreateserial -days 365 -out "$1.crt" \
    -extfile <(printf '%s\n' "extendedKeyUsage=serverAuth,clientAuth" "${4:+subjectAltName=$4}") 2>/dev/null
}

certificates() {
  [ -f "$pki/complete" ] && return
  command -v openssl >/dev/null || fail "openssl is needed (Debian: apt-get install openssl)"
  mkdir -p "$pki"
  (
    cd "$pki"
    openssl genrsa -out sa.key 2048 2>/dev/null
    openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null
    for name in ca front-proxy-ca; do
      openssl req -x509 -newkey rsa:2048 -nodes -days 365 -subj "/CN=$name" -keyout $name.key -out $name.crt 2>/dev/null
    done
    issue apiserver /CN=kube-apiserver ca \
      "IP:127.0.0.1,IP:10.96.0.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
    issue admin /O=system:masters/CN=admin ca
    issue controller-manager /CN=system:kube-controller-manager ca
    issue front-proxy-client /CN=front-proxy-client front-proxy-ca
    # Users without any rights of their own, for those who want to see RBAC from outside.
    printf '%s\n' 'alice-token,alice,alice-uid,developers' 'nobody-token,nobody,nobody-uid' >tokens.csv
    touch complete
  )
}

kubeconfig() { # kubeconfig NAME: embeds everything, so that it can be copied
  local ca cert key
  ca=$(base64 -w0 "$pki/ca.crt") cert=$(base64 -w0 "$pki/$1.crt") key=$(base64 -w0 "$pki/$1.key")
  (umask 077 && cat >"$dir/$1.kubeconfig") <<YAML
apiVersion: v1
kind: Config
clusters: [{name: reference, cluster: {server: "https://127.0.0.1:$(cat "$dir/port")", certificate-authority-data: $ca}}]
users: [{name: $1, user: {client-certificate-data: $cert, client-key-data: $key}}]
contexts: [{name: reference, context: {cluster: reference, user: $1}}]
current-context: reference
YAML
}

start_etcd() {
  local client=http://127.0.0.1:$(($1 + 1)) peer=http://127.0.0.1:$(($1 + 2))
  start etcd --data-dir "$dir/etcd" --listen-client-urls "$client" --advertise-client-urls "$client" \
    --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" --initial-cluster "default=$peer" --log-level warn
}

# The advertised address only has to be one that is not loopback: nothing dials it here. This one is set aside for documents.
start_apiserver() {
  start kube-apiserver --etcd-servers="http://127.0.0.1:$(($1 + 1))" --bind-address=127.0.0.1 --secure-port="$1" \
    --advertise-address=192.0.2.1 --service-cluster-ip-range=10.96.0.0/16 --authorization-mode=Node,RBAC \
    --client-ca-file="$pki/ca.crt" --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
    --token-auth-file="$pki/tokens.csv" --service-account-issuer=https://kubernetes.default.svc \
    --service-account-key-file="$pki/sa.pub" --service-account-signing-key-file="$pki/sa.key" \
    --requestheader-client-ca-file="$pki/front-proxy-ca.crt" --requestheader-allowed-names=front-proxy-client \
    --requestheader-extra-headers-prefix=X-Remote-Extra- --requestheader-group-headers=X-Remote-Group \
    --requestheader-username-headers=X-Remote-User --proxy-client-cert-file="$pki/front-proxy-client.crt" \
    --proxy-client-key-file="$pki/front-proxy-client.key" --enable-aggregator-routing=true --allow-privileged=true
}

start_controllers() {
  start kube-controller-manager --kubeconfig="$dir/controller-manager.kubeconfig" --bind-address=127.0.0.1 --secure-port=$(($1 + 3)) \
    --leader-elect=false --controllers="$controllers" --use-service-account-credentials --service-account-private-key-file="$pki/sa.key" \
    --root-ca-file="$pki/ca.crt" --kube-api-qps=500 --kube-api-burst=1000 \
    --concurrent-namespace-syncs=30
}

up() {
  local program port
  for program in etcd kube-apiserver kube-controller-manager kubectl; do
    [ -x "$bin/$program" ] || fail "$bin/$program is missing; tests/reference/build.sh builds it"
  done
  mkdir -p "$dir"
  chmod 700 "$dir"
  choose_ports
  port=$(cat "$dir/port")
  certificates
  kubeconfig admin
  kubeconfig controller-manager
  start_etcd "$port"
  start_apiserver "$port"
  wait_for 120 "ready kube-apiserver" kube-apiserver kubectl get --raw /readyz
  start_controllers "$port"
  wait_for 60 "default service account" kube-controller-manager kubectl get serviceaccount default
  say "Kubernetes $(kubectl version -o yaml | sed -n '/^serverVersion/,$s/.*gitVersion: //p') is ready on 127.0.0.1:$port"
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
