#!/bin/sh
# Start Chromium in a network of its own, with a cable to the lab of a host; the cable goes with the browser, however that ends.
# A browser gives up what it loads whenever an interface of its machine comes or goes, and with each lab some do.
# usage: LAB_HOST=10.86.1.2 apart.sh ARGUMENT...
set -eu
LAB_BRIDGE=$(ip -o route get "$LAB_HOST" | sed -n 's/.* dev \([^ ]*\) .*/\1/p')
LAB_ADDRESS=${LAB_HOST%.*}.254/24 # hosts and DHCP use lower numbers
LAB_OUTSIDE=$PPID LAB_CABLE="cable$$"
export LAB_BRIDGE LAB_ADDRESS LAB_OUTSIDE LAB_CABLE
# shellcheck disable=SC2016 # the inner shell expands it
exec unshare --net sh -euc '
  echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6 # its addresses would come seconds later
  ip link set lo up
  ip link add eth0 type veth peer name "$LAB_CABLE" netns "$LAB_OUTSIDE"
  nsenter --net="/proc/$LAB_OUTSIDE/ns/net" ip link set "$LAB_CABLE" master "$LAB_BRIDGE" up
  ip address add "$LAB_ADDRESS" dev eth0
  ip link set eth0 up
  for _ in $(seq 100); do
    if ip link show eth0 | grep -q "state UP"; then exec /usr/bin/chromium "$@"; fi
    sleep 0.1
  done
  echo "apart.sh: the cable to $LAB_BRIDGE does not come up" >&2
  exit 1
' apart.sh "$@"
