#!/usr/bin/env bash
# Builds the test guest from Debian packages:
#   build.sh OUTDIR
# leaves in OUTDIR
#   vmlinuz, initrd       to boot directly
#   guest.img             a raw disk that boots from BIOS and from EFI
#   guest.tar             that disk as the container disk ferrovirt.io/guest:test (docker-archive)
#   guest-kernel.tar      /boot/vmlinuz and /boot/initrd as ferrovirt.io/guest-kernel:test (docker-archive)
#   guest-hostile.tar     a qcow2 that wants to read the host's /etc/passwd, as ferrovirt.io/guest-hostile:test (docker-archive)
# Packages are downloaded and unpacked, never installed. A result is kept in ${FERROVIRT_CACHE:-~/.cache/ferrovirt}/guest under a hash of
# this folder and of the packages' versions, and only copied from there when nothing has changed.
set -euo pipefail

[ $# = 1 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${FERROVIRT_CACHE:-$HOME/.cache/ferrovirt}/guest
outputs=(vmlinuz initrd guest.img guest.tar guest-kernel.tar guest-hostile.tar)

# The kernel for cloud machines is small and unpacks fast; it knows virtio, and neither SATA nor emulated network cards.
kernel_package=linux-image-cloud-amd64
# What runs in the guest, with the libraries it needs.
guest_packages=(
  busybox-static
  qemu-guest-agent libglib2.0-0 libpcre2-8-0 libnuma1 libudev1 liburing2
  dropbear-bin libtomcrypt1 libtommath1 libgmp10 libcrypt1 zlib1g
  wide-dhcpv6-client libfl2
  libc6
)
# What makes the disk bootable; these run here, from where they are unpacked.
tool_packages=(mtools syslinux syslinux-common systemd-boot-efi)
# Drivers beside those that are built in; what they need comes along.
modules=(
  virtio_pci virtio_blk virtio_net virtio_scsi virtio_console virtio-rng virtio_balloon virtio_input virtiofs
  sd_mod sr_mod isofs vfat nls_cp437 nls_ascii nls_utf8 evdev button pvpanic-mmio pvpanic-pci
  vmw_vsock_virtio_transport
)
# The disk's partition: enough for kernel and initrd twice, once for BIOS and once in the EFI program.
disk_megabytes=64
# Emulated guests on a busy machine must not take their timer for a broken one; and the kernel's tests of its own cryptography are a
# sixth of what an emulated boot costs.
command_line="console=tty0 console=ttyS0 quiet no_timer_check cryptomgr.notests"

say() { echo "guest: $*" >&2; }
need() { command -v "$1" >/dev/null || { say "$1 is missing: install the package $2"; exit 1; }; }
need apt-get apt; need dpkg-deb dpkg; need cpio cpio; need zstd zstd; need objcopy binutils; need busybox busybox-static; need qemu-img qemu-utils

# versions PACKAGE…: the versions that would be downloaded
versions() { apt-cache policy "$@" | awk '/^[^ ]/ { name = $1 } /Candidate:/ { print name, $2 }'; }
kernel_of() { apt-cache depends "$kernel_package" | awk '$1 == "Depends:" && /linux-image-/ { print $2; exit }'; }

[ -n "$(kernel_of)" ] || { say "asking Debian for its list of packages"; apt-get -qq update; }
kernel=$(kernel_of)
[ -n "$kernel" ] || { say "no $kernel_package: this needs Debian's package sources"; exit 1; }
key=$({
  cd "$here"
  find build.sh rootfs -type f -print0 | sort -z | xargs -0 sha256sum
  find build.sh rootfs -type f -perm -u+x | sort
  versions "$kernel" "${guest_packages[@]}" "${tool_packages[@]}"
} | sha256sum | cut -c1-16)

deliver() { cp --reflink=auto --sparse=always "$cache/$key/"* "$out/"; }
if [ -e "$cache/$key/${outputs[-1]}" ]; then
  deliver
  say "$out is as before ($key)"
  exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# fetch DIRECTORY PACKAGE…: downloads and unpacks
fetch() {
  local target=$1
  shift
  mkdir -p "$work/debs" "$target"
  download() { (cd "$work/debs" && apt-get -qq -o APT::Sandbox::User=root download "$@"); }
  download "$@" 2>/dev/null || { apt-get -qq update; download "$@"; }
  for package in "$work"/debs/*.deb; do dpkg-deb -x "$package" "$target"; done
  rm -rf "$work/debs"
}

say "downloading packages"
fetch "$work/kernel" "$kernel"
fetch "$work/packages" "${guest_packages[@]}"
fetch "$work/tools" "${tool_packages[@]}"

say "making the initial file system"
root=$work/root
mkdir -p "$root"/{bin,sbin,usr/bin,usr/sbin,lib,lib64,proc,sys,dev,run,tmp,mnt,root,home,srv,etc/dropbear,var/log,var/lib}
ln -s ../run "$root/var/run"
busybox=$work/packages/bin/busybox
cp "$busybox" "$root/bin/busybox"
for applet in $("$busybox" --list); do
  case $applet in busybox | init | linuxrc | shutdown | dpkg* | rpm*) continue ;; esac
  [ -e "$root/bin/$applet" ] || ln -s busybox "$root/bin/$applet"
done
ln -s ../bin/busybox "$root/sbin/init"
ln -s ../bin/busybox "$root/sbin/getty"
cp "$work"/packages/usr/sbin/{qemu-ga,dropbear,dhcp6c} "$root/usr/sbin/"
cp "$work"/packages/usr/bin/dropbearkey "$root/usr/bin/"
# A library is needed when a program or a needed library names it.
libraries() { objdump -p "$@" 2>/dev/null | awk '$1 == "NEEDED" { print $2 }'; }
wanted=$(libraries "$root"/usr/sbin/* "$root"/usr/bin/*)
while [ -n "$wanted" ]; do
  next=
  for library in $(sort -u <<<"$wanted"); do
    [ -e "$root/lib/$library" ] && continue
    file=$(find "$work"/packages/{lib,usr/lib}/x86_64-linux-gnu -maxdepth 1 -name "$library" | head -n 1)
    [ -n "$file" ] || { say "no package has $library"; exit 1; }
    cp -L "$file" "$root/lib/$library"
    next+=$(libraries "$root/lib/$library")$'\n'
  done
  wanted=$(grep . <<<"$next" || true)
done
[ -e "$root/lib/ld-linux-x86-64.so.2" ] || cp -L "$work/packages/lib64/ld-linux-x86-64.so.2" "$root/lib/"
ln -s ../lib/ld-linux-x86-64.so.2 "$root/lib64/ld-linux-x86-64.so.2"

# Drivers with what they need, and the tables that find them.
version=$(ls "$work/kernel/lib/modules")
"$busybox" depmod -n -b "$work/kernel" "$version" 2>/dev/null | grep -E '^[^ #].*\.ko:' >"$work/modules.dep" || true
for module in "${modules[@]}"; do
  line=$(grep -E "(^|/)${module//[-_]/[-_]}\.ko:" "$work/modules.dep" | head -n 1)
  [ -n "$line" ] || { say "the kernel has no module $module"; exit 1; }
  for file in ${line//:/ }; do
    from=$work/kernel/lib/modules/$version/${file#"/lib/modules/$version/"}
    install -D -m 644 "$from" "$root/lib/modules/$version/$(basename "$file")"
  done
done
"$busybox" depmod -b "$root" "$version" 2>/dev/null
cp -a "$here"/rootfs/. "$root/"
cp "$work/kernel/boot/vmlinuz-$version" "$work/vmlinuz"
(cd "$root" && find . -print0 | sort -z | cpio -0 -o -H newc -R 0:0 --reproducible --quiet) | zstd -q -19 >"$work/initrd"

say "making the disk"
export PATH=$work/tools/usr/bin:$PATH MTOOLS_SKIP_CHECK=1 SOURCE_DATE_EPOCH=0
image=$work/guest.img
offset=$((1 << 20))
truncate -s $((disk_megabytes << 20)) "$image"
# One active partition of type EF: syslinux's boot code starts it, and firmware finds EFI programs on it.
sectors=$(((disk_megabytes << 11) - 2048))
little_endian() { printf '\\x%02x\\x%02x\\x%02x\\x%02x' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) $(($1 >> 24 & 255)); }
dd if="$work/tools/usr/lib/syslinux/mbr/mbr.bin" of="$image" conv=notrunc status=none
printf "\x80\xfe\xff\xff\xef\xfe\xff\xff$(little_endian 2048)$(little_endian $sectors)" | dd of="$image" bs=1 seek=446 conv=notrunc status=none
printf '\x55\xaa' | dd of="$image" bs=1 seek=510 conv=notrunc status=none
volume=$image@@$offset
mformat -i "$volume" -v GUEST -N 46455252 -H 2048 -T $sectors -h 255 -s 63 ::
printf 'DEFAULT guest\nLABEL guest\n  LINUX /vmlinuz\n  INITRD /initrd\n  APPEND %s\n' "$command_line" >"$work/syslinux.cfg"
# Kernel, initrd and command line as one EFI program.
printf %s "$command_line" >"$work/command-line"
objcopy --add-section .osrel="$here/rootfs/etc/os-release" --change-section-vma .osrel=0x20000 \
  --add-section .cmdline="$work/command-line" --change-section-vma .cmdline=0x30000 \
  --add-section .linux="$work/vmlinuz" --change-section-vma .linux=0x2000000 \
  --add-section .initrd="$work/initrd" --change-section-vma .initrd=0x4000000 \
  "$work/tools/usr/lib/systemd/boot/efi/linuxx64.efi.stub" "$work/BOOTX64.EFI"
mmd -i "$volume" ::/EFI ::/EFI/BOOT
mcopy -i "$volume" "$work/vmlinuz" "$work/initrd" "$work/syslinux.cfg" ::/
mcopy -i "$volume" "$work/tools/usr/lib/syslinux/modules/bios/ldlinux.c32" ::/
mcopy -i "$volume" "$work/BOOTX64.EFI" ::/EFI/BOOT/
syslinux --offset $offset --install "$image"

say "packing the images"
# pack NAME DIRECTORY ARCHIVE: one layer with the directory's files
pack() {
  local stage=$work/stage
  local tar=(tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=pax --pax-option=delete=atime,delete=ctime)
  rm -rf "$stage" && mkdir "$stage"
  "${tar[@]}" -C "$2" -cf "$stage/layer.tar" .
  local digest
  digest=$(sha256sum "$stage/layer.tar" | cut -d' ' -f1)
  printf '{"architecture":"amd64","os":"linux","config":{},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' "$digest" >"$stage/config.json"
  printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$1" >"$stage/manifest.json"
  "${tar[@]}" -C "$stage" -cf "$3" manifest.json config.json layer.tar
}
mkdir -p "$work"/disk/disk "$work"/boot/boot
ln "$image" "$work/disk/disk/guest.img"
cp "$work/vmlinuz" "$work/initrd" "$work/boot/boot/"
chmod -R a+rX "$work/disk" "$work/boot"
pack ferrovirt.io/guest:test "$work/disk" "$work/guest.tar"
pack ferrovirt.io/guest-kernel:test "$work/boot" "$work/guest-kernel.tar"
mkdir -p "$work/hostile/disk"
qemu-img create -q -u -f qcow2 -F raw -b /etc/passwd "$work/hostile/disk/guest.qcow2" 64M
chmod -R a+rX "$work/hostile"
pack ferrovirt.io/guest-hostile:test "$work/hostile" "$work/guest-hostile.tar"

# The last file marks a complete result.
mkdir -p "$cache"
rm -rf "$cache/$key.new" && mkdir "$cache/$key.new"
for file in "${outputs[@]}"; do cp --sparse=always "$work/$file" "$cache/$key.new/"; done
rm -rf "${cache:?}/$key" && mv "$cache/$key.new" "$cache/$key"
deliver
say "$out has $(du -h "$out/vmlinuz" | cut -f1) of kernel and $(du -h "$out/initrd" | cut -f1) of initrd ($key)"
