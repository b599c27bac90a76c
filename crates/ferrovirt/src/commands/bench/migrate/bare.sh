# A libvirt daemon as it runs in a launcher pod, and nothing around it. Runs in new mount and process namespaces: nothing of it stays.
# Usage: bare.sh FILES ADDRESS
set -e
mount --make-rprivate /
mkdir -p "$1/tmpfs"
mount -t tmpfs tmpfs "$1/tmpfs"
cp -a --sparse=always $(find "$1" -mindepth 1 -maxdepth 1 ! -name tmpfs) "$1/tmpfs/"
mount -n --move "$1/tmpfs" /run
mkdir -p /run/libvirt /run/home/libvirt /run/dev
chown -R 107:107 /run
for file in passwd group; do
  cp /etc/$file /run/$file
  mount -n --bind /run/$file /etc/$file
done
echo 'qemu:x:107:107::/:/bin/false' >>/etc/passwd
echo 'qemu:x:107:' >>/etc/group
# Without /dev/kvm where launchers have none either: it is the guest's domain that says.
cat >/run/libvirt/libvirtd.conf <<END
listen_tls = 0
listen_tcp = 1
listen_addr = "$2"
auth_tcp = "none"
auth_unix_rw = "none"
host_uuid = "$(cat /proc/sys/kernel/random/uuid)"
END
printf 'stdio_handler = "file"\nsecurity_driver = "none"\nremember_owner = 0\nnamespaces = []\ncgroup_controllers = []\n' >/run/home/libvirt/qemu.conf
export XDG_RUNTIME_DIR=/run XDG_CONFIG_HOME=/run/home XDG_CACHE_HOME=/run/home HOME=/run/home
# This shell is the first process here and reaps at once whatever libvirt leaves to it.
setpriv --reuid 107 --regid 107 --clear-groups /usr/sbin/libvirtd --listen --config /run/libvirt/libvirtd.conf --pid-file /run/libvirt/pid 2>/run/libvirt/log &
wait $!
