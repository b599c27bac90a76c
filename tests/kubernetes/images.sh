# The images that every node begins with, and how others get there; sourced by cluster.sh. Nothing is pulled from anywhere.
# shellcheck shell=bash disable=SC2154

archive() { # archive NAME ROOT ENTRYPOINT: $dir/images/NAME.tar, a Docker archive of one layer
  local name=$1 root=$2 work=$dir/images/$1 digest
  mkdir -p "$work"
  tar --create --file "$work/layer.tar" --directory "$root" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner .
  digest=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
  cat >"$work/config.json" <<JSON
{"architecture": "$(dpkg --print-architecture 2>/dev/null || echo amd64)", "os": "linux", "config": {"Entrypoint": $3, "Env": ["PATH=/bin"]},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$digest"]}}
JSON
  echo "[{\"Config\": \"config.json\", \"RepoTags\": [\"localhost/$name:1\"], \"Layers\": [\"layer.tar\"]}]" >"$work/manifest.json"
  tar --create --file "$dir/images/$name.tar" --directory "$work" manifest.json config.json layer.tar
  rm -rf "$work" "$root"
}

make_images() {
  local root=$dir/images/root name
  [ ! -f "$dir/images/busybox.tar" ] || return 0
  mkdir -p "$root"
  cp "$bin/pause" "$root/"
  archive pause "$root" '["/pause"]'
  mkdir -p "$root"/{bin,tmp,etc}
  cp "$(command -v busybox)" "$root/bin/busybox"
  for name in $(busybox --list); do [ "$name" = busybox ] || ln -s busybox "$root/bin/$name"; done
  archive busybox "$root" '["/bin/sh"]'
}

has_image() { # has_image NODE NAME
  in_node "$1" "$bin/ctr" --namespace k8s.io images list --quiet 2>/dev/null | grep -Fx "$2" >/dev/null
}
import() { # import ARCHIVE: on both nodes
  local node
  [ -r "$1" ] || fail "import: $1 cannot be read"
  for node in "${nodes[@]}"; do import_on "$node" "$1"; done
}
import_on() { # import_on NODE ARCHIVE
  say "$1: importing $2"
  in_node "$1" "$bin/ctr" --namespace k8s.io images import - <"$2" >"$dir/import.log" 2>&1 || { cat "$dir/import.log" >&2; fail "$1: $2 cannot be imported"; }
}
