# What the suites in bash share; to be sourced. `passed` and `failed` are what their last line tells.
# shellcheck shell=bash
passed=0 failed=0

check() { # check WHAT COMMAND…: it has to succeed
  local what=$1
  shift
  if "$@"; then passed=$((passed + 1)); echo "ok      $what"; else failed=$((failed + 1)); echo "FAILED  $what"; fi
}
expect() { # expect WHAT PATTERN COMMAND…: its output has to match, within a minute
  local what=$1 pattern=$2 deadline=$((SECONDS + 60)) output
  shift 2
  until output=$("$@" 2>&1) && grep -qE -- "$pattern" <<<"$output"; do
    if [ $SECONDS -ge $deadline ]; then
      printf 'FAILED  %s\n  expected: %s\n  got:      %s\n' "$what" "$pattern" "$output"
      failed=$((failed + 1))
      return
    fi
    sleep 0.5
  done
  echo "ok      $what"
  passed=$((passed + 1))
}
soon() { # soon SECONDS COMMAND…: until it succeeds
  local deadline=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $deadline ] || return 1
    sleep 0.2
  done
}

counting_guest() { # counting_guest NAME [NODE]: a guest that writes "beat N" to its serial port, each second the next number
  cat <<YAML
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: $1}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {${2:+kubernetes.io/hostname: $2}}
  domain:
    memory: {guest: 128Mi}
    firmware:
      kernelBoot:
        kernelArgs: console=ttyS0 quiet no_timer_check cryptomgr.notests
        container: {image: "ferrovirt.io/guest-kernel:test", kernelPath: /boot/vmlinuz, initrdPath: /boot/initrd, imagePullPolicy: Never}
    devices:
      disks: [{name: seed, disk: {bus: virtio}}]
      interfaces: [{name: default, masquerade: {}}]
  networks: [{name: default, pod: {}}]
  volumes:
  - name: seed
    cloudInitNoCloud:
      userData: |
        #cloud-config
        runcmd: ["heartbeat > /dev/ttyS0 &"]
YAML
}
without_gap() { # reads the numbers: every one follows the one before, and there are some
  awk 'NR > 1 && $1 != last + 1 { print "        a gap after beat " last; bad = 1 } { last = $1 } END { exit bad || NR < 20 }'
}
