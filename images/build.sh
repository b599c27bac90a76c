#!/usr/bin/env bash
# Builds the container images as OCI archives, without a Docker daemon:
#   build.sh [OUTDIR]    OUTDIR is target/images unless it is said
# leaves in OUTDIR
#   control-plane.tar    REGISTRY/control-plane:VERSION, one static program
#   launcher.tar         REGISTRY/launcher:VERSION, QEMU and libvirt from Debian and our programs
#   launcher.packages    the Debian packages in it, with their versions
#   guest*.tar           the test guest, ferrovirt.io/guest:test and others, as images/guest/build.sh makes it
# and prints name, digest and size of the first two. The same sources, compiler and package indices give the same digests.
# REGISTRY is ferrovirt.io and VERSION the workspace's unless the environment says otherwise; nothing is pushed.
# With PROGRAMS=target/debug the images are made in seconds from programs that are there, for a try or a test on a machine with Debian 12:
# they are larger and may be linked dynamically. Only container-disk, which runs in images that have no libraries, is built in any case.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case $#:${1:-} in 0: | 1:[!-]*) ;; *) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;; esac
mkdir -p "${1:-target/images}"
out=$(cd "${1:-target/images}" && pwd)
registry=${REGISTRY:-ferrovirt.io}
version=${VERSION:-$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)}
target=x86_64-unknown-linux-musl
# Every node downloads the control plane.
largest_control_plane=$((20 * 1000 * 1000))

say() { echo "images: $*"; }
[ "$(uname -m)" = x86_64 ] || { say "the images are for x86_64, and this machine is $(uname -m)" >&2; exit 1; }
scripts/setup.sh images

# Paths of this machine are neither anybody's business nor to change the digest.
static=${CARGO_TARGET_DIR:-target}/$target/image
build_static() { # build_static PACKAGE…
  local cargo_home=${CARGO_HOME:-$HOME/.cargo}
  say "building static programs"
  # A program moves itself to a random address when it starts. The usual list of what to adjust is some MB, which every process would read.
  RUSTFLAGS="${RUSTFLAGS:-} -C link-arg=-Wl,-z,pack-relative-relocs --remap-path-prefix=$cargo_home=/cargo --remap-path-prefix=$PWD=/ferrovirt" \
    cargo build --locked --profile image --target $target "${@/#/--package=}"
}
libraries_of() { ldd "$1" 2>/dev/null | grep -o '/[^ ]*' || true; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A umask of the builder must not show in the image.
umask 022

if [ -n "${PROGRAMS:-}" ]; then
  programs=$work/programs
  install -D -t "$programs" "$PROGRAMS/ferrovirt" "$PROGRAMS/virt-launcher"
  strip --strip-debug "$programs"/*
  build_static ferrovirt-container-disk
else
  build_static ferrovirt ferrovirt-virt-launcher ferrovirt-container-disk
  programs=$static
fi
ferrovirt=$programs/ferrovirt

install -D "$ferrovirt" "$work/control-plane/usr/bin/ferrovirt"
# The launcher has the libraries of Debian's packages.
for library in $(libraries_of "$ferrovirt"); do install -D "$library" "$work/control-plane$library"; done
install -d -m 1777 "$work/control-plane/tmp"
"$ferrovirt" images pack --name "$registry/control-plane:$version" --out "$out/control-plane.tar" \
  --entrypoint /usr/bin/ferrovirt --user 1001:1001 "$work/control-plane" >/dev/null
size=$(stat -c %s "$out/control-plane.tar")
if [ -z "${PROGRAMS:-}" ] && [ "$size" -ge "$largest_control_plane" ]; then
  say "$out/control-plane.tar has $size bytes, and the control plane must have less than $largest_control_plane" >&2
  exit 1
fi

# Debian's part is a layer of its own, which stays the same from one version of ours to the next.
packages=$(images/launcher/build.sh)
install -D -t "$work/launcher/usr/bin" "$ferrovirt" "$programs/virt-launcher" "$static/container-disk"
"$ferrovirt" images pack --name "$registry/launcher:$version" --out "$out/launcher.tar" \
  --entrypoint /usr/bin/virt-launcher --user 107:107 --env PATH=/usr/sbin:/usr/bin "$packages" "$work/launcher" >/dev/null
(cd "$packages/var/lib/dpkg/status.d" && awk '/^(Package|Version):/ { print $2 }' ./* | paste -d' ' - - | sort) >"$out/launcher.packages"

FERROVIRT=$ferrovirt images/guest/build.sh "$work/guest"
mv "$work"/guest/*.tar "$out/"

say "made in $out"
for archive in "$out/control-plane.tar" "$out/launcher.tar"; do
  index=$(tar -xOf "$archive" index.json)
  name=$(sed -n 's/.*"io.containerd.image.name":"\([^"]*\)".*/\1/p' <<<"$index")
  digest=$(sed -n 's/.*"digest":"\([^"]*\)".*/\1/p' <<<"$index")
  printf '%-36s %s %5.1f MB\n' "$name" "$digest" "$(stat -c %s "$archive")e-6"
done
say "the control plane's program has $(stat -c %s "$ferrovirt") bytes"
