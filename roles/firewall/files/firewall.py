"""Open ports in the firewall that a host runs, leaving the rest of its policy alone. Runs on the host, from stdin.

    python3 - [--check] '{"ports": ["16514/tcp", "49152-49215/tcp"], "sources": ["192.0.2.1", "2001:db8::/64"], "names": [], "keep": false}'

The source "any" admits everybody; without any source nobody is admitted.
What the resolver says of `names` is a guess, so with any of them, as with `keep`, rules are added and none is removed.
Prints {"manager": …, "changed": …, "steps": […], "unknown": [names without address]}.
A firewall has a living and a lasting half: both are looked at and mended.
Our own rules carry a comment with a digest of what they say, so that they are found again and replaced when that changes.
"""

# ruff: noqa: PTH103, PTH105, PTH108, PTH110, PTH116, PTH118, PTH120, PTH123, PTH207, T201

import glob
import hashlib
import ipaddress
import json
import os
import re
import shlex
import socket
import subprocess
import sys

MARK = "corral.virt"
DROP_IN = "/etc/corral-virt/firewall.nft"
EVERYBODY = "any"


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
    result = {"manager": manager or "none", "changed": bool(steps), "steps": [text for text, _do in steps]}
    print(json.dumps({**result, "unknown": wanted.unknown}))


class Wanted:
    """Ports as [(protocol, "first-last")], sources by family."""

    def __init__(self, request):
        self.ports = {}
        for port in request["ports"]:
            match = re.match(r"^(\d+)(?:-(\d+))?/(tcp|udp)$", port)
            if not match or not 0 < int(match.group(1)) <= int(match.group(2) or match.group(1)) < 65536:
                raise Problem(f"firewall_ports: cannot read {port!r}; write it as 16514/tcp or 49152-49215/tcp")
            self.ports.setdefault(match.group(3), []).append(port.split("/")[0])
        names = {name: resolve(name) for name in request.get("names", [])}
        self.unknown = [name for name, found in names.items() if not found]
        self.keep = bool(names) or request.get("keep", False)
        said = request["sources"]
        said = [source.strip() for source in said.split(",")] if isinstance(said, str) else said  # as Ansible reads a list
        self.everybody = EVERYBODY in said
        sources = [*said, *(source for found in names.values() for source in found)]
        try:
            networks = [] if self.everybody else sorted({ipaddress.ip_network(source) for source in sources}, key=str)
        except ValueError as error:
            raise Problem(f"firewall_sources: {error}; give addresses and networks, or {EVERYBODY} for everybody") from error
        self.sources = {version: [short(net) for net in networks if net.version == version] for version in (4, 6)}
        self.digest = hashlib.sha256(json.dumps([self.ports, self.sources], sort_keys=True).encode()).hexdigest()[:8]

    @property
    def comment(self):
        return f"{MARK} {self.digest}"

    def families(self):
        """4 and 6, as far as there is anybody to admit."""
        return [version for version in (4, 6) if self.everybody or self.sources[version]]


