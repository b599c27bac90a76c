#!/bin/sh
# Called by dhcp6c, which has set the address already.
set | grep -E '^(new_|REASON)' >/run/lease6
for server in $new_domain_name_servers; do echo "nameserver $server" >>/etc/resolv.conf; done
exit 0
