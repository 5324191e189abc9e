"""Open ports in the firewall that a host runs, leaving the rest of its policy alone. Runs on the host, from stdin.

    python3 - [--check] '{"ports": ["16514/tcp", "49152-49215/tcp"], "sources": ["192.0.2.1", "2001:db8::/64"]}'

Prints {"manager": …, "changed": …, "steps": […]}. A firewall has a living and a lasting half: both are looked at and mended.
Our own rules carry a comment with a digest of what they say, so that they are found again and replaced when that changes.
"""

import hashlib
import ipaddress
import json
import os
import re
import shlex
import subprocess
import sys

MARK = "corral.virt"
DROP_IN = "/etc/corral-virt/firewall.nft"


class Problem(Exception):
    """Said to the user as it is."""


def main(arguments):
    check = "--check" in arguments
    wanted = Wanted(json.loads(arguments[-1]))
    manager = detect()
    steps = MANAGERS[manager](wanted) if manager else []
    if not check:
        for _text, do in steps:
            do()
    print(json.dumps({"manager": manager or "none", "changed": bool(steps), "steps": [text for text, _do in steps]}))


class Wanted:
    """Ports as [(protocol, "first-last")], sources by family; no sources at all means everybody."""

    def __init__(self, request):
        self.ports = {}
        for port in request["ports"]:
            match = re.match(r"^(\d+)(?:-(\d+))?/(tcp|udp)$", port)
            if not match or not 0 < int(match.group(1)) <= int(match.group(2) or match.group(1)) < 65536:
                raise Problem("firewall_ports: cannot read %r; write it as 16514/tcp or 49152-49215/tcp" % port)
            self.ports.setdefault(match.group(3), []).append(port.split("/")[0])
        try:
            networks = sorted({ipaddress.ip_network(source) for source in request["sources"]}, key=str)
        except ValueError as error:
            raise Problem("firewall_sources: %s" % error)
        self.sources = {version: [short(net) for net in networks if net.version == version] for version in (4, 6)}
        self.everybody = not networks
        self.digest = hashlib.sha256(json.dumps([self.ports, self.sources], sort_keys=True).encode()).hexdigest()[:8]

    @property
    def comment(self):
        return "%s %s" % (MARK, self.digest)

    def families(self):
        """4 and 6, as far as there is anybody to admit."""
        return [version for version in (4, 6) if self.everybody or self.sources[version]]


def short(network):
    """As firewalls print it: a single address without its prefix length."""
    return str(network.network_address) if network.num_addresses == 1 else str(network)


def detect():
    """The firewall that rules here, if any."""
    if active("firewalld"):
        return "firewalld"
    if there("ufw") and "Status: active" in output("ufw", "status"):
        return "ufw"
    if active("nftables") or enabled("nftables"):
        return "nftables"
    if any(map(enabled, ("netfilter-persistent", "iptables"))):
        return "iptables"
    return None


# nftables ------------------------------------------------------------------------------------------------------------


def nftables(wanted):
    unit = output("systemctl", "show", "-p", "ExecStart", "nftables.service")
    match = re.search(r"-f (\S+)", unit)
    conf = match.group(1) if match else "/etc/nftables.conf"
    ruleset = json.loads(output("nft", "-j", "list", "ruleset"))["nftables"]
    text = read(conf)
    # A chain that somebody made at run time is not ours to keep alive, and naming it at boot would fail.
    chains = [chain for chain in closed_chains(ruleset) if defines(text, chain["family"], chain["table"])]
    rules = [(chain, rule) for chain in chains for rule in nft_rules(wanted, chain["family"])]
    steps = []
    live, stale = nft_ours(ruleset, wanted.comment)
    count = len(rules)
    if len(live) != count or stale:
        script = ["delete rule %s %s %s handle %d" % place for place in live + stale]
        script += ["insert rule %s %s" % (address(chain), rule) for chain, rule in rules]
        steps.append(("open %s in the running nftables" % said(wanted), lambda: run("nft", "-f", "-", stdin="\n".join(script))))
    lasting = "".join("insert rule %s %s\n" % (address(chain), rule) for chain, rule in rules)
    head = "# Written by the role corral.virt.firewall; included by %s.\n" % conf
    include = 'include "%s"' % DROP_IN
    if read(DROP_IN) != head + lasting and (rules or read(DROP_IN)):
        steps.append(("write %s" % DROP_IN, lambda: write(DROP_IN, head + lasting)))
    if rules and include not in text.splitlines():
        new = text + ("" if text.endswith("\n") or not text else "\n") + include + "\n"
        steps.append(("include it in %s" % conf, lambda: write(conf, new, verify=("nft", "-c", "-f"))))
    return steps


