#!/usr/bin/env bash
# A demo guest on the running local cluster: demo.sh FERROVIRT. Builds the guest's image where it is not cached and imports it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ferrovirt=$1
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
echo "Demo guest: its image is built from Debian's packages the first time, which takes a minute ..."
images/guest/build.sh "$made"
for image in guest guest-kernel; do "$ferrovirt" images import "$made/$image.tar"; done
"$ferrovirt" demo