def resolve(name):
    """Addresses of a peer, as far as this host can tell."""
    try:
        found = {item[4][0] for item in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return []
    plain = [one for one in sorted(found) if "%" not in one]  # a link's own addresses are no source to name
    return [one for one in plain if not ipaddress.ip_address(one).is_loopback]


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
    everything = with_includes(conf, (*re.findall(r" -I (\S+)", unit), "/etc"))
    # A chain that somebody made at run time is not ours to keep alive, and naming it at boot would fail.
    closed = closed_chains(ruleset)
    chains = [chain for chain in closed if defines(everything, chain["family"], chain["table"])]
    lost = [address(chain) for chain in closed if chain not in chains and shut(ruleset, chain)]
    if lost and wanted.ports:
        raise Problem(
            "the nftables chain {} drops what comes in, but neither {} nor a file that it includes defines its table, so what is opened "
            "there would not last; define it there, or set firewall_ports to [] and open {} where the chain comes from".format(
                " and ".join(lost), conf, said(wanted)
            )
        )
    rules = [(chain, rule) for chain in chains for rule in nft_rules(wanted, chain["family"])]
    steps = []
    live, stale = nft_ours(ruleset, wanted.comment)
    count = len(rules)
    stale = [] if wanted.keep else stale
    if len(live) != count or stale:
        script = ["delete rule {} {} {} handle {}".format(*place) for place in live + stale]
        script += [f"insert rule {address(chain)} {rule}" for chain, rule in rules]
        steps.append((f"open {said(wanted)} in the running nftables", lambda: run("nft", "-f", "-", stdin="\n".join(script))))
    lines = [f"insert rule {address(chain)} {rule}" for chain, rule in rules]
    if wanted.keep:
        here = tuple(f"insert rule {address(chain)} " for chain in chains)
        lines += [line for line in read(DROP_IN).splitlines() if line.startswith(here) and line not in lines]
    lasting = "".join(line + "\n" for line in lines)
    head = f"# Written by the role corral.virt.firewall; included by {conf}.\n"
    include = f'include "{DROP_IN}"'
    if read(DROP_IN) != head + lasting and (rules or read(DROP_IN)):
        steps.append((f"write {DROP_IN}", lambda: write(DROP_IN, head + lasting)))
    if rules and include not in text.splitlines():
        new = text + ("" if text.endswith("\n") or not text else "\n") + include + "\n"
        steps.append((f"include it in {conf}", lambda: write(conf, new, verify=("nft", "-c", "-f"))))
    return steps


def closed_chains(ruleset):
    """Chains in which what comes to this host may be dropped: by policy, by a rule, or by a chain they jump to."""
    chains = [item["chain"] for item in ruleset if item.get("chain", {}).get("hook") == "input"]
    chains = [chain for chain in chains if chain["type"] == "filter" and chain["family"] in ("inet", "ip", "ip6")]

    def closed(chain):
        verdicts = {key for rule in rules_of(ruleset, chain) for key in rule}
        return chain.get("policy") == "drop" or verdicts & {"drop", "reject", "jump", "goto", "vmap"}

    return [chain for chain in chains if closed(chain)]


def shut(ruleset, chain):
    """Whether a chain drops whatever it did not accept: by policy, by a rule without a condition, or where such a rule leads."""
    if chain.get("policy") == "drop":
        return True
    for rule in rules_of(ruleset, chain):
        verdict = set(rule) - {"counter", "log"}
        if verdict in ({"drop"}, {"reject"}):
            return True
        if verdict in ({"jump"}, {"goto"}) and shut(ruleset, {**chain, "name": rule[verdict.pop()]["target"], "policy": None}):
            return True
    return False


def rules_of(ruleset, chain):
    """The rules of a chain, each as {kind of expression: what it says}."""
    place = (chain["family"], chain["table"], chain["name"])
    rules = [item["rule"] for item in ruleset if "rule" in item]
    rules = [rule for rule in rules if (rule["family"], rule["table"], rule["chain"]) == place]
    return [{key: value for part in rule["expr"] for key, value in part.items()} for rule in rules]


def with_includes(path, folders, seen=()):
    """The text of a file of nftables and of all that it includes; wildcards count, other folders are looked in as nft does."""
    text = read(path)
    texts = [text]
    for name in re.findall(r"""^[^#\n]*?\binclude\s+["']([^"'\n]+)["']""", text, re.MULTILINE):
        places = [name] if name.startswith("/") else [os.path.join(folder, name) for folder in (os.path.dirname(path), *folders)]
        found = next(filter(None, (sorted(filter(os.path.isfile, glob.glob(place))) for place in places)), [])
        texts += [with_includes(one, folders, (*seen, path)) for one in found if one not in (*seen, path)]
    return "\n".join(texts)


def defines(text, family, table):
    """Whether a file of nftables defines a table; without a family it is ip."""
    found = re.findall(r"^\s*(?:add\s+)?table\s+(?:(inet|ip6|ip|bridge|arp|netdev)\s+)?([\w.-]+)", text, re.MULTILINE)
    return (family, table) in [(kind or "ip", name) for kind, name in found]


def nft_rules(wanted, family):
    """Our rules for one chain, in nftables' words."""
    rules = []
    for protocol, ports in sorted(wanted.ports.items()):
        what = '{} dport {{ {} }} accept comment "{}"'.format(protocol, ", ".join(ports), wanted.comment)
        if wanted.everybody:
            rules.append(what)
            continue
        for version, word, kinds in ((4, "ip", ("ip", "inet")), (6, "ip6", ("ip6", "inet"))):
            if wanted.sources[version] and family in kinds:
                rules.append("{} saddr {{ {} }} {}".format(word, ", ".join(wanted.sources[version]), what))
    return rules


def nft_ours(ruleset, comment):
    """Places of our rules that say what is wanted now, and of those that said it before."""
    rules = [item["rule"] for item in ruleset if item.get("rule", {}).get("comment", "").split(" ")[0] == MARK]
    places = [(rule["comment"], tuple(rule[key] for key in ("family", "table", "chain", "handle"))) for rule in rules]
    return [place for said, place in places if said == comment], [place for said, place in places if said != comment]


def address(chain):
    return "{} {} {}".format(chain["family"], chain["table"], chain["name"])


# firewalld -----------------------------------------------------------------------------------------------------------


def firewalld(wanted):
    route = re.search(r"\bdev (\S+)", output("ip", "route", "show", "default"))
    zone = output("firewall-cmd", f"--get-zone-of-interface={route.group(1)}", may_fail=True).strip() if route else ""
    zone = zone or output("firewall-cmd", "--get-default-zone").strip()
    steps = []
    for lasting in ((), ("--permanent",)):
        command = ("firewall-cmd", *lasting, f"--zone={zone}")
        known = set(output(*command, "--list-rich-rules").splitlines()) | set(output(*command, "--list-ports").split())
        for kind, rule in firewalld_rules(wanted):
            if rule not in known:
                text = "{} {} in zone {}{}".format(kind, rule, zone, " for good" if lasting else "")
                steps.append((text, lambda c=command, k=kind, r=rule: run(*c, f"--add-{k}={r}")))
    return steps


def firewalld_rules(wanted):
    for protocol, ports in sorted(wanted.ports.items()):
        for port in ports:
            if wanted.everybody:
                yield "port", f"{port}/{protocol}"
            for version in (4, 6):
                for source in wanted.sources[version]:
                    what = f'port port="{port}" protocol="{protocol}" accept'
                    yield "rich-rule", f'rule family="ipv{version}" source address="{source}" {what}'


# ufw -----------------------------------------------------------------------------------------------------------------


def ufw(wanted):
    known = {" ".join(shlex.split(line)[1:]) for line in output("ufw", "show", "added").splitlines() if MARK in line}
    rules = set(ufw_rules(wanted))
    stale = [] if wanted.keep else sorted(known - rules)
    steps = [(f"remove ufw rule: {rule}", lambda r=rule: run("ufw", "delete", *ufw_words(r))) for rule in stale]
    return steps + [(f"add ufw rule: {rule}", lambda r=rule: run("ufw", *ufw_words(r))) for rule in sorted(rules - known)]


def ufw_rules(wanted):
    """As `ufw show added` prints them."""
    for protocol, ports in sorted(wanted.ports.items()):
        joined = ",".join(ports).replace("-", ":")
        if wanted.everybody:
            yield f"allow {joined}/{protocol} comment {MARK}"
        for source in wanted.sources[4] + wanted.sources[6]:
            yield f"allow from {source} to any port {joined} proto {protocol} comment {MARK}"


def ufw_words(rule):
    return rule.split(" ")


# iptables ------------------------------------------------------------------------------------------------------------


def iptables(wanted):
    steps = []
    for version, tool in ((4, "iptables"), (6, "ip6tables")):
        path = next((p for p in (f"/etc/iptables/rules.v{version}", f"/etc/sysconfig/{tool}") if os.path.exists(p)), None)
        rules = iptables_rules(wanted, version)
        live = [shlex.split(line)[2:] for line in output(tool, "-S", "INPUT").splitlines() if MARK in line]
        now = [shlex.split(rule) for rule in rules]
        remove = [] if wanted.keep else [("-D", "INPUT", *words) for words in live if words not in now]
        add = [("-I", "INPUT", *words) for words in now if words not in live]
        if remove or add:
            steps.append(
                (
                    f"open {said(wanted)} in the running {tool}",
                    lambda t=tool, changes=remove + add: [run(t, "-w", *words) for words in changes],
                )
            )
        if path:
            before = read(path)
            after = iptables_text(before, rules, wanted.keep)
            if before != after:
                steps.append((f"write {path}", lambda p=path, a=after, t=tool: write(p, a, feed=(t + "-restore", "--test"))))
    return steps


def iptables_rules(wanted, version):
    """As `iptables -S` prints them, without `-A INPUT`."""
    if version not in wanted.families():
        return []
    tail = '-m multiport --dports %s -m comment --comment "' + wanted.comment + '" -j ACCEPT'
    rules = []
    for protocol, ports in sorted(wanted.ports.items()):
        what = f"-p {protocol} " + tail % ",".join(ports).replace("-", ":")
        full = [s if "/" in s else f"{s}/{32 if version == 4 else 128}" for s in wanted.sources[version]]
        rules += [what] if wanted.everybody else [f"-s {source} {what}" for source in full]
    return rules


def iptables_text(text, rules, keep=False):
    """A rules file with exactly our rules, or to `keep` also with those of before, in front of all others of its filter table."""
    now = [shlex.split("-A INPUT " + rule) for rule in rules]
    ours = [line for line in text.splitlines() if line.startswith("-A INPUT ") and MARK in line]
    gone = [line for line in ours if not keep or shlex.split(line) in now]
    lines = [line for line in text.splitlines() if line not in gone]
    if "*filter" not in lines:
        return text
    start = lines.index("*filter") + 1
    place = next(i for i, line in enumerate(lines) if i >= start and not line.startswith((":", "#")))
    return "\n".join(lines[:place] + ["-A INPUT " + rule for rule in rules] + lines[place:]) + "\n"


MANAGERS = {"nftables": nftables, "firewalld": firewalld, "ufw": ufw, "iptables": iptables}

# The machine ---------------------------------------------------------------------------------------------------------


def said(wanted):
    return " ".join(f"{port}/{protocol}" for protocol, ports in sorted(wanted.ports.items()) for port in ports) or "no port"


def output(*command, may_fail=False):
    return run(*command, may_fail=may_fail)


def run(*command, stdin=None, may_fail=False):
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode and not may_fail:
        raise Problem("{} failed: {}".format(" ".join(command), (done.stderr or done.stdout).strip()))
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
    """Replace a file in one step, when the program that will read it accepts it. It keeps its owner and permissions from the first byte."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    aside = path + ".corral-new"
    if os.path.lexists(aside):  # of a run that was killed
        os.unlink(aside)
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w") as stream:
            stream.write(text)
            if os.path.exists(path):
                status = os.stat(path)
                os.fchown(descriptor, status.st_uid, status.st_gid)
                os.fchmod(descriptor, status.st_mode & 0o7777)
            else:
                os.fchmod(descriptor, 0o644)
            stream.flush()
            os.fsync(descriptor)
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
        sys.exit(f"cannot open ports: {problem}")