def closed_chains(ruleset):
    """Chains in which what comes to this host may be dropped: by policy, by a rule, or by a chain they jump to."""
    chains = [item["chain"] for item in ruleset if item.get("chain", {}).get("hook") == "input"]
    chains = [chain for chain in chains if chain["type"] == "filter" and chain["family"] in ("inet", "ip", "ip6")]
    rules = [item["rule"] for item in ruleset if "rule" in item]

    def closed(chain):
        verdicts = set()
        for rule in rules:
            if (rule["family"], rule["table"], rule["chain"]) == (chain["family"], chain["table"], chain["name"]):
                verdicts |= {key for part in rule["expr"] for key in part}
        return chain.get("policy") == "drop" or verdicts & {"drop", "reject", "jump", "goto", "vmap"}

    return [chain for chain in chains if closed(chain)]


def defines(text, family, table):
    """Whether a file of nftables defines a table; without a family it is ip."""
    found = re.findall(r"^\s*(?:add\s+)?table\s+(?:(inet|ip6|ip|bridge|arp|netdev)\s+)?([\w.-]+)", text, re.MULTILINE)
    return (family, table) in [(kind or "ip", name) for kind, name in found]


def nft_rules(wanted, family):
    """Our rules for one chain, in nftables' words."""
    rules = []
    for protocol, ports in sorted(wanted.ports.items()):
        what = '%s dport { %s } accept comment "%s"' % (protocol, ", ".join(ports), wanted.comment)
        if wanted.everybody:
            rules.append(what)
            continue
        for version, word, kinds in ((4, "ip", ("ip", "inet")), (6, "ip6", ("ip6", "inet"))):
            if wanted.sources[version] and family in kinds:
                rules.append("%s saddr { %s } %s" % (word, ", ".join(wanted.sources[version]), what))
    return rules


def nft_ours(ruleset, comment):
    """Places of our rules that say what is wanted now, and of those that said it before."""
    rules = [item["rule"] for item in ruleset if item.get("rule", {}).get("comment", "").split(" ")[0] == MARK]
    place = lambda rule: (rule["family"], rule["table"], rule["chain"], rule["handle"])  # noqa: E731
    return [place(r) for r in rules if r["comment"] == comment], [place(r) for r in rules if r["comment"] != comment]


def address(chain):
    return "%s %s %s" % (chain["family"], chain["table"], chain["name"])


# firewalld -----------------------------------------------------------------------------------------------------------


def firewalld(wanted):
    route = re.search(r"\bdev (\S+)", output("ip", "route", "show", "default"))
    zone = output("firewall-cmd", "--get-zone-of-interface=%s" % route.group(1), may_fail=True).strip() if route else ""
    zone = zone or output("firewall-cmd", "--get-default-zone").strip()
    steps = []
    for lasting in ((), ("--permanent",)):
        command = ("firewall-cmd", *lasting, "--zone=%s" % zone)
        known = set(output(*command, "--list-rich-rules").splitlines()) | set(output(*command, "--list-ports").split())
        for kind, rule in firewalld_rules(wanted):
            if rule not in known:
                text = "%s %s in zone %s%s" % (kind, rule, zone, " for good" if lasting else "")
                steps.append((text, lambda c=command, k=kind, r=rule: run(*c, "--add-%s=%s" % (k, r))))
    return steps


def firewalld_rules(wanted):
    for protocol, ports in sorted(wanted.ports.items()):
        for port in ports:
            if wanted.everybody:
                yield "port", "%s/%s" % (port, protocol)
            for version in (4, 6):
                for source in wanted.sources[version]:
                    parts = (version, source, port, protocol)
                    yield "rich-rule", 'rule family="ipv%d" source address="%s" port port="%s" protocol="%s" accept' % parts


# ufw -----------------------------------------------------------------------------------------------------------------


def ufw(wanted):
    known = {" ".join(shlex.split(line)[1:]) for line in output("ufw", "show", "added").splitlines() if MARK in line}
    rules = set(ufw_rules(wanted))
    steps = [("remove ufw rule: %s" % rule, lambda r=rule: run("ufw", "delete", *ufw_words(r))) for rule in sorted(known - rules)]
    return steps + [("add ufw rule: %s" % rule, lambda r=rule: run("ufw", *ufw_words(r))) for rule in sorted(rules - known)]


