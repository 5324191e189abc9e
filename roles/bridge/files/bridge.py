"""Put a host's network interface into a bridge that takes over its address, without cutting the host off.

Runs on the host, from stdin:  python3 - plan|apply|confirm '{"name": "br0", "port": "", "timeout_s": 60, ...}'

The new configuration is first laid where a reboot forgets it (/run) and taken into use by a service of its own. When the
controller comes back over the new bridge and confirms, it is written to /etc; when nobody does in time, it is taken back.
So neither a wrong configuration nor a power cut at any moment leaves a host that cannot be reached.
"""

# ruff: noqa: PTH103, PTH105, PTH108, PTH110, PTH116, PTH118, PTH119, PTH120, PTH123, PTH207, T201

import glob
import json
import os
import re
import subprocess
import sys
import time

STATE = "/run/corral-bridge"
UNIT = "corral-bridge"
SYSCTL = "/etc/sysctl.d/80-corral-bridge.conf"
UDEV = "/etc/udev/rules.d/80-corral-bridge.rules"
NF_CALLS = ("bridge-nf-call-arptables", "bridge-nf-call-ip6tables", "bridge-nf-call-iptables")


class Problem(Exception):
    """Said to the user as it is."""


def main(verb, request):
    if verb == "switch":
        return switch(request)
    if verb == "confirm":
        return confirm()
    plan = make_plan(request)
    if verb == "apply":
        apply(plan, request)
    show = {"changed": bool(plan["steps"]), "switches": plan["change"] is not None}
    print(json.dumps({**show, "steps": plan["steps"], "packages": plan["packages"], "manager": plan["manager"]}))
    return None


# Decide --------------------------------------------------------------------------------------------------------------


def make_plan(request):
    """What is to be done, as texts, and the change of the network's configuration if one is needed."""
    links = {link["ifname"]: link for link in ip("-d", "link", "show")}
    plan = {"steps": [], "change": None, "packages": [], "manager": None, "files": {}, "live": []}
    name = request["name"]
    if name in links:
        mend(plan, request, links)
    else:
        port = request["port"] or default_port(request.get("address"))
        check_port(port, links, name)
        manager = manager_of(port)
        if not manager:
            raise Problem(
                f"{os.uname()[1]} makes no use of ifupdown, systemd-networkd or netplan for {port}; make the bridge {name} yourself, "
                f"with the address and the MAC address of {port}, and run this again"
            )
        change = MANAGERS[manager](port, name, links[port]["address"])
        plan.update(change=change, manager=manager, packages=change["packages"])
        held = [row["local"] for row in addresses(port) if row["scope"] == "global"]
        plan["steps"].append("bridge {} takes over {} from {} ({})".format(name, ", ".join(held) or "the link", port, manager))
    if not request.get("filter_guests"):
        unfilter(plan)
    return plan


def mend(plan, request, links):
    """The bridge is there: is it what was asked for?"""
    name = request["name"]
    info = links[name].get("linkinfo", {})
    if info.get("info_kind") != "bridge":
        raise Problem(f"{name} is there and is no bridge; choose another bridge_name")
    ports = [link for link in links.values() if link.get("master") == name]
    lasting = [link["ifname"] for link in ports if link.get("linkinfo", {}).get("info_kind") != "tun"]
    if request["port"] and request["port"] not in lasting:
        raise Problem("the bridge {} is there without {}; put it in yourself, or remove the bridge".format(name, request["port"]))
    if not lasting:
        raise Problem(f"the bridge {name} is there and leads nowhere; name another, put an interface in it, or remove it")
    for field, word in (("stp_state", "stp"), ("forward_delay", "forward delay")):
        if info["info_data"].get(field):
            plan["steps"].append(f"switch off {word} of {name}")
            plan["live"].append(["ip", "link", "set", name, "type", "bridge", field, "0"])


