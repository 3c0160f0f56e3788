#!/usr/bin/env bash
# Builds the container image from the package on a bare Debian 12 of its own, and uses it: it trains, and
# its sshd takes the user that MPI's operators start ranks as. Needs root, Debian's archive, podman, runc
# and mmdebstrap, and no registry of images.
#   usage: image_trial.sh DEB
set -euo pipefail
deb=$(realpath "$1")
[[ $EUID == 0 ]] || { echo "mmdebstrap needs root: sudo $0 $1" >&2; exit 1; }
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
work=$(mktemp -d)
base=localhost/atoll-trial-base image=localhost/atoll-trial
finish() {
  podman rm --force --ignore atoll-trial-sshd >/dev/null 2>&1 || true
  podman rmi --force "$image" "$base" >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap finish EXIT

mmdebstrap --quiet --variant=minbase bookworm "$work/base.tar" # as debian:12-slim is
podman import --quiet "$work/base.tar" "$base" >/dev/null
rm "$work/base.tar"
mkdir "$work/context" "$work/data"
cp "$deb" "$work/context/atoll.deb"
cp "$here/../packaging/Containerfile" "$here/../packaging/sshd_config" "$work/context"
start=$SECONDS
# /etc/apt: this machine's way to the archive.
podman build --quiet --isolation=chroot --network=host --volume=/etc/apt:/etc/apt:ro \
  --build-arg "BASE=$base" --tag "$image" "$work/context" >"$work/build.log" 2>&1 || {
  tail -n 30 "$work/build.log"
  exit 1
}
echo "built the image in $((SECONDS - start)) s: $(podman image inspect --format '{{.Size}}' "$image") bytes"

# Where cgroups of both versions are mounted, as in some containers, only runc starts.
for how in "" "--runtime=runc --cgroup-manager=cgroupfs"; do
  read -ra runtime <<<"$how"
  if podman "${runtime[@]}" run --rm --ulimit=nofile=1024:1024 --ulimit=nproc=1024:1024 --network=host \
    "$image" --version 2>"$work/run.log"; then break; fi
  [[ -n $how ]] && { cat "$work/run.log"; exit 1; }
done
contained() { # <options of podman run and its command...>
  podman "${runtime[@]}" run --ulimit=nofile=1024:1024 --ulimit=nproc=1024:1024 --network=host "$@"
}

for i in $(seq 400); do echo "The sea is $i fathoms deep, and the island is far."; done >"$work/data/text.txt"
contained --rm --volume="$work/data:/data" "$image" train /usr/share/atoll/recipes/kjv-demo.toml \
  --data.text=text.txt --run.dir=run --train.steps=4 --optim.warmup_steps=1 --train.context=32 \
  --eval.max_tokens=200 --data.vocab_size=300 >"$work/train.log" 2>&1 || { cat "$work/train.log"; exit 1; }
[[ -d $work/data/run/checkpoints/step-00000004 ]] || { echo "there is no checkpoint"; exit 1; }

# As an operator does: keys in the home of mpiuser, sshd as this user.
mkdir "$work/keys"
ssh-keygen -q -t rsa -N '' -f "$work/keys/id_rsa"
cp "$work/keys/id_rsa.pub" "$work/keys/authorized_keys"
chmod 755 "$work/keys"
mpiuser=$(contained --rm --entrypoint=id "$image" -u mpiuser)
chown -R "$mpiuser" "$work/keys"
contained --detach --name=atoll-trial-sshd --user=mpiuser --volume="$work/keys:/home/mpiuser/.ssh:ro" \
  --entrypoint=/usr/sbin/sshd "$image" -De -f /home/mpiuser/.sshd_config >/dev/null
contained --rm --user=mpiuser --volume="$work/keys:/home/mpiuser/.ssh:ro" --entrypoint=ssh "$image" \
  -o ConnectionAttempts=30 127.0.0.1 atoll --version >"$work/ssh.log" 2>&1 || {
  cat "$work/ssh.log"
  podman logs atoll-trial-sshd
  exit 1
}
echo "the image works"
