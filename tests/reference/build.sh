#!/usr/bin/env bash
# Builds the programs that judge our API server, from the versions that go.mod pins:
#   build.sh                    etcd, kube-apiserver, kube-controller-manager and kubectl
#   build.sh kubectl            only the named ones
#   build.sh virtctl            only when they are named: KubeVirt's own virtctl, helm, and what a node of Kubernetes needs
#                               (kube-scheduler, kubelet, kube-proxy, containerd, containerd-shim-runc-v2, ctr, pause)
# They go to ${FERROVIRT_CACHE:-~/.cache/ferrovirt}/reference/bin; what was built from the same versions is left alone.
# Exit status 3: no Go that is new enough, and none can be installed. Callers may then skip what needs the reference.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${FERROVIRT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ferrovirt}/reference
bin=$cache/bin
go_wanted=1.26.0
programs=(etcd kubectl kube-apiserver kube-controller-manager)
programs_of_nodes=(kube-scheduler kubelet kube-proxy containerd containerd-shim-runc-v2 ctr pause)
programs_of_users=(virtctl helm)
kubevirt=v1.9.0

say() { echo "reference: $*" >&2; }
no_go() { say "$*"; exit 3; }

package_of() {
  case $1 in
    virtctl) echo kubevirt.io/kubevirt/cmd/virtctl ;;
    helm) echo helm.sh/helm/v4/cmd/helm ;;
    etcd) echo go.etcd.io/etcd/server/v3 ;;
    containerd | containerd-shim-runc-v2 | ctr) echo "github.com/containerd/containerd/v2/cmd/$1" ;;
    kubectl | kubelet | kube-*) echo "k8s.io/kubernetes/cmd/$1" ;;
    pause) echo ferrovirt.test/reference/pause ;;
  esac
}
module_of() { # the folder of the go.mod that pins it
  case $1 in
    containerd | containerd-shim-runc-v2 | ctr) echo "$here/containerd" ;;
    helm) echo "$here/helm" ;;
    *) echo "$here" ;;
  esac
}
known() { # known PROGRAM
  local all="${programs[*]} ${programs_of_nodes[*]} ${programs_of_users[*]}"
  [[ " $all " = *" $1 "* ]] && return
  say "unknown program $1; there are: $all"
  return 1
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
      || no_go "Go could not be installed; install Go 1.21 or newer from https://go.dev/dl and run this again"
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

stamp_of() { # stamp_of PROGRAM: what it is built from
  case $1 in
    virtctl) echo "$kubevirt" ;;
    pause) sha256sum <"$here/pause/main.go" | cut -c1-16 ;;
    *) cat "$(module_of "$1")"/go.{mod,sum} | sha256sum | cut -c1-16 ;;
  esac
}

# A workspace, root or flags that the user has set must not leak in, nor our lock out to what survives us.
clean_go() { GOROOT='' GOWORK=off GOFLAGS='' GOTOOLCHAIN=auto CGO_ENABLED=0 "$@" 9>&-; }

# Naming all packages first fetches their modules and nothing else, so that one knows what has failed.
fetch_modules() { # fetch_modules GO PROGRAM
  cd "$(module_of "$2")"
  clean_go "$1" list -mod=readonly -deps "$(package_of "$2")" >/dev/null && return
  say "the Go modules of $2 cannot be fetched: is the module proxy, $(clean_go "$1" env GOPROXY), within reach? (GOPROXY=https://… names another)"
  return 1
}

build_pinned() { # build_pinned GO PROGRAM OUTPUT
  fetch_modules "$1" "$2"
  clean_go "$1" build -mod=readonly -buildvcs=false -trimpath -ldflags "$(version_flags)" -o "$3" "$(package_of "$2")"
}

# KubeVirt's module replaces two of its dependencies by folders that its zip does not contain; the same are published as modules.
# Replacing is for main modules only, hence a copy. VirtualMachineTemplates are left out (the command `template`, and an informer that
# virtctl does not use), since the modules of that kind are not on every mirror; only two of their names are left.
build_virtctl() { # build_virtctl GO PROGRAM OUTPUT
  local source=$cache/kubevirt-$kubevirt found module
  found=$(cd / && clean_go "$1" mod download -json "kubevirt.io/kubevirt@$kubevirt" | sed -n 's/^[[:space:]]*"Dir": "\(.*\)".*/\1/p')
  [ -n "$found" ] || { say "kubevirt.io/kubevirt@$kubevirt cannot be fetched; is the module proxy, $(clean_go "$1" env GOPROXY), within reach?"; return 1; }
  rm -rf "$source"
  cp -r --no-preserve=mode "$found" "$source"
  cd "$source"
  for module in api client-go; do clean_go "$1" mod edit -replace "kubevirt.io/$module=kubevirt.io/$module@$kubevirt"; done
  sed -i '/"kubevirt.io\/kubevirt\/pkg\/virtctl\/template"$/d; /^[[:space:]]*template\.NewCommand(),$/d' pkg/virtctl/root.go
  sed -i '/"kubevirt.io\/virt-template-.*\/v/d; /^func (.*) VirtualMachineTemplate()/,/^}/d; /VirtualMachineTemplate() cache/d' pkg/controller/virtinformers.go
  mkdir -p names/core
  echo "module kubevirt.io/virt-template-api" >names/go.mod
  printf 'package core\n\nconst (\n\tGroupName = "template.kubevirt.io"\n\tSingularResourceName = "virtualmachinetemplate"\n)\n' >names/core/names.go
  clean_go "$1" mod edit -replace kubevirt.io/virt-template-api=./names
  clean_go "$1" build -mod=mod -buildvcs=false -trimpath -o "$3" \
    -ldflags "-s -w -X kubevirt.io/client-go/version.gitVersion=$kubevirt -X kubevirt.io/client-go/version.gitTreeState=clean" "$(package_of "$2")"
  cd / && rm -rf "$source"
}

main() {
  local wanted=("$@") program go='' started missing=()
  [ $# -gt 0 ] || wanted=("${programs[@]}")
  mkdir -p "$bin"
  exec 9>"$bin/.lock"
  flock --nonblock 9 || { say "waiting for another build"; flock 9; }
  for program in "${wanted[@]}"; do
    known "$program"
    [ -x "$bin/$program" ] && [ "$(cat "$bin/.$program.stamp" 2>/dev/null)" = "$(stamp_of "$program")" ] || missing+=("$program")
  done
  [ ${#missing[@]} -gt 0 ] || { say "${wanted[*]}: built already, in $bin"; return; }

  go=$(find_go)
  say "building ${missing[*]} with $(version_of "$go") (minutes the first time, and about 5 GB of Go caches)"
  for program in "${missing[@]}"; do
    started=$SECONDS
    say "building $program …"
    case $program in
      virtctl) (build_virtctl "$go" "$program" "$bin/.$program.new") ;;
      *) (build_pinned "$go" "$program" "$bin/.$program.new") ;;
    esac
    mv "$bin/.$program.new" "$bin/$program"
    stamp_of "$program" >"$bin/.$program.stamp"
    say "built $program in $((SECONDS - started)) s"
  done
}

main "$@"