def unfilter(plan):
    """What guests send over a bridge is not for the host's packet filter, which br_netfilter would show it."""
    keys = ["net/bridge/" + call for call in NF_CALLS]
    on = [key for key in keys if read("/proc/sys/" + key).strip() == "1"]
    if on:
        plan["steps"].append("keep the host's packet filter away from bridged guests")
        plan["live"] += [["sysctl", "-w", key.replace("/", ".") + "=0"] for key in on]
    head = "# Written by the role corral.virt.bridge: guests on a bridge are not filtered by the host.\n"
    rule = f'ACTION=="add", SUBSYSTEM=="module", KERNEL=="br_netfilter", RUN+="{systemd_sysctl()} --prefix=/net/bridge"\n'
    files = {SYSCTL: head + "".join("-{} = 0\n".format(key.replace("/", ".")) for key in keys), UDEV: head + rule}
    for path, text in files.items():
        if read(path) != text:
            plan["steps"].append(f"write {path}")
            plan["files"][path] = text


def systemd_sysctl():
    paths = ("/usr/lib/systemd/systemd-sysctl", "/lib/systemd/systemd-sysctl")
    return next((path for path in paths if os.path.exists(path)), paths[0])


def default_port(address):
    """The link of the default route, else the one that holds the address Ansible uses."""
    routes = ip("route", "show", "default") + ip("-6", "route", "show", "default")
    found = [route["dev"] for route in routes if route.get("dev")]
    found += [link["ifname"] for link in ip("addr", "show") if address in [row["local"] for row in link["addr_info"]]]
    if not found:
        raise Problem("there is no default route; say with bridge_port which interface belongs into the bridge")
    return found[0]


def check_port(port, links, name):
    if port not in links:
        raise Problem("there is no interface {}; there are {}".format(port, ", ".join(sorted(links))))
    kind = links[port].get("linkinfo", {}).get("info_kind")
    if kind == "bridge":
        raise Problem(f"{port}, the way to this host, is a bridge already; set bridge_name: {port} to use it")
    if links[port].get("master"):
        raise Problem("{} belongs to {}; put {} into the bridge instead".format(port, links[port]["master"], links[port]["master"]))
    if os.path.exists(f"/sys/class/net/{port}/phy80211"):
        raise Problem(f"{port} is wireless: access points do not let a bridge's guests through; use a cable")
    if links[port].get("link_type") != "ether":
        raise Problem(f"{port} is no Ethernet interface")
    if not re.match(r"^[A-Za-z0-9_.-]{1,15}$", name):
        raise Problem(f"{name!r} is not a name for a bridge; use up to 15 letters, digits, '.', '_' and '-'")


def manager_of(port):
    """Whoever configured the port."""
    if active("NetworkManager") and run("nmcli", "-g", "GENERAL.CONNECTION", "device", "show", port, fail=False).strip():
        if not glob.glob("/etc/netplan/*.yaml"):
            mac = read(f"/sys/class/net/{port}/address").strip()
            raise Problem(
                f"{port} is managed by NetworkManager, for which this role does not make the bridge; make it with "
                f"`nmcli connection add type bridge ifname BRIDGE bridge.stp no bridge.mac-address {mac} ...`, "
                f"put {port} into it, and run this again"
            )
        return "netplan"
    if active("systemd-networkd"):
        path = network_file(port)
        if path:
            return "netplan" if "netplan" in path else "networkd"
    if stanzas(flat("/etc/network/interfaces"), port):
        return "ifupdown"
    return None


# ifupdown ------------------------------------------------------------------------------------------------------------

# What belongs to the port itself when its address moves to the bridge.
PORT_OPTIONS = re.compile(r"^\s*(bond|vlan|wpa|ethernet|link|hwaddress|slaves|offload)\b")


def ifupdown(port, name, mac):
    files = interfaces_files("/etc/network/interfaces")
    after = {path: bridged(read(path), port, name, mac) for path in files if stanzas(read(path), port)}
    trial = STATE + "/interfaces"
    ipv6_off = read(f"/proc/sys/net/ipv6/conf/{port}/disable_ipv6").strip()
    return {
        "packages": [] if os.path.exists("/usr/sbin/brctl") or os.path.exists("/sbin/brctl") else ["bridge-utils"],
        "trial": {trial: bridged(flat("/etc/network/interfaces"), port, name, mac)},
        "lasting": after,
        "down": [["ifdown", "--force", port]],
        "up": [["ifup", "--force", "-i", trial, port, name]],
        "undo": [
            ["ifdown", "--force", "-i", trial, name, port],
            ["ip", "link", "delete", name],
            # bridge-utils switches IPv6 off on ports, and leaves it so
            ["sysctl", "-w", "net/ipv6/conf/{}/disable_ipv6={}".format(port, ipv6_off or "0")],
            ["ifup", "--force", port],
        ],
        "settle": [],
        "name": name,
        "port": port,
    }


