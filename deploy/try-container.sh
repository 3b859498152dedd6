#!/usr/bin/env bash
# Builds the image without a container engine and tries it: base from debootstrap, build by buildah in a chroot, then the image's
# program in its own root file system, mounted read-only, as uid 10001. Needs root. Leaves nothing running.
#   deploy/try-container.sh [MODEL]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ "$(id -u)" = 0 ] || { echo "try-container.sh needs root" >&2; exit 1; }
model=${1:-tests/golden/data/tiny-llama-q8_0.gguf}
for tool in buildah debootstrap; do
  command -v $tool >/dev/null || { apt-get update -qq; apt-get install -y -qq --no-install-recommends buildah debootstrap uidmap >/dev/null; }
done
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
work=$(mktemp -d /var/tmp/attnd-container.XXXXXX)
pid='' mnt=''
cleanup() {
  [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
  [ -z "$mnt" ] || umount -R "$work/root" 2>/dev/null || true
  buildah rm -a >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT

if ! buildah images -q attnd-base >/dev/null 2>&1; then
  echo "== base image (debootstrap)"
  debootstrap --variant=minbase bookworm "$work/base" >"$work/debootstrap.log" 2>&1 || { tail -5 "$work/debootstrap.log"; exit 1; }
  c=$(buildah from scratch)
  buildah add -q "$c" "$work/base" / >/dev/null
  buildah commit -q "$c" attnd-base >/dev/null
  buildah rm "$c" >/dev/null
  rm -rf "$work/base"
fi

echo "== image"
buildah bud --isolation chroot --layers=false --build-arg BASE=localhost/attnd-base -t attnd -f Dockerfile . >"$work/build.log" 2>&1 || { tail -20 "$work/build.log"; exit 1; }

echo "== run: read-only root, uid 10001"
c=$(buildah from localhost/attnd)
mnt=$(buildah mount "$c")
mkdir -p "$work/root" && mount --bind "$mnt" "$work/root"
mkdir -p "$work/root/models" && cp "$model" "$work/root/models/model.gguf" && chmod 0644 "$work/root/models/model.gguf"
mount -o remount,ro,bind "$work/root"
port=18080
chroot --userspec=10001:10001 "$work/root" /usr/bin/env -i ATTND_HOST=127.0.0.1 ATTND_PORT=$port ATTND_MODEL=/models/model.gguf \
  ATTND_KV_BYTES=16m /usr/local/bin/attnd 2>"$work/log" &
pid=$!
for _ in $(seq 100); do grep -q '^listening on' "$work/log" && break; sleep 0.1; done
for _ in $(seq 100); do chroot --userspec=10001:10001 "$work/root" /usr/bin/env -i ATTND_PORT=$port /bin/bash /usr/local/bin/attnd-healthcheck 2>/dev/null && ready=1 && break; sleep 0.1; done
[ "${ready:-}" = 1 ] || { echo "not ready"; cat "$work/log"; exit 1; }
echo "health check: ready; uid $(awk '/^Uid/{print $2}' /proc/$pid/status)"
curl -sf "http://127.0.0.1:$port/generate" -H 'content-type: application/json' -d '{"inputs":"Once upon a time","parameters":{"max_new_tokens":4}}' | head -c 300
echo
chroot --userspec=10001:10001 "$work/root" /bin/sh -c 'touch /x 2>/dev/null' && { echo "the root is writable"; exit 1; }
kill -TERM "$pid"
wait "$pid" && echo "SIGTERM: drained, exit 0"
pid=''
