#!/bin/sh
# The only program that a small guest starts: a server for SSH, and a file that grows by a number and its checksum every half second.
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir /dev/pts
mount -t devpts devpts /dev/pts
for module in virtio_pci virtio_blk virtio_net virtio_balloon virtio_console button evdev; do modprobe $module; done
while ! mount -t ext4 /dev/vda1 /disk 2>/dev/null; do sleep 0.1; done
# Its address ends with the last byte of its MAC.
while [ ! -e /sys/class/net/eth0/address ]; do sleep 0.1; done
mac=$(cat /sys/class/net/eth0/address)
ip link set eth0 up
ip address add "$(cat /disk/prefix).$((0x${mac##*:}))/24" dev eth0
cp /disk/authorized_keys /root/.ssh/
chmod 700 /root /root/.ssh /root/.ssh/authorized_keys
mkdir -p /etc/acpi/PWRF
printf '#!/bin/sh\nsync\nmount -o remount,ro /disk\npoweroff -f\n' >/etc/acpi/PWRF/00000080
chmod 755 /etc/acpi/PWRF/00000080
acpid -d >/dev/null 2>&1 &
# Answers libvirt's ping as a guest agent, until it is asked to hang; it shuts down by its button.
agent() {
  while :; do
    while read -r line <&3; do
      id=${line#*\"id\":}
      case $line in
      *hang*) sleep 99999 ;;
      *guest-sync*) echo "{\"return\":${id%%[!0-9]*}}" >&3 ;;
      *guest-ping*) echo '{"return":{}}' >&3 ;;
      *) echo '{"error":{"class":"CommandNotFound","desc":"it only answers a ping"}}' >&3 ;;
      esac
    done
    sleep 0.2
  done
}
for name in /sys/class/virtio-ports/*/name; do
  grep -qsx org.qemu.guest_agent.0 "$name" || continue
  port=${name%/name}
  agent 3<>"/dev/${port##*/}" &
done
dropbear -r /etc/host_key -s
touch /disk/numbers
n=$(wc -l </disk/numbers)
while :; do
  n=$((n + 1))
  echo "$n $(echo "number $n" | md5sum | cut -c 1-32)" >>/disk/numbers
  sync
  sleep 0.5
done
