# What a node runtime does for a launcher pod, as far as the launcher cares: private directories, devices and entries in passwd and group, then uid 107
# without capabilities as pid 1. Runs in new mount and pid namespaces: nothing of it stays.
# Usage: pod.sh LAUNCHER ARGUMENT...
set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/kubevirt-private/vmi-disks/root /run/kubevirt/sockets /run/kubevirt-ephemeral-disks /run/libvirt /run/dev
head -c 1048576 /dev/zero > /run/kubevirt-private/vmi-disks/root/disk.img
printf '%b' "$BOOT_SECTOR" | dd of=/run/kubevirt-private/vmi-disks/root/disk.img conv=notrunc status=none
if [ -n "$SHARED" ]; then
    mkdir /run/kubevirt-private/vmi-disks/shared
    mount --bind "$SHARED" /run/kubevirt-private/vmi-disks/shared
fi
chown -R 107:107 /run/kubevirt-private /run/kubevirt /run/kubevirt-ephemeral-disks /run/libvirt
cp /etc/passwd /run/passwd
echo 'qemu:x:107:107::/:/bin/false' >> /run/passwd
mount --bind /run/passwd /etc/passwd
cp /etc/group /run/group
echo 'qemu:x:107:' >> /run/group
mount --bind /run/group /etc/group
# Without /dev/kvm, so that the guest is emulated on every machine.
for device in null zero full random urandom; do
    touch /run/dev/$device
    mount --bind /dev/$device /run/dev/$device
done
touch /run/dev/termination-log
chown 107 /run/dev/termination-log
mount --rbind /run/dev /dev
touch /run/virt-launcher
mount --bind "$1" /run/virt-launcher
shift
exec setpriv --reuid 107 --regid 107 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all \
    /run/virt-launcher "$@"
