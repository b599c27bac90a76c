#!/usr/bin/env bash
# Makes the launcher image's file system from Debian packages, without our own programs, and prints the directory that it is in.
#   build.sh
# Packages are unpacked, never configured, and only the programs that are named below stay. A result is kept in
# ${FERROVIRT_CACHE:-~/.cache/ferrovirt}/launcher under a hash of this folder and of Debian's package indices: as long as neither changes,
# the image is the same. Other mirrors: DEBIAN_MIRROR and DEBIAN_SECURITY_MIRROR; those of one day on snapshot.debian.org stay as they are.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${FERROVIRT_CACHE:-$HOME/.cache/ferrovirt}/launcher
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
security=${DEBIAN_SECURITY_MIRROR:-http://deb.debian.org/debian-security}
release=bookworm

packages=(
  base-files netbase
  qemu-system-x86 qemu-utils ovmf seabios
  libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients
  swtpm swtpm-tools
  nftables iproute2
)
# All programs of the image besides ours. There is no shell, and nothing that changes its user.
programs=(
  usr/bin/qemu-system-x86_64 usr/bin/qemu-img usr/lib/qemu/virtiofsd
  usr/sbin/libvirtd usr/bin/virsh
  usr/bin/swtpm usr/bin/swtpm_setup usr/bin/swtpm_localca usr/bin/swtpm_cert usr/bin/swtpm_ioctl usr/bin/certtool
  usr/sbin/nft usr/bin/ip
)
program_directories=(usr/bin usr/sbin usr/libexec usr/lib/qemu usr/games)
# Of no use to a program. Licences stay.
left_out=(doc man info locale lintian bash-completion bug iso-codes xml/iso-codes perl5 debconf pam pam-configs)

say() { echo "launcher: $*" >&2; }
need() { command -v "$1" >/dev/null || { say "$1 is missing: install the package $2"; exit 1; }; }
need mmdebstrap mmdebstrap; need ldconfig libc-bin

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

sources=("$mirror $release" "$mirror $release-updates" "$security $release-security")
index=0
for source in "${sources[@]}"; do
  read -r address suite <<<"$source"
  echo "deb $address $suite main" >>"$work/sources.list"
  /usr/lib/apt/apt-helper -qq -o APT::Sandbox::User=root download-file "$address/dists/$suite/InRelease" "$work/InRelease.$((index += 1))" >&2 ||
    { say "cannot read $address/dists/$suite/InRelease: set DEBIAN_MIRROR and DEBIAN_SECURITY_MIRROR to mirrors within reach"; exit 1; }
done
key=$({
  cd "$here"
  find build.sh rootfs -type f -print0 | sort -z | xargs -0 sha256sum
  cat "$work"/InRelease.*
} | sha256sum | cut -c1-16)
if [ -e "$cache/$key" ]; then
  say "as before ($key)"
  echo "$cache/$key"
  exit 0
fi

say "unpacking Debian's packages"
root=$work/root
mkdir "$root"
excluded=()
for name in "${left_out[@]}"; do excluded+=(--dpkgopt="path-exclude=/usr/share/$name/*"); done
excluded+=(--dpkgopt='path-include=/usr/share/doc/*/copyright')
# The packages' descriptions stay, where scanners look for them in images without a package manager.
# shellcheck disable=SC2016 # expanded where mmdebstrap runs it
describe='mkdir -p "$1/var/lib/dpkg/status.d" && for deb in "$1"/var/cache/apt/archives/*.deb; do
  name=$(dpkg-deb --field "$deb" Package) && dpkg-deb --field "$deb" >"$1/var/lib/dpkg/status.d/$name" || exit 1; done'
mmdebstrap --quiet --variant=extract --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr --extract-hook="$describe" \
  --include="$(IFS=,; echo "${packages[*]}")" "${excluded[@]}" "$release" - "$work/sources.list" 2>"$work/log" |
  tar -x -C "$root" --no-same-owner --exclude='./dev/*' || { cat "$work/log" >&2; say "mmdebstrap failed"; exit 1; }

say "leaving out what launchers do not use"
(
  cd "$root"
  for directory in "${program_directories[@]}"; do
    [ -d "$directory" ] && find "$directory" ! -type d -printf '%p\n'
  done | grep -vxFf <(printf '%s\n' "${programs[@]}") | xargs -r rm -f
  for program in "${programs[@]}"; do [ -x "$program" ] || { say "no package has $program"; exit 1; }; done
  find usr/share -type d -empty -delete
  find var/lib/dpkg -mindepth 1 -maxdepth 1 ! -name status.d -exec rm -rf {} +
  rm -rf var/lib/apt var/cache/* var/log/* etc/{apt,dpkg,default,pam.d,security,cron.daily} lib/systemd/system
  # What the container runtime fills, and what mmdebstrap took from this machine.
  for file in hostname hosts resolv.conf; do : >"etc/$file"; done
  mkdir -p dev proc sys run tmp
  chmod 1777 tmp
)
cp -r "$here"/rootfs/. "$root/"
echo "include /etc/ld.so.conf.d/*.conf" >"$root/etc/ld.so.conf"
PATH=$PATH:/sbin:/usr/sbin ldconfig -r "$root" -X
rm -rf "$root/var/cache/ldconfig"
chmod -R u+w,a+rX "$root"

mkdir -p "$cache"
rm -rf "$cache/$key.new"
cp -r --preserve=mode,links "$root" "$cache/$key.new"
mv "$cache/$key.new" "$cache/$key"
say "$(du -sh "$root" | cut -f1), $(find "$root/var/lib/dpkg/status.d" -type f | wc -l) packages ($key)"
echo "$cache/$key"
