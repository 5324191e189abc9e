#!/usr/bin/env bash
# Make a cloud image of a Debian or Ubuntu release, for machines with a BIOS. Needs root, and mount and process namespaces
# of its own: what it mounts goes with them. Beside the image it leaves nothing when it succeeds.
set -euo pipefail

usage="usage: debian_image.sh --release SUITE [--size 2GiB] [--source SOURCES.LIST-LINE]... [--mirror URL] [--keyring FILE]
       [--include PACKAGE,...] [--customize PROGRAM] FILE.qcow2|FILE.raw
Without --source the packages come from --mirror, or from the mirrors in this machine's own apt sources that have the suite.
PROGRAM is called with the image's root directory when its packages are installed."
size=2GiB release='' mirror='' keyring='' include='' customize='' image='' sources=()
while [ $# -gt 0 ]; do
  case $1 in
    --release) release=$2; shift ;;
    --size) size=$2; shift ;;
    --source) sources+=("$2"); shift ;;
    --mirror) mirror=$2; shift ;;
    --keyring) keyring=$2; shift ;;
    --include) include=$2; shift ;;
    --customize) customize=$2; shift ;;
    -*) echo "$usage" >&2; exit 2 ;;
    *) image=$1 ;;
  esac
  shift
done
if [ -z "$release" ] || [ -z "$image" ]; then echo "$usage" >&2; exit 2; fi
PATH=$PATH:/usr/sbin:/sbin
work=$(dirname "$image")
disk=$work/disk.raw root=$work/root

# One sources.list line for a mirror and a suite, if the mirror has it.
offered() {
  local url=${1%/} suite=$2 found=$work/InRelease origin components='' signed=''
  rm -f "$found"
  /usr/lib/apt/apt-helper download-file "$url/dists/$suite/InRelease" "$found" &> /dev/null || return 0
  origin=$(sed -n 's/^Origin: //p' "$found" | head -1)
  # shellcheck disable=SC2013  # words are what is wanted
  for component in $(sed -n 's/^Components: //p' "$found" | head -1); do
    case ${component##*/} in main | universe) components+=" ${component##*/}" ;; esac
  done
  signed=${keyring:-/usr/share/keyrings/${origin,,}-archive-keyring.gpg}
  if [ ! -e "$signed" ]; then
    echo "cannot verify the packages of $url: $signed does not exist; install ${origin,,}-archive-keyring or set --keyring" >&2
    exit 1
  fi
  echo "deb [signed-by=$signed] $url $suite$components"
}

if [ ${#sources[@]} = 0 ]; then
  mirrors=$mirror
  # shellcheck disable=SC2016  # for apt-get
  [ -n "$mirrors" ] || mirrors=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sort -u)
  for url in $mirrors; do
    for suite in "$release" "$release-updates" "$release-security"; do
      line=$(offered "$url" "$suite")
      [ -z "$line" ] || sources+=("$line")
    done
  done
  rm -f "$work/InRelease"
fi
if [[ " ${sources[*]} " != *" $release "* ]]; then
  echo "found no mirror of $release in this machine's apt sources (asked: ${mirrors:-none}): set one with --mirror" >&2
  exit 1
fi

# What lets this machine's apt reach its mirrors.
options=()
while read -r option; do options+=("--aptopt=$option"); done < <(
  apt-config dump | grep -E '^Acquire::(https?::|Check-Date|Check-Valid-Until|ForceIPv|Retries)[^ ]* "[^"]+";$')
# Whichever of two packages the release has.
either() { echo "?and(?not(?virtual),?or(?exact-name($1),?exact-name($2)))"; }
packages=systemd-sysv,dbus,udev,initramfs-tools,cloud-init,cloud-guest-utils,cloud-initramfs-growroot,netplan.io,openssh-server
packages+=,python3,qemu-guest-agent,sudo,iproute2,iputils-ping,ca-certificates,less,procps,e2fsprogs${include:+,$include}

truncate -s "$size" "$disk"
printf 'label: dos\nstart=2048, type=83, bootable\n' | sfdisk -q "$disk"
dd if=/usr/lib/EXTLINUX/mbr.bin of="$disk" bs=440 count=1 conv=notrunc status=none
offset=$((2048 * 512))
# Features that every supported release and the boot loader know, whatever this machine's default is.
features=none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file
features+=,dir_nlink,extra_isize,metadata_csum
mkfs.ext4 -q -F -L root -O "$features" -E "offset=$offset,lazy_itable_init=0" "$disk" $(($(stat -c %s "$disk") / 1024 - 1024))k
mkdir "$root"
mount -o "loop,offset=$offset" "$disk" "$root"

# An image that a power cut leaves behind is thrown away, so dpkg need not wait for the medium.
# shellcheck disable=SC2016  # expanded by the hooks' own shell
mmdebstrap --variant=apt --mode=root --skip=check/empty --dpkgopt=force-unsafe-io --include="$packages" \
  --include="$(either linux-image-cloud-amd64 linux-image-virtual)" --include="$(either systemd-resolved systemd)" "${options[@]}" \
  --setup-hook='mkdir -p "$1/etc"; printf "do_symlinks = yes\nlink_in_boot = yes\n" > "$1/etc/kernel-img.conf"' \
  --customize-hook='chroot "$1" systemctl enable -q systemd-networkd.service systemd-resolved.service' \
  ${customize:+--customize-hook="$customize"} "$release" "$root" "${sources[@]}"

# cloud-init's own choice is a locale that nobody has generated.
echo 'locale: C.UTF-8' > "$root/etc/cloud/cloud.cfg.d/10_image.cfg"
echo 'LABEL=root / ext4 defaults,errors=remount-ro 0 1' > "$root/etc/fstab"
echo localhost > "$root/etc/hostname"
rm -rf "$root"/etc/ssh/ssh_host_* "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin "$root"/var/log/*.log
# Keys that only this machine has go with the image.
if [ -n "$keyring" ]; then
  mkdir -p "$root/etc/apt/keyrings"
  cp "$keyring" "$root/etc/apt/keyrings/"
  sed -i "s#signed-by=$keyring\\]#signed-by=/etc/apt/keyrings/${keyring##*/}]#" "$root/etc/apt/sources.list"
fi
# How this machine reaches its mirrors is not the guests' way.
rm -f "$root/etc/apt/apt.conf.d/99mmdebstrap" "$root/etc/dpkg/dpkg.cfg.d/99mmdebstrap"
# Each guest makes its own.
: > "$root/etc/machine-id"
rm -f "$root/var/lib/dbus/machine-id"

extlinux --install "$root/boot" > /dev/null
cat > "$root/boot/extlinux.conf" <<END
DEFAULT linux
PROMPT 0
TIMEOUT 0
LABEL linux
  LINUX vmlinuz
  INITRD initrd.img
  APPEND root=LABEL=root ro console=tty0 console=ttyS0 quiet
END
fstrim "$root"
umount "$root"
rmdir "$root"
case $image in
  *.raw) mv "$disk" "$image" ;;
  # Five times faster than zlib, and smaller.
  *) qemu-img convert -c -O qcow2 -o compression_type=zstd "$disk" "$image" && rm "$disk" ;;
esac
