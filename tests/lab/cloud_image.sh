#!/usr/bin/env bash
# Make a Debian cloud image: cloud_image.sh FILE.qcow2 RELEASE SOURCES.LIST-LINE [APT-OPTION...]
# Needs root, and mount and process namespaces of its own: what it mounts goes with them.
set -euo pipefail
image=$1 release=$2 source=$3
shift 3
work=$(dirname "$image")
disk=$work/disk.raw root=$work/root
packages=linux-image-cloud-amd64,systemd-sysv,systemd-resolved,dbus,udev,cloud-init,cloud-guest-utils
packages+=,cloud-initramfs-growroot,netplan.io,openssh-server,python3,qemu-guest-agent,sudo,iproute2,iputils-ping
packages+=,ca-certificates,less,procps,e2fsprogs,lz4

truncate -s 2G "$disk"
printf 'label: dos\nstart=2048, type=83, bootable\n' | sfdisk -q "$disk"
dd if=/usr/lib/EXTLINUX/mbr.bin of="$disk" bs=440 count=1 conv=notrunc status=none
offset=$((2048 * 512))
mkfs.ext4 -q -F -L root -E "offset=$offset,lazy_itable_init=0" "$disk" $((2 * 1024 * 1024 - 1024))k
mkdir "$root"
mount -o "loop,offset=$offset" "$disk" "$root"

options=()
for option; do options+=("--aptopt=$option"); done
# The initramfs is unpacked by an emulated processor: lz4, and no drivers a virtual machine has not.
# shellcheck disable=SC2016  # expanded by the hook's own shell
mmdebstrap --variant=apt --mode=root --skip=check/empty --include="$packages" "${options[@]}" \
  --essential-hook='mkdir -p "$1/etc/initramfs-tools/conf.d"; echo COMPRESS=lz4 > "$1/etc/initramfs-tools/conf.d/lz4"' \
  "$release" "$root" "$source"

cat > "$root/etc/cloud/cloud.cfg.d/90_lab.cfg" <<END
# No search for clouds that are not there; the mirror is the one the image was made from.
datasource_list: [NoCloud, None]
apt: {preserve_sources_list: true}
# An emulated processor takes seconds for each of these.
locale: false
growpart: {mode: "off"}  # the initramfs has done it
grub_dpkg: {enabled: false}
ssh_genkeytypes: [ed25519]
ssh: {emit_keys_to_console: false}
END
# It would wait 12 s for an IPv6 router that is not there.
mkdir "$root/etc/systemd/system/systemd-networkd-wait-online.service.d"
cat > "$root/etc/systemd/system/systemd-networkd-wait-online.service.d/lab.conf" <<END
[Service]
ExecStart=
ExecStart=-/lib/systemd/systemd-networkd-wait-online --any --timeout=2
END
echo 'LABEL=root / ext4 defaults,errors=remount-ro 0 1' > "$root/etc/fstab"
echo localhost > "$root/etc/hostname"
chroot "$root" systemctl enable -q systemd-networkd.service systemd-resolved.service serial-getty@ttyS0.service
chroot "$root" systemctl mask -q apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service \
  fstrim.timer dpkg-db-backup.timer systemd-pstore.service getty@tty1.service getty-static.service \
  dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-fs-fuse-connections.mount \
  proc-sys-fs-binfmt_misc.automount systemd-binfmt.service modprobe@{configfs,dm_mod,drm,fuse,loop}.service
rm -rf "$root"/etc/ssh/ssh_host_* "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin "$root"/var/log/*.log
: > "$root/etc/machine-id"
rm -f "$root/var/lib/dbus/machine-id"

extlinux --install "$root/boot" > /dev/null
cat > "$root/boot/extlinux.conf" <<END
DEFAULT linux
PROMPT 0
TIMEOUT 0
LABEL linux
  LINUX ../vmlinuz
  INITRD ../initrd.img
  APPEND root=LABEL=root ro console=tty0 console=ttyS0 quiet
END
fstrim "$root"
umount "$root"
rmdir "$root"
qemu-img convert -c -O qcow2 "$disk" "$image"
rm "$disk"