def interfaces_files(path):
    """The file and all that it sources, in order."""
    found = [path]
    for line in read(path).splitlines():
        words = line.split()
        if words[:1] == ["source"]:
            found += [deep for each in expand(path, words[1]) for deep in interfaces_files(each)]
        elif words[:1] == ["source-directory"]:
            for each in expand(path, words[1] + "/*"):
                if re.match(r"^[A-Za-z0-9_-]+$", os.path.basename(each)):
                    found += interfaces_files(each)
    return found


def expand(path, pattern):
    return sorted(filter(os.path.isfile, glob.glob(os.path.join(os.path.dirname(path), pattern))))


def flat(path):
    """All files in one text, without the lines that source."""
    lines = [line for each in interfaces_files(path) for line in read(each).splitlines()]
    return "\n".join(line for line in lines if line.split()[:1] not in (["source"], ["source-directory"])) + "\n"


def stanzas(text, port):
    return re.findall(rf"^\s*iface\s+{re.escape(port)}\s", text, re.MULTILINE)


def bridged(text, port, name, mac):
    """The port's stanzas become the bridge's; what belongs to the link stays with the port."""
    word = re.compile(rf"(?<![\w.:-]){re.escape(port)}(?![\w.:-])")
    out, mine, kept, first = [], False, [], True
    bridge = [f"\tbridge_ports {port}", "\tbridge_stp off", "\tbridge_fd 0", "\tbridge_maxwait 0", f"\tbridge_hw {mac}"]
    for found in text.splitlines():
        line, words = found, found.split()
        if words[:1] in (["iface"], ["auto"], ["mapping"], ["source"], ["source-directory"]) or line.startswith("allow-"):
            mine = words[:2] == ["iface", port]
            if mine:
                out.append("iface {} {}".format(name, " ".join(words[2:])))
                out += bridge if first else []
                first = False
                continue
            if words[0] == "auto" or words[0].startswith("allow-"):
                # hotplug would wait for an event that a bridge never sends
                verb = "auto" if port in words and words[0] == "allow-hotplug" else words[0]
                line = " ".join([verb] + [name if each == port else each for each in words[1:]])
        elif mine and PORT_OPTIONS.match(line):
            kept.append(line)
            continue
        elif mine and re.search(r"\bip\b.*\b(route|rule|addr|address|neigh)\b", line):
            line = word.sub(name, line)
        out.append(line)
    return "\n".join(out).rstrip("\n") + f"\n\niface {port} inet manual\n" + "".join(f"{line}\n" for line in kept)


# systemd-networkd ----------------------------------------------------------------------------------------------------


def networkd(port, name, mac):
    source = network_file(port)
    dropins = sorted(glob.glob(source + ".d/*.conf") + glob.glob(f"/etc/systemd/network/{os.path.basename(source)}.d/*.conf"))
    text = "\n".join(map(read, dict.fromkeys([source, *dropins])))
    if not text.strip():
        raise Problem(f"{source}, by which {port} was configured, is gone; run `networkctl reload` first")
    identity = re.search(r"DHCP4 Client ID: IAID:(0x[0-9a-f]+)", run("networkctl", "--no-pager", "status", port))
    head = "# Written by the role corral.virt.bridge.\n"
    files = {
        f"05-corral-{name}.netdev": head
        + f"[NetDev]\nName={name}\nKind=bridge\nMACAddress={mac}\n\n[Bridge]\nSTP=false\nForwardDelaySec=0\n",
        f"05-corral-{name}.network": head + f"# As {source} for {port}.\n" + network_of_bridge(text, name, identity),
        f"05-corral-{name}-{port}.network": head + f"[Match]\nName={port}\n\n[Network]\nBridge={name}\nLinkLocalAddressing=no\n",
    }
    return {
        "packages": [],
        "trial": {"/run/systemd/network/" + path: content for path, content in files.items()},
        "lasting": {"/etc/systemd/network/" + path: content for path, content in files.items()},
        "down": [],
        "up": [["networkctl", "reload"]],
        "undo": [["networkctl", "reload"], ["ip", "link", "delete", name], ["networkctl", "reconfigure", port]],
        "settle": [["networkctl", "reload"]],
        "name": name,
        "port": port,
    }


