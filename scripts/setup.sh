#!/usr/bin/env bash
# Installs the packages that are missing for a purpose, and only those:
#   setup.sh build       what building the release binaries needs
#   setup.sh guests      what running guests on this machine needs
#   setup.sh run         what both need
#   setup.sh images      what building the container images needs
#   setup.sh lint        and the checks of `make lint`
#   setup.sh test        and the tests
#   setup.sh reference   what the reference cluster needs besides Go, which tests/reference/build.sh looks after
#   setup.sh kubernetes  what a Kubernetes with nodes needs besides
# Packages are installed on Debian and Ubuntu as root; elsewhere this says what to install, and fails.
set -euo pipefail

purpose=${1:-build}
packages=()

need() { # need PACKAGE WHY TEST…: remembers the package unless the test passes
  local package=$1 why=$2
  shift 2
  "$@" >/dev/null 2>&1 && return
  echo "setup: $package is missing ($why)"
  packages+=("$package")
}

needs_of_rust() {
  command -v cargo >/dev/null || { echo "setup: Rust is missing; install it from https://rustup.rs and run this again" >&2; exit 1; }
  # cc alone is not enough: it needs the C library's headers.
  need build-essential "a linker, and a C compiler for the ring crate" cc -fsyntax-only -include stdlib.h -x c /dev/null
  need ca-certificates "to fetch crates over HTTPS" test -s /etc/ssl/certs/ca-certificates.crt
}
# Programs in sbin are not on everybody's path.
program() { PATH=$PATH:/usr/sbin:/sbin command -v "$1"; }
needs_of_guests() {
  need qemu-system-x86 "runs the guests" program qemu-system-x86_64
  need qemu-utils "disk images" program qemu-img
  need libvirt-daemon "drives QEMU" program libvirtd
  need libvirt-daemon-driver-qemu "drives QEMU" test -e "/usr/lib/$(uname -m)-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so"
  need libvirt-clients "virsh, to look inside a launcher" program virsh
  need ovmf "EFI firmware" test -d /usr/share/OVMF
  need seabios "BIOS firmware" test -d /usr/share/seabios
  need swtpm "TPM devices" program swtpm
  need swtpm-tools "TPM devices" program swtpm_setup
  need crun "runs containers" program crun
  need conmon "keeps containers while the node restarts" program conmon
  need nftables "guests behind their pod's address" program nft
  need iproute2 "network devices" program ip
}
# The demo guest is made of these.
needs_of_guest_image() {
  need busybox-static "the demo guest's programs" program busybox
  need cpio "the demo guest's first file system" program cpio
  need zstd "the demo guest's first file system" program zstd
  need binutils "the demo guest's EFI program" program objcopy
}
# Static programs for the container images, and the launcher's image.
needs_of_images() {
  local target=x86_64-unknown-linux-musl
  if [ ! -d "$(rustc --print target-libdir --target $target)" ]; then
    command -v rustup >/dev/null || { echo "setup: Rust's target $target is missing; install it as you have installed Rust" >&2; exit 1; }
    echo "setup: adding Rust's target $target (static programs)"
    rustup target add $target
  fi
  need musl-tools "the ring crate in static programs" program musl-gcc
  need mmdebstrap "unpacks Debian's packages for the launcher's image" program mmdebstrap
  need debian-archive-keyring "tells Debian's packages from others" test -e /usr/share/keyrings/debian-archive-keyring.gpg
  need qemu-utils "disk images" program qemu-img
}
needs_of_tests() {
  need libxml2-utils "checks domains against libvirt's schema" program xmllint
  need python3 "the foreign client of the tests" python3 -c pass
  need openssh-client "ssh and scp to guests" program ssh-keygen
  need xorriso "reads the media that are made for guests" xorriso -version
  need python3-venv "the foreign client's own environment" python3 -c 'import venv, ensurepip'
}
needs_of_reference() { need openssl "the reference cluster's certificates" openssl version; }
needs_of_kubernetes() {
  need runc "runs containers" program runc
  need containernetworking-plugins "the pods' network" test -x /usr/lib/cni/bridge
  need iproute2 "the nodes' network" program ip
  need nftables "Services" program nft
  need busybox-static "an image to test with" program busybox
  need util-linux "the nodes' namespaces" program nsenter
  need mount "the nodes' file systems" program mount
  need procps "finds the nodes' processes" program pgrep
  need hostname "the nodes' names" program hostname
  need python3 "a webhook to test with" test -x /usr/bin/python3
}

needs_of_lint() {
  local component
  for component in rustfmt:fmt clippy:clippy; do
    cargo "${component#*:}" --version >/dev/null 2>&1 && continue
    command -v rustup >/dev/null || { echo "setup: cargo ${component#*:} is missing; install Rust's component ${component%:*}" >&2; exit 1; }
    echo "setup: adding Rust's component ${component%:*} (for make lint)"
    rustup component add "${component%:*}"
  done
}

install() {
  [ ${#packages[@]} -gt 0 ] || return 0
  if ! command -v apt-get >/dev/null; then
    echo "setup: packages are only installed on Debian and Ubuntu; please install what these packages hold there: ${packages[*]}" >&2
    exit 1
  fi
  if [ "$(id -u)" != 0 ]; then
    echo "setup: only root can install packages; please run: sudo apt-get install --no-install-recommends ${packages[*]}" >&2
    exit 1
  fi
  echo "setup: apt-get install ${packages[*]}"
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${packages[@]}" </dev/null
}

case $purpose in
  build) needs_of_rust ;;
  lint) needs_of_rust; needs_of_lint ;;
  guests) needs_of_guests; needs_of_guest_image ;;
  run) needs_of_rust; needs_of_guests; needs_of_guest_image ;;
  test) needs_of_rust; needs_of_guests; needs_of_guest_image; needs_of_tests; needs_of_reference ;;
  images) needs_of_rust; needs_of_images; needs_of_guest_image ;;
  reference) needs_of_reference ;;
  kubernetes) needs_of_reference; needs_of_kubernetes ;;
  *) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
install
