#!/bin/sh
# Managed by Ansible: role corral.virt.hypervisor. libvirt runs this before it starts a guest, and before a guest
# migrates to this host.
#
# It refuses guests that a run of corral.virt holds, and all guests while the host is in maintenance. No fault of this
# script may keep a guest from starting: what it cannot read or understand, it lets pass. It does not call libvirt, which
# waits for this script, and waits for nothing itself.
held=/run/corral/held
mark=/var/lib/libvirt/corral-maintenance.json
boot=/proc/sys/kernel/random/boot_id

[ "$2" = prepare ] || exit 0
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL

# Names are shown only where they are plain.
guest="this guest"
case $1 in "" | *[!0-9A-Za-z._-]*) ;; *) guest="guest $1" ;; esac

refuse() {
    printf 'corral.virt: %s\n' "$1" >&2
    exit 1
}

# Set `value` to the text of a member of the mark, a JSON object in `text`; to nothing where it is not plain.
member() {
    value=
    case $text in *"\"$1\": \""*) ;; *) return ;; esac
    value=${text#*"\"$1\": \""}
    value=${value%%\"*}
    case $value in *[!\ -~]* | *\\*) value= ;; esac
}

# A mark that cannot be read counts, too: somebody set it.
if [ -e "$mark" ]; then
    text=
    [ -f "$mark" ] && [ -r "$mark" ] && IFS= read -r text <"$mark"
    member reason
    reason=${value:+ ($value)}
    member host
    refuse "cannot start $guest here: ${value:-this host} is in maintenance$reason and takes no guests; to end that, \
run ansible-playbook corral.virt.undrain -e host=${value:-NAME}"
fi

[ -d "$held" ] || exit 0

# libvirt writes the name first, in which it allows no line break, then the UUID, and then what users may write.
uuid=
number=0
while [ "$number" -lt 8 ] && IFS= read -r line; do
    number=$((number + 1))
    case $line in
        "  <uuid>"*"</uuid>")
            uuid=${line#"  <uuid>"}
            uuid=${uuid%"</uuid>"}
            break
            ;;
    esac
done
case $uuid in "" | *[!0-9a-f-]*) exit 0 ;; esac

# An entry counts while the run that wrote it holds its lock: the kernel releases that with the process.
entry=$held/$uuid
[ -f "$entry" ] || exit 0
flock -n -s -E 75 0 <"$entry" 2>/dev/null
[ $? -eq 75 ] || exit 0

of_boot=
of_process=
reason=
while IFS='=' read -r key value; do
    case $key in
        boot) of_boot=$value ;;
        pid) of_process=$value ;;
        reason) reason=$value ;;
    esac
done <"$entry"
now=
[ -r "$boot" ] && IFS= read -r now <"$boot"
[ -n "$now" ] && [ "$of_boot" = "$now" ] || exit 0
refuse "cannot start $guest here: ${reason:-a run of corral.virt holds it} (process $of_process); wait until that run ends"
