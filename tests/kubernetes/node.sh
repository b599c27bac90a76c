# A node: namespaces with containerd, kubelet and kube-proxy in them; sourced by cluster.sh.
# Its first process is all that holds the namespaces. When it ends, everything that runs on the node does, and every mount and device is gone.
# shellcheck shell=bash disable=SC2154

node_namespaces=(--mount --uts --ipc --net --pid)

node_pid() { # node_pid NODE: the first process; unshare is its parent
  alive "$1" && pgrep --parent "$(cat "$dir/$1.pid")"
}
in_node() { # in_node NODE COMMAND…
  local pid
  pid=$(node_pid "$1") || fail "$1 does not run"
  shift
  nsenter --target "$pid" "${node_namespaces[@]}" -- "$@"
}
pid_in_node() { # pid_in_node NODE PROGRAM: as the host numbers it
  local pid
  pid=$(node_pid "$1") && pgrep --exact --ns "$pid" --nslist pid "$2"
}

cgroup_of() { echo "ferrovirt-kubernetes-$1"; }
# With cgroup v1 every controller is a hierarchy of its own, and a new cpuset is of no use before it has been filled in.
make_cgroups() { # make_cgroups NODE
  local hierarchy new file
  for hierarchy in $(findmnt --noheadings --output TARGET --types cgroup,cgroup2); do
    new=$hierarchy/$(cgroup_of "$1")
    mkdir -p "$new"
    if [ "$hierarchy" = /sys/fs/cgroup ]; then
      # Version 2 alone: systemd has handed down most of these already.
      for file in cpu cpuset memory pids io; do
        grep -qw "$file" "$hierarchy/cgroup.subtree_control" || echo "+$file" >"$hierarchy/cgroup.subtree_control"
      done
    elif [ -e "$new/cpuset.cpus" ]; then
      for file in cpuset.cpus cpuset.mems; do cat "$hierarchy/$file" >"$new/$file"; done
    fi
  done
}
remove_cgroups() { # remove_cgroups NODE: as soon as its last process is gone
  local deadline=$((SECONDS + 20)) found
  while mapfile -t found < <(find /sys/fs/cgroup -maxdepth 2 -type d -name "$(cgroup_of "$1")") && [ ${#found[@]} -gt 0 ]; do
    find "${found[@]}" -depth -type d -exec rmdir {} \; 2>/dev/null || true
    [ $SECONDS -lt $deadline ] || fail "cgroups cannot be removed: ${found[*]}"
    sleep 0.1
  done
}

# A node has its own /run and /var: what is written to the host's paths stays with the node, and the host's files are seen all the same.
# /var/lib/kubelet and /var/lib/containerd are on the disk itself, since an overlay cannot hold the layers of another.
mount_node() { # mount_node NODE: in its mount namespace
  local own=$dir/$1 setting
  mkdir -p "$own"/{var,work,kubelet,containerd,settings}
  # As on any machine with systemd, mounts are shared unless somebody wants otherwise; the host is not among those who share them.
  mount --make-rshared /
  mount -t tmpfs -o mode=755 tmpfs /run
  mount -t overlay -o "lowerdir=/var,upperdir=$own/var,workdir=$own/work" overlay /var
  mkdir -p /var/lib/kubelet /var/lib/containerd
  mount --bind "$own/kubelet" /var/lib/kubelet
  mount --bind "$own/containerd" /var/lib/containerd
  # A kubelet changes these for the whole machine, unless it finds them as it wants them.
  for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    echo "${setting#*=}" >"$own/settings/$(basename "${setting%=*}")"
    mount --bind "$own/settings/$(basename "${setting%=*}")" "/proc/sys/${setting%=*}"
  done
  hostname "$1"
}

boot() { # boot NODE: the namespaces and what is in them before the first program
  local node=$1 pid
  if node_pid "$node" >/dev/null; then return; fi
  # After a power cut there are none of former containers; a kubelet looks at each for seconds before it is ready.
  remove_cgroups "$node"
  make_cgroups "$node"
  start "$node" unshare "${node_namespaces[@]}" --fork --kill-child --mount-proc "$bin/pause" "$dir/$node"
  until_true 10 "$node's namespaces" is_booted "$node"
  pid=$(node_pid "$node")
  nsenter --target "$pid" --mount --uts --pid -- env dir="$dir" bash -euc "$(declare -f mount_node); mount_node $node"
}
# The first process is unshare's until its namespaces are complete.
is_booted() { [ "$(cat "/proc/$(node_pid "$1")/comm")" = pause ]; }

configure() { # configure NODE
  local own=$dir/$1 masquerade_all=true
  mkdir -p "$own/cni"
  if bridge_is_filtered; then masquerade_all=false; fi
  cat >"$own/cni/10-pods.conflist" <<JSON
{"cniVersion": "0.4.0", "name": "pods", "plugins": [{
  "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "$(pod_range "$1")"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
JSON
  # Without CAP_SYS_RESOURCE, as root has it in many containers, a process cannot be made safer from the OOM killer.
  cat >"$own/containerd.toml" <<TOML
version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = 'localhost/pause:1'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['/usr/lib/cni']
  conf_dir = '$own/cni'
[plugins.'io.containerd.internal.v1.opt']
  path = '/var/lib/containerd/opt'
TOML
  # Images are only imported, so they must not be collected; nor shall a full disk of the machine evict pods.
  cat >"$own/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $pki/$1.crt
tlsPrivateKeyFile: $pki/$1.key
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$(cgroup_of "$1")
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
localStorageCapacityIsolation: true
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 0%, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%, imagefs.inodesFree: 0%}
volumePluginDir: /var/lib/kubelet/volume-plugins
YAML
  # What conntrack may hold is the host's to say.
  cat >"$own/kube-proxy.yaml" <<YAML
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: $dir/kube-proxy.kubeconfig}
clusterCIDR: $range.0.0/16
nftables: {masqueradeAll: $masquerade_all}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
YAML
}

start_program() { # start_program NODE PROGRAM
  local node=$1 program=$2 own=$dir/$1 arguments pid
  case $program in
    containerd) arguments=(--config "$own/containerd.toml") ;;
    kubelet) arguments=(--config="$own/kubelet.yaml" --kubeconfig="$dir/$node.kubeconfig" --hostname-override="$node" --node-ip="$(node_address "$node")") ;;
    kube-proxy) arguments=(--config="$own/kube-proxy.yaml" --hostname-override="$node") ;;
    *) fail "unknown program '$program'; a node has: containerd, kubelet, kube-proxy" ;;
  esac
  if pid_in_node "$node" "$program" >/dev/null; then return; fi
  pid=$(node_pid "$node") || fail "$node does not run; cluster.sh start $node starts all of it"
  # The node's first process adopts it. containerd finds its shim by the path.
  (detached "$own/$program.log" nsenter --target "$pid" "${node_namespaces[@]}" -- \
    env PATH="$bin:$PATH" setsid --fork "$bin/$program" "${arguments[@]}")
  until_true 60 "$node's $program" works "$node" "$program"
}
works() { # works NODE PROGRAM: whether it answers
  case $2 in
    containerd) in_node "$1" "$bin/ctr" version ;;
    kubelet) in_node "$1" bash -c 'exec 3<>/dev/tcp/127.0.0.1/10248' ;;
    kube-proxy) in_node "$1" bash -c 'exec 3<>/dev/tcp/127.0.0.1/10249' ;;
  esac
}

kill_in_node() { # kill_in_node NODE PROGRAM
  local pid
  pid=$(pid_in_node "$1" "$2") || fail "no $2 runs on $1"
  kill -9 "$pid"
  until_true 10 "the end of $1's $2" is_gone "$1" "$2"
}
is_gone() { ! pid_in_node "$1" "$2"; }

start_node() { # start_node NODE: what of it does not run
  local node=$1 name
  boot "$node"
  connect_node "$node"
  if bridge_is_filtered; then nsenter --target "$(node_pid "$node")" --net sh -c 'echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables'; fi
  configure "$node"
  start_program "$node" containerd
  for name in pause busybox; do
    has_image "$node" "localhost/$name:1" || import_on "$node" "$dir/images/$name.tar"
  done
  start_program "$node" kubelet
  start_program "$node" kube-proxy
}

stop_node() { # stop_node NODE: as when its power fails
  local pid
  if pid=$(node_pid "$1"); then kill -9 "$pid"; fi
  until_true 20 "the end of $1" is_off "$1"
  rm -f "$dir/$1.pid"
}
is_off() { ! alive "$1"; }
