# The network between host and nodes; sourced by cluster.sh. A switch in a network namespace of its own has a port for each:
#
#   host, 10.198.255.1 ── switch ──┬── node1, 10.198.255.11, pods 10.198.1.0/24
#                                  └── node2, 10.198.255.12, pods 10.198.2.0/24
#
# The host forwards nothing, so its settings and its firewall stay as they are; what is left on it is one device, which ends with the switch.
# shellcheck shell=bash disable=SC2154

index_of() { echo "${1#node}"; }
node_address() { echo "$range.255.1$(index_of "$1")"; }
pod_range() { echo "$range.$(index_of "$1").0/24"; }

in_switch() { nsenter --target "$(cat "$dir/switch.pid")" --net "$@"; }

network() {
  local node
  # What an earlier switch has left belongs to nobody.
  alive switch || ip link delete "$uplink" 2>/dev/null || true
  start switch unshare --net "$bin/pause" "$dir/switch"
  until_true 10 "the switch's namespace" has_own_network "$(cat "$dir/switch.pid")"
  if ! in_switch ip link show br0 >/dev/null 2>&1; then
    in_switch ip link add br0 type bridge
    in_switch ip link set br0 up
  fi
  ip link show "$uplink" >/dev/null 2>&1 || plug host ip link add "$uplink"
  ip link set "$uplink" up alias "$dir"
  ip address replace "$host_address/24" dev "$uplink"
  for node in "${nodes[@]}"; do ip route replace "$(pod_range "$node")" via "$(node_address "$node")"; done
}
has_own_network() { [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }
network_is_up() { alive switch && ip link show "$uplink"; }
no_uplink() { ! ip link show "$uplink"; }

plug() { # plug PORT COMMAND…: the command, an ip link add, makes one end of the cable; the other goes into the switch
  local port=$1
  shift
  "$@" type veth peer name "$port" netns "$(cat "$dir/switch.pid")"
  in_switch ip link set "$port" master br0 up
}

connect_node() { # connect_node NODE: in its namespace, which begins empty
  local node=$1 other pid
  pid=$(node_pid "$node")
  in_network() { nsenter --target "$pid" --net "$@"; }
  in_network ip link set lo up
  in_network ip link show eth0 >/dev/null 2>&1 || plug "$node" in_network ip link add eth0
  in_network ip address replace "$(node_address "$node")/24" dev eth0
  in_network ip link set eth0 up
  in_network ip route replace default via "$host_address"
  for other in "${nodes[@]}"; do
    [ "$other" = "$node" ] || in_network ip route replace "$(pod_range "$other")" via "$(node_address "$other")"
  done
  in_network sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
}

# A Service's pod may be on its client's bridge. The answer has to come back through the rules that changed the address.
bridge_is_filtered() { [ -e /proc/sys/net/bridge/bridge-nf-call-iptables ] || modprobe br_netfilter 2>/dev/null; }
