#!/usr/bin/env bash
# Installs the wheel, and then the package, in a bare Debian 12 of its own, made by mmdebstrap, and uses
# what they brought: the program, its manual and its completions, and the units of systemd. Needs root and
# Debian's archive.
#   usage: package_trial.sh DEB WHEEL
set -euo pipefail
deb=$(realpath "$1")
wheel=$(realpath "$2")
[[ $EUID == 0 ]] || { echo "chroot needs root: sudo $0 $1" >&2; exit 1; }
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mmdebstrap --quiet --variant=minbase bookworm "$root" # as debian:12 is, without recommended packages
rm -rf "$root/etc/apt"
cp -r /etc/apt "$root/etc/apt" # this machine's way to the archive
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp "$deb" "$root/opt/atoll.deb"

# /proc and /dev are mounted for the command alone, so nothing is left to unmount.
inside() {
  unshare --mount bash -c 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"' \
    "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/opt DEBIAN_FRONTEND=noninteractive "$@"
}
inside apt-get -qq update

# The wheel brings the libraries that it needs: this Debian has none of them yet.
inside apt-get -qq install -y --no-install-recommends python3-venv >"$root/opt/install.log" 2>&1 || {
  tail -n 30 "$root/opt/install.log"
  exit 1
}
cp "$wheel" "$root/opt"
for i in $(seq 400); do echo "The sea is $i fathoms deep, and the island is far."; done >"$root/opt/text.txt"
inside bash -ec '
  cd /opt
  python3 -m venv venv
  venv/bin/pip install --quiet --no-index ./*.whl
  ! ldd venv/bin/atoll | grep "not found"
  venv/bin/atoll train venv/share/atoll/recipes/kjv-demo.toml --data.text=text.txt --run.dir=by-wheel -n 2 \
    --train.steps=4 --optim.warmup_steps=1 --train.context=32 --eval.max_tokens=200 --data.vocab_size=300 \
    --train.micro_batch=1 >train.log 2>&1 || { cat train.log; exit 1; }
  venv/bin/atoll generate by-wheel --prompt "The sea" --max-tokens 8 >/dev/null'
echo "the wheel works"

start=$SECONDS
inside apt-get -qq install -y --no-install-recommends /opt/atoll.deb >"$root/opt/install.log" 2>&1 || {
  tail -n 30 "$root/opt/install.log"
  exit 1
}
echo "installed in $((SECONDS - start)) s, with $(grep -c '^Setting up' "$root/opt/install.log") packages"

inside atoll --version
inside bash -ec '
  cd /opt
  # The model is made here: nothing comes from outside.
  atoll train /usr/share/atoll/recipes/kjv-demo.toml --data.text=text.txt --run.dir=run \
    --train.steps=4 --optim.warmup_steps=1 --train.context=32 --eval.max_tokens=200 --data.vocab_size=300 >train.log 2>&1 || { cat train.log; exit 1; }
  atoll generate run --prompt "The sea" --max-tokens 8 >/dev/null
  atoll train /usr/share/atoll/recipes/kjv-demo.toml --data.text=text.txt --run.dir=two -n 2 --backend=gloo \
    --train.steps=2 --optim.warmup_steps=1 --train.context=32 --eval.max_tokens=200 --data.vocab_size=300 \
    --train.micro_batch=1 >train.log 2>&1 || { cat train.log; exit 1; }
  . /usr/share/bash-completion/completions/atoll
  COMP_WORDS=(atoll trai) COMP_CWORD=1
  _atoll
  [[ ${COMPREPLY[*]} == train ]]'
listing=$(dpkg-deb -c "$deb")
for file in share/man/man1/atoll.1.gz share/zsh/vendor-completions/_atoll share/doc/atoll/copyright \
  share/fish/vendor_completions.d/atoll.fish; do
  # A root may be set to leave manuals and documents out, so the package itself is asked.
  grep -q "/usr/$file$" <<<"$listing" || { echo "the package has no $file"; exit 1; }
done
# With systemd there is the user that the services run as, and the units are whole.
inside apt-get -qq install -y --no-install-recommends systemd >"$root/opt/install.log" 2>&1
inside apt-get -qq install -y --reinstall /opt/atoll.deb >"$root/opt/install.log" 2>&1
inside id atoll >/dev/null
for unit in coordinator server serve; do
  inside bash -ec "mkdir -p /etc/atoll; touch /etc/atoll/a.conf; systemd-analyze verify --man=no atoll-$unit@a.service"
done
echo "the package works"