def ufw_rules(wanted):
    """As `ufw show added` prints them."""
    for protocol, ports in sorted(wanted.ports.items()):
        joined = ",".join(ports).replace("-", ":")
        if wanted.everybody:
            yield "allow %s/%s comment %s" % (joined, protocol, MARK)
        for source in wanted.sources[4] + wanted.sources[6]:
            yield "allow from %s to any port %s proto %s comment %s" % (source, joined, protocol, MARK)


def ufw_words(rule):
    return rule.split(" ")


# iptables ------------------------------------------------------------------------------------------------------------


def iptables(wanted):
    steps = []
    for version, tool in ((4, "iptables"), (6, "ip6tables")):
        path = next((p for p in ("/etc/iptables/rules.v%d" % version, "/etc/sysconfig/%s" % tool) if os.path.exists(p)), None)
        rules = iptables_rules(wanted, version)
        live = [line for line in output(tool, "-S", "INPUT").splitlines() if MARK in line]
        if sorted(map(shlex.split, live)) != sorted(shlex.split("-A INPUT " + rule) for rule in rules):
            remove = [("-D", *shlex.split(line)[1:]) for line in live]
            add = [("-I", "INPUT", *shlex.split(rule)) for rule in rules]
            steps.append(
                (
                    "open %s in the running %s" % (said(wanted), tool),
                    lambda t=tool, changes=remove + add: [run(t, "-w", *words) for words in changes],
                )
            )
        if path:
            before = read(path)
            after = iptables_text(before, rules)
            if before != after:
                steps.append(("write %s" % path, lambda p=path, a=after, t=tool: write(p, a, feed=(t + "-restore", "--test"))))
    return steps


def iptables_rules(wanted, version):
    """As `iptables -S` prints them, without `-A INPUT`."""
    if version not in wanted.families():
        return []
    tail = '-m multiport --dports %s -m comment --comment "' + wanted.comment + '" -j ACCEPT'
    rules = []
    for protocol, ports in sorted(wanted.ports.items()):
        what = "-p %s " % protocol + tail % ",".join(ports).replace("-", ":")
        full = [s if "/" in s else "%s/%d" % (s, 32 if version == 4 else 128) for s in wanted.sources[version]]
        rules += [what] if wanted.everybody else ["-s %s %s" % (source, what) for source in full]
    return rules


def iptables_text(text, rules):
    """A rules file with exactly our rules, before all others of its filter table."""
    lines = [line for line in text.splitlines() if not (line.startswith("-A INPUT ") and MARK in line)]
    if "*filter" not in lines:
        return text
    start = lines.index("*filter") + 1
    place = next(i for i, line in enumerate(lines) if i >= start and not line.startswith((":", "#")))
    return "\n".join(lines[:place] + ["-A INPUT " + rule for rule in rules] + lines[place:]) + "\n"


MANAGERS = {"nftables": nftables, "firewalld": firewalld, "ufw": ufw, "iptables": iptables}

# The machine ---------------------------------------------------------------------------------------------------------


def said(wanted):
    return " ".join("%s/%s" % (port, protocol) for protocol, ports in sorted(wanted.ports.items()) for port in ports)


def output(*command, may_fail=False):
    return run(*command, may_fail=may_fail)


def run(*command, stdin=None, may_fail=False):
    done = subprocess.run(command, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    if done.returncode and not may_fail:
        raise Problem("%s failed: %s" % (" ".join(command), (done.stderr or done.stdout).strip()))
    return done.stdout


def active(unit):
    return run("systemctl", "is-active", unit, may_fail=True).strip() == "active"


def enabled(unit):
    return run("systemctl", "is-enabled", unit, may_fail=True).strip() == "enabled"


def there(program):
    return any(os.access(os.path.join(path, program), os.X_OK) for path in ("/usr/sbin", "/sbin", "/usr/bin"))


def read(path):
    try:
        with open(path) as stream:
            return stream.read()
    except FileNotFoundError:
        return ""


def write(path, text, verify=None, feed=None):
    """Replace a file in one step, when the program that will read it accepts it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    aside = path + ".corral-new"
    with open(aside, "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    try:
        if os.path.exists(path):
            status = os.stat(path)
            os.chmod(aside, status.st_mode & 0o7777)
            os.chown(aside, status.st_uid, status.st_gid)
        if verify:
            run(*verify, aside)
        if feed:
            run(*feed, stdin=text)
        os.replace(aside, path)
    finally:
        if os.path.exists(aside):
            os.unlink(aside)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Problem as problem:
        sys.exit("cannot open ports: %s" % problem)
