#!/usr/bin/env bash
# What an image's root directory is given when its guests run on an emulated processor and in no cloud.
set -euo pipefail
root=$1
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
# Guests of the lab reach it as this machine does.
cp "$root/etc/apt/apt.conf.d/99mmdebstrap" "$root/etc/apt/apt.conf.d/90lab"
# It would wait 12 s for an IPv6 router that is not there.
mkdir "$root/etc/systemd/system/systemd-networkd-wait-online.service.d"
cat > "$root/etc/systemd/system/systemd-networkd-wait-online.service.d/lab.conf" <<END
[Service]
ExecStart=
ExecStart=-/lib/systemd/systemd-networkd-wait-online --any --timeout=2
END
chroot "$root" systemctl mask -q apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service \
  fstrim.timer dpkg-db-backup.timer systemd-pstore.service getty@tty1.service getty-static.service \
  dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-fs-fuse-connections.mount \
  proc-sys-fs-binfmt_misc.automount systemd-binfmt.service modprobe@{configfs,dm_mod,drm,fuse,loop}.service
# It is unpacked by that processor. Packing it anew takes a second, making it anew ten.
echo COMPRESS=lz4 > "$root/etc/initramfs-tools/conf.d/lz4"
for initrd in "$root"/boot/initrd.img-*; do
  if gzip -t "$initrd" 2> /dev/null; then
    gzip -dc "$initrd" | chroot "$root" lz4 -lcq > "$initrd.lz4"
    mv "$initrd.lz4" "$initrd"
  else
    chroot "$root" update-initramfs -u
  fi
done
# cloud-init judges all that it is told with it, which takes each of its four processes seconds to load and more to do; without it, it does not.
rm -r "$root/usr/lib/python3/dist-packages/jsonschema"