def network_file(port):
    match = re.search(r"Network File: (/\S+)", run("networkctl", "--no-pager", "status", port, fail=False))
    return match.group(1) if match else None


def network_of_bridge(text, name, identity):
    """The port's .network file for the bridge: other name, same address, the same client to a DHCP server."""
    out, section = ["[Match]", "Name=" + name, ""], None
    for line in text.splitlines():
        start = re.match(r"^\s*\[(.+)\]", line)
        section = start.group(1) if start else section
        if section == "Match" or (section == "Link" and re.match(r"^\s*MACAddress\s*=", line)):
            continue
        out.append(line)
    if identity:
        out += ["", "[DHCPv4]", "IAID=" + str(int(identity.group(1), 16))]
    return "\n".join(out) + "\n"


# netplan -------------------------------------------------------------------------------------------------------------

# What describes the link, not its place in the network.
LINK_KEYS = ("match", "set-name", "wakeonlan", "mtu", "renderer", "optional", "id", "interfaces", "parameters", "link")


def netplan(port, name, mac):
    import yaml  # what netplan itself is built on

    changed = {}
    for path in sorted(glob.glob("/etc/netplan/*.yaml")):
        document = yaml.safe_load(read(path)) or {}
        if netplan_bridged(document.get("network") or {}, port, name, mac):
            head = f"# {port} was moved to the bridge {name} by the role corral.virt.bridge.\n"
            changed[path] = head + yaml.safe_dump(document, default_flow_style=False, sort_keys=False)
    if len(changed) != 1:
        raise Problem(f"{len(changed)} files of netplan describe {port}; bring it into one file, so that it can be moved")
    path = next(iter(changed))
    trial = "/run/netplan/" + os.path.basename(path)
    lasting = dict(changed)
    if "cloud-init" in path:
        lasting["/etc/cloud/cloud.cfg.d/99-corral-bridge.cfg"] = f"# {path} is no longer cloud-init's.\nnetwork: {{config: disabled}}\n"
    return {
        "packages": [],
        "trial": {trial: changed[path]},
        "lasting": lasting,
        "down": [],
        "up": [["netplan", "generate"], ["netplan", "apply"]],
        "undo": [["netplan", "generate"], ["ip", "link", "delete", name], ["netplan", "apply"]],
        "settle": [["netplan", "generate"]],
        "name": name,
        "port": port,
    }


def netplan_bridged(network, port, name, mac):
    """Move the port's place in the network to a bridge, in place; whether the port was found."""
    for kind in ("ethernets", "bonds", "vlans"):
        for key, link in (network.get(kind) or {}).items():
            match = link.get("match") or {}
            if port not in (key, link.get("set-name"), match.get("name")) and match.get("macaddress", "").lower() != mac:
                continue
            moved = {word: link.pop(word) for word in list(link) if word not in LINK_KEYS}
            link.update({"dhcp4": False, "dhcp6": False, "link-local": []})
            moved.pop("macaddress", None)
            bridge = {"interfaces": [key], "macaddress": mac, "parameters": {"stp": False, "forward-delay": 0}}
            network.setdefault("bridges", {})[name] = {**moved, **bridge}
            return True
    return False


MANAGERS = {"ifupdown": ifupdown, "networkd": networkd, "netplan": netplan}

# Do ------------------------------------------------------------------------------------------------------------------


def apply(plan, request):
    for path, text in plan["files"].items():
        write(path, text)
    for command in plan["live"]:
        run(*command)
    if plan["change"] is None:
        return
    os.makedirs(STATE, mode=0o700, exist_ok=True)
    for leftover in ("confirmed", "result.json"):
        remove(os.path.join(STATE, leftover))
    write(STATE + "/change.json", json.dumps({**plan["change"], "timeout_s": request["timeout_s"]}))
    write(STATE + "/bridge.py", request["script"])
    # A service of its own survives the loss of this session. -E: nothing of ours may steer it.
    run("systemd-run", "--collect", "--unit", UNIT, "--property=Type=exec", sys.executable, "-E", STATE + "/bridge.py", "switch", "{}")


