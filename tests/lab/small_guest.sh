#!/bin/sh
# What a small guest of the lab's tests boots: a kernel of Debian, and an initramfs with busybox, an SSH server and `small_init.sh`.
# usage: small_guest.sh SOURCES.LIST-LINE RELEASE DIRECTORY, which has vmlinuz, initrd and host_key.pub then
set -eu
source=$1 release=$2 place=$3
root=$place/root tree=$place/tree here=$(dirname "$0")

mmdebstrap --quiet --variant=extract --mode=root --include=linux-image-cloud-amd64,busybox-static,dropbear-bin \
  "$release" "$root" "$source"
mv "$root"/boot/vmlinuz-* "$place/vmlinuz"

for directory in bin dev disk etc lib lib64 proc root/.ssh sys tmp; do mkdir -p "$tree/$directory"; done
cp "$root/bin/busybox" "$tree/bin/"
for applet in $("$tree/bin/busybox" --list); do [ "$applet" = busybox ] || ln -s busybox "$tree/bin/$applet"; done
cp "$root/usr/sbin/dropbear" "$tree/bin/"
# Debian 12 has the loader and libraries below /lib or /usr/lib, by package.
find "$root/lib" "$root/usr/lib" \( -name 'libc.so.6' -o -name 'libcrypt.so.1' -o -name 'libgmp.so.10' -o -name 'libtom*.so.1' -o -name 'libz.so.1' \
  -o -name 'ld-linux-x86-64.so.2' \) -exec cp -L {} "$tree/lib/" \;
cp "$tree/lib/ld-linux-x86-64.so.2" "$tree/lib64/"
version=$(ls "$root/lib/modules")
for module in drivers/virtio drivers/block/virtio_blk.ko drivers/net/virtio_net.ko drivers/net/net_failover.ko net/core/failover.ko \
  drivers/acpi/button.ko drivers/input/evdev.ko drivers/char/virtio_console.ko; do
  mkdir -p "$tree/lib/modules/$version/kernel/$(dirname "$module")"
  cp -r "$root/lib/modules/$version/kernel/$module" "$tree/lib/modules/$version/kernel/$module"
done
cp "$root/lib/modules/$version"/modules.order "$root/lib/modules/$version"/modules.builtin* "$tree/lib/modules/$version/"
"$tree/bin/busybox" depmod -b "$tree" "$version"
echo 'root:x:0:0:root:/root:/bin/sh' >"$tree/etc/passwd"
echo /bin/sh >"$tree/etc/shells"
LD_LIBRARY_PATH=$tree/lib "$root/usr/bin/dropbearkey" -t ed25519 -f "$tree/etc/host_key" | grep '^ssh-' | cut -d' ' -f1,2 >"$place/host_key.pub"
cp "$here/small_init.sh" "$tree/init"
chmod 755 "$tree/init"
(cd "$tree" && find . | bin/busybox cpio -o -H newc) >"$place/initrd" 2>/dev/null
rm -r "$root" "$tree"
