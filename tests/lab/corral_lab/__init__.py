"""A lab of real hypervisors on one Linux machine: bare Debian hosts as systemd-nspawn containers."""
