#!/usr/bin/env bash
# Builds the programs that judge our API server, from the versions that go.mod pins:
#   build.sh                    etcd, kube-apiserver, kube-controller-manager and kubectl
#   build.sh kubectl            only the named ones
# They go to ${FERROVIRT_CACHE:-~/.cache/ferrovirt}/reference/bin; what was built from the same go.mod is left alone.
# Exit status 3: no Go that is new enough, and none can be installed. Callers may then skip what needs the reference.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${FERROVIRT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ferrovirt}/reference
bin=$cache/bin
go_wanted=1.26.0
programs=(etcd kubectl kube-apiserver kube-controller-manager)

say() { echo "reference: $*" >&2; }
no_go() { say "$*"; exit 3; }

package_of() {
  case $1 in
    etcd) echo go.etcd.io/etcd/server/v3 ;;
    kubectl | kube-apiserver | kube-controller-manager) echo "k8s.io/kubernetes/cmd/$1" ;;
    *) say "unknown program $1; there are: ${programs[*]}"; return 1 ;;
  esac
}

# at_least VERSION MINIMUM, both as 1.26.0 or 1.26
at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }
version_of() { (cd / && "$1" env GOVERSION 2>/dev/null) | sed 's/^go//; s/[^0-9.].*//'; }

# Go before 1.21 cannot switch to a newer toolchain by itself, but it can download one as a module. Unpacked by such a Go it
# lacks what newer ones put right: executable bits, and the go.mod files, which a module zip must carry under another name.
bootstrap_with_old_go() { # bootstrap_with_old_go OLD-GO: prints the new go's path
  local root=$cache/go-$go_wanted dir
  if ! [ -x "$root/bin/go" ]; then
    say "fetching the Go $go_wanted toolchain with $("$1" version | cut -d' ' -f3)"
    dir=$(cd / && GOFLAGS=-modcacherw GOPATH="$cache/bootstrap" "$1" mod download -json \
      "golang.org/toolchain@v0.0.1-go$go_wanted.linux-$("$1" env GOARCH)" | sed -n 's/^[[:space:]]*"Dir": "\(.*\)".*/\1/p')
    [ -n "$dir" ] || return 1
    find "$dir/src" -name _go.mod -execdir mv {} go.mod \;
    chmod -R u+w "$dir"
    chmod +x "$dir"/bin/* "$dir"/pkg/tool/*/*
    mkdir -p "$cache"
    mv "$dir" "$root"
    rm -rf "$cache/bootstrap"
  fi
  echo "$root/bin/go"
}

find_go() { # prints a go that can build our go.mod
  local candidate version old=
  for candidate in "$(command -v go || true)" /usr/local/go/bin/go "$cache/go-$go_wanted/bin/go"; do
    [ -x "$candidate" ] || continue
    version=$(version_of "$candidate")
    if at_least "$version" "${go_wanted%.*}" || at_least "$version" 1.21; then echo "$candidate"; return; fi
    old=$candidate
  done
  if [ -z "$old" ]; then
    command -v apt-get >/dev/null || no_go "Go 1.21 or newer is needed to build Kubernetes; install it and run this again"
    [ "$(id -u)" = 0 ] || no_go "Go is needed to build Kubernetes: run as root, or install Go 1.21 or newer (apt-get install golang-go will do)"
    say "apt-get install golang-go (to fetch the Go that builds Kubernetes)"
    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends golang-go ca-certificates; } >&2 \
      || no_go "Go could not be installed"
    old=$(command -v go)
    if at_least "$(version_of "$old")" 1.21; then echo "$old"; return; fi
  fi
  bootstrap_with_old_go "$old" || no_go "Go $go_wanted could not be fetched with $old"
}

version_flags() {
  local version major minor package flags=
  version=$(sed -n 's|^[[:space:]]*k8s.io/kubernetes \(v[0-9.]*\).*|\1|p' "$here/go.mod" | head -n 1)
  major=${version#v}; major=${major%%.*}
  minor=${version#v*.}; minor=${minor%%.*}
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $package.gitVersion=$version -X $package.gitMajor=$major -X $package.gitMinor=$minor -X $package.gitTreeState=clean"
  done
  echo "-s -w$flags"
}

main() {
  local wanted=("$@") program go='' stamp started missing=()
  [ $# -gt 0 ] || wanted=("${programs[@]}")
  stamp=$(cat "$here/go.mod" "$here/go.sum" | sha256sum | cut -c1-16)
  for program in "${wanted[@]}"; do
    package_of "$program" >/dev/null
    [ -x "$bin/$program" ] && [ "$(cat "$bin/.$program.stamp" 2>/dev/null)" = "$stamp" ] || missing+=("$program")
  done
  [ ${#missing[@]} -gt 0 ] || { say "${wanted[*]}: built already, in $bin"; return; }

  go=$(find_go)
  say "building ${missing[*]} with $(version_of "$go") (minutes the first time, and about 5 GB of Go caches)"
  mkdir -p "$bin"
  for program in "${missing[@]}"; do
    started=$SECONDS
    say "building $program …"
    # A workspace, root or flags that the user has set must not leak in.
    (cd "$here" && GOROOT= GOWORK=off GOFLAGS= GOTOOLCHAIN=auto CGO_ENABLED=0 "$go" build -mod=readonly -buildvcs=false -trimpath \
      -ldflags "$(version_flags)" -o "$bin/.$program.new" "$(package_of "$program")")
    mv "$bin/.$program.new" "$bin/$program"
    echo "$stamp" >"$bin/.$program.stamp"
    say "built $program in $((SECONDS - started)) s"
  done
}

main "$@"
