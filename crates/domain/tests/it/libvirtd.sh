# Functions for a libvirt of its own: without privileges, in namespaces that end with this shell, which is their first process.
# Nothing of it is seen outside, and nothing stays.
set -euo pipefail

USER_ID=65534 # nobody: libvirt needs an entry in the password file
BASE=/run/test
export XDG_RUNTIME_DIR=$BASE/run XDG_CONFIG_HOME=$BASE/config XDG_CACHE_HOME=$BASE/cache XDG_DATA_HOME=$BASE/data HOME=$BASE
export TMPDIR=$BASE/tmp # the caller's may lie where only root can go
URI="qemu:///session?socket=$XDG_RUNTIME_DIR/libvirt/libvirt-sock"

unprivileged() {
  setpriv --reuid=$USER_ID --regid=$USER_ID --clear-groups --no-new-privs --bounding-set=-all "$@"
}

# A private /run, and a /dev in which devices can be made.
private_directories() {
  mount -t tmpfs -o mode=755 tmpfs /run
  mount -t tmpfs -o mode=755 tmpfs /mnt
  for device in null zero full random urandom tty ptmx; do cp -a "/dev/$device" /mnt/; done
  for device in /dev/loop*; do [ -e "$device" ] && cp -a "$device" /mnt/; done
  mkdir -p /mnt/pts /mnt/net
  mkdir -m 1777 /mnt/shm
  mount --bind /dev/pts /mnt/pts
  mknod -m 666 /mnt/net/tun c 10 200
  mount --move /mnt /dev
  mkdir -p "$XDG_RUNTIME_DIR" "$XDG_CONFIG_HOME/libvirt" "$XDG_CACHE_HOME" "$XDG_DATA_HOME" "$TMPDIR"
}

start_libvirt() {
  echo 'stdio_handler = "file"' > "$XDG_CONFIG_HOME/libvirt/qemu.conf"
  printf 'auth_unix_rw = "none"\nhost_uuid = "7c1b2f0e-3b1d-4c57-9d57-7a0c2f6f4d12"\n' > "$XDG_CONFIG_HOME/libvirt/libvirtd.conf"
  chown -R $USER_ID:$USER_ID $BASE
  unprivileged libvirtd --config "$XDG_CONFIG_HOME/libvirt/libvirtd.conf" 2> $BASE/errors &
  for _ in $(seq 600); do
    unprivileged virsh -q -c "$URI" version > $BASE/said 2>&1 && return
    sleep 0.1
  done
  cat $BASE/errors $BASE/said
  return 1
}

virsh() {
  unprivileged virsh -q -c "$URI" "$@"
}

directory() {
  mkdir -p "$1"
}

# A disk image of a format.
image() {
  directory "$(dirname "$2")"
  [ -e "$2" ] || qemu-img create -q -f "$1" "$2" 16M
}

# A qcow2 over a raw image.
overlay() {
  directory "$(dirname "$2")"
  [ -e "$2" ] || qemu-img create -q -f qcow2 -F raw -b "$1" "$2"
}

# A block device. It detaches by itself when the last process that has it open ends.
device() {
  [ -e "$1" ] && return
  truncate -s 16M "$BASE/$(basename "$1").backing"
  local loop holder
  loop=$(losetup -f --show "$BASE/$(basename "$1").backing")
  [ -e "$loop" ] || mknod "$loop" b 7 "${loop#/dev/loop}"
  exec {holder}<"$loop"
  losetup -d "$loop"
  mknod "$1" b 7 "${loop#/dev/loop}"
  chown $USER_ID "$1"
}

tap() {
  ip link delete "$1" 2> /dev/null || true
  local queues=()
  [ "$2" -gt 1 ] && queues=(multi_queue)
  ip tuntap add "$1" mode tap user $USER_ID vnet_hdr "${queues[@]}"
}

# Says `defined NAME`, or `failed NAME` and why. The document may lie where only root can go, so virsh gets a copy.
define() {
  install -m 644 "$2" $BASE/document.xml
  if virsh define --validate $BASE/document.xml > $BASE/said 2>&1; then
    echo "defined $1"
  else
    echo "failed $1: $(tr '\n' ' ' < $BASE/said)"
    return 1
  fi
}

# Says `started NAME`, and leaves what libvirt made of the document in a file.
start() {
  chown -R $USER_ID:$USER_ID /run/kubevirt*
  if virsh start --paused "$2" > $BASE/said 2>&1; then
    echo "started $1"
    virsh dumpxml "$2" > "$3"
    virsh destroy "$2"
  else
    echo "failed $1: $(tr '\n' ' ' < $BASE/said)"
  fi
}