def switch(_request):
    """Take the new configuration into use; keep it when the controller confirms, else take it back."""
    change = json.loads(read(STATE + "/change.json"))
    log = []
    before = sorted(row["local"] for row in addresses(change["port"]) if row["scope"] == "global" and not row.get("dynamic"))
    time.sleep(1)  # lets the answer to `apply` leave
    deadline = time.monotonic() + change["timeout_s"]
    try:
        attempt(change["down"], log)
        for path, text in change["trial"].items():
            write(path, text)
        attempt(change["up"], log, must=True)
        wait_for(lambda: has_taken_over(change, before), deadline, "{} did not take over the addresses".format(change["name"]))
        wait_for(lambda: os.path.exists(STATE + "/confirmed"), deadline, "nobody came back over the bridge")
        for path, text in change["lasting"].items():
            write(path, text)
        for path in change["trial"]:
            remove(path)
        attempt(change["settle"], log)
        wait_for(lambda: has_taken_over(change, before), time.monotonic() + 20, "{} lost its addresses again".format(change["name"]))
        result = {"ok": True}
    except Problem as problem:
        if change["undo"][0][0] == "ifdown":  # reads the trial once more
            attempt(change["undo"][:1], log)
        for path in change["trial"]:
            remove(path)
        attempt(change["undo"][1:] if change["undo"][0][0] == "ifdown" else change["undo"], log)
        result = {"ok": False, "why": str(problem)}
    write(STATE + "/result.json", json.dumps({**result, "log": log}))


def has_taken_over(change, before):
    now = [row["local"] for row in addresses(change["name"])]
    master = os.path.join("/sys/class/net", change["port"], "master")
    return os.path.basename(os.path.realpath(master)) == change["name"] and set(before) <= set(now) and bool(now)


def wait_for(condition, deadline, what):
    while not condition():
        if time.monotonic() > deadline:
            raise Problem(what)
        time.sleep(0.1)


def attempt(commands, log, must=False):
    for command in commands:
        try:
            log.append({"command": " ".join(command), "said": run(*command)})
        except Problem as problem:
            log.append({"command": " ".join(command), "said": str(problem)})
            if must:
                raise Problem("{} failed: {}".format(" ".join(command), str(problem).splitlines()[-1])) from problem


def confirm():
    """The controller is here: keep it. Fails when it was taken back meanwhile."""
    if not os.path.exists(STATE + "/result.json"):
        write(STATE + "/confirmed", "")
    wait_for(lambda: os.path.exists(STATE + "/result.json"), time.monotonic() + 60, f"the service {UNIT} gave no answer")
    result = json.loads(read(STATE + "/result.json"))
    if not result["ok"]:
        raise Problem("the bridge was taken back, the host is as before: {}; log: {}".format(result["why"], STATE + "/result.json"))
    print(json.dumps(result))


# The machine ---------------------------------------------------------------------------------------------------------


def ip(*words):
    return [row for row in json.loads(run("ip", "-j", *words) or "[]") if row]


def addresses(link):
    rows = json.loads(run("ip", "-j", "addr", "show", "dev", link, fail=False) or "[]")
    return [row for each in rows if each for row in each["addr_info"]]


def active(unit):
    return run("systemctl", "is-active", unit, fail=False).strip() == "active"


def run(*command, fail=True):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        if fail:
            raise Problem(str(error)) from error
        return ""
    if done.returncode and fail:
        raise Problem("{} failed: {}".format(" ".join(command), (done.stderr or done.stdout).strip()))
    return done.stdout


def read(path):
    try:
        with open(path) as stream:
            return stream.read()
    except FileNotFoundError:
        return ""


def write(path, text):
    """Replace a file in one step. It keeps its permissions; netplan's may hold passwords, and only root ever reads them."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    private = "/netplan/" in path or path.startswith(STATE)
    mode = 0o600 if private else os.stat(path).st_mode & 0o7777 if os.path.exists(path) else 0o644
    aside = path + ".corral-new"
    remove(aside)
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        os.fchmod(descriptor, mode)
        stream.write(text)
        stream.flush()
        os.fsync(descriptor)
    os.replace(aside, path)


def remove(path):
    if os.path.lexists(path):
        os.unlink(path)


if __name__ == "__main__":
    try:
        main(sys.argv[1], json.loads(sys.argv[2]))
    except Problem as problem:
        sys.exit(f"cannot make the bridge: {problem}")
