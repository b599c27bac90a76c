#!/bin/sh
# Called by udhcpc with the lease in the environment.
case $1 in
  deconfig) ip -4 addr flush dev "$interface"; ip link set "$interface" up ;;
  bound | renew)
    [ -n "$mtu" ] && ip link set "$interface" mtu "$mtu"
    ip addr add "$ip/${mask:-24}" dev "$interface" 2>/dev/null
    # RFC 3442: classless routes replace the router.
    if [ -n "$staticroutes" ]; then
      set -- $staticroutes
      while [ $# -ge 2 ]; do
        if [ "$2" = 0.0.0.0 ]; then ip route replace "$1" dev "$interface"; else ip route replace "$1" via "$2" dev "$interface" onlink; fi
        shift 2
      done
    else
      for gateway in $router; do ip route replace default via "$gateway" dev "$interface" onlink; done
    fi
    : >/etc/resolv.conf
    [ -n "$search$domain" ] && echo "search ${search:-$domain}" >>/etc/resolv.conf
    for server in $dns; do echo "nameserver $server" >>/etc/resolv.conf; done
    [ -n "$hostname" ] && [ ! -e /run/hostname-set ] && hostname "$hostname"
    # Who sees the lease may rely on all of the above.
    set | grep -E '^(ip|subnet|mask|router|dns|domain|search|mtu|hostname|staticroutes|serverid|lease|ntpsrv|tftp|bootfile|opt[0-9]+)=' >"/run/lease.$interface.new"
    mv "/run/lease.$interface.new" "/run/lease.$interface"
    ;;
esac
exit 0
