# What the scripts that start Kubernetes' programs have in common; sourced by reference.sh and ../kubernetes/cluster.sh.
# The caller sets: me (its name in messages), bin (the programs), dir (its state), pki (its certificates).
# shellcheck shell=bash disable=SC2154

say() { echo "$me: $*" >&2; }
fail() { say "$*"; exit 1; }
# With a cache of its own it leaves nothing in the home directory.
kubectl() { "$bin/kubectl" --kubeconfig "$dir/admin.kubeconfig" --cache-dir "$dir/kubectl" "$@"; }

# A process is ours when its pid file names it and its command line names our directory: pids are used again.
alive() {
  local pid
  pid=$(cat "$dir/$1.pid" 2>/dev/null) || return 1
  grep -qs '^State:[[:space:]]*[^Z]' "/proc/$pid/status" && tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qF -- "$dir/"
}

# detached LOG COMMAND…: in a session of its own, without the caller's files: one may be a lock, which would outlive the caller.
detached() {
  local log=$1 fd
  shift
  for fd in "/proc/$BASHPID/fd"/*; do
    fd=${fd##*/}
    # 255 is bash's own.
    if [ "$fd" -gt 2 ] && [ "$fd" != 255 ]; then eval "exec $fd>&-"; fi
  done
  exec setsid "$@" >>"$log" 2>&1 </dev/null
}
start() { # start NAME COMMAND…: in the background, with a log and a pid file
  local name=$1
  shift
  alive "$name" && return
  detached "$dir/$name.log" "$@" &
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
choose_ports() { # choose_ports FIRST: four neighbouring ports below the ephemeral range, chosen once and kept
  local base=$1
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

certificates() { # certificates ADDRESS: of the API server and its clients; the caller's more_certificates issues others in the same folder
  [ -f "$pki/complete" ] && return
  command -v openssl >/dev/null || fail "openssl is needed (Debian: apt-get install openssl)"
  mkdir -p "$pki"
  (
    cd "$pki" || exit
    openssl genrsa -out sa.key 2048 2>/dev/null
    openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null
    for name in ca front-proxy-ca; do
      openssl req -x509 -newkey rsa:2048 -nodes -days 365 -subj "/CN=$name" -keyout $name.key -out $name.crt 2>/dev/null
    done
    issue apiserver /CN=kube-apiserver ca \
      "IP:127.0.0.1,IP:$1,IP:10.96.0.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
    issue admin /O=system:masters/CN=admin ca
    issue controller-manager /CN=system:kube-controller-manager ca
    issue front-proxy-client /CN=front-proxy-client front-proxy-ca
    more_certificates
    touch complete
  )
}

kubeconfig() { # kubeconfig NAME ADDRESS:PORT: embeds everything, so that it can be copied
  local ca cert key
  ca=$(base64 -w0 "$pki/ca.crt") cert=$(base64 -w0 "$pki/$1.crt") key=$(base64 -w0 "$pki/$1.key")
  (umask 077 && cat >"$dir/$1.kubeconfig") <<YAML
apiVersion: v1
kind: Config
clusters: [{name: $me, cluster: {server: "https://$2", certificate-authority-data: $ca}}]
users: [{name: $1, user: {client-certificate-data: $cert, client-key-data: $key}}]
contexts: [{name: $me, context: {cluster: $me, user: $1}}]
current-context: $me
YAML
}

start_etcd() { # start_etcd CLIENT-PORT PEER-PORT
  local client=http://127.0.0.1:$1 peer=http://127.0.0.1:$2
  start etcd "$bin/etcd" --data-dir "$dir/etcd" --listen-client-urls "$client" --advertise-client-urls "$client" \
    --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" --initial-cluster "default=$peer" --log-level warn
}

start_apiserver() { # start_apiserver ETCD-PORT OPTION…
  local etcd=http://127.0.0.1:$1
  shift
  start kube-apiserver "$bin/kube-apiserver" --etcd-servers="$etcd" --service-cluster-ip-range=10.96.0.0/16 --authorization-mode=Node,RBAC \
    --client-ca-file="$pki/ca.crt" --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
    --service-account-issuer=https://kubernetes.default.svc \
    --service-account-key-file="$pki/sa.pub" --service-account-signing-key-file="$pki/sa.key" \
    --requestheader-client-ca-file="$pki/front-proxy-ca.crt" --requestheader-allowed-names=front-proxy-client \
    --requestheader-extra-headers-prefix=X-Remote-Extra- --requestheader-group-headers=X-Remote-Group \
    --requestheader-username-headers=X-Remote-User --proxy-client-cert-file="$pki/front-proxy-client.crt" \
    --proxy-client-key-file="$pki/front-proxy-client.key" --enable-aggregator-routing=true --allow-privileged=true "$@"
}

start_controllers() { # start_controllers PORT OPTION…
  local port=$1
  shift
  start kube-controller-manager "$bin/kube-controller-manager" --kubeconfig="$dir/controller-manager.kubeconfig" \
    --bind-address=127.0.0.1 --secure-port="$port" --leader-elect=false --use-service-account-credentials \
    --service-account-private-key-file="$pki/sa.key" --root-ca-file="$pki/ca.crt" --kube-api-qps=500 --kube-api-burst=1000 "$@"
}

server_version() { kubectl version -o yaml | sed -n '/^serverVersion/,$s/.*gitVersion: //p'; }
