"""The lab: bare Debian hosts on this machine, to try the collection on. See docs/docsite/rst/guide_lab.rst."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from pathlib import Path

from corral_lab import dhcp, host, image, life, machine, needs, processes, small, template, webserver
from corral_lab.mirror import RELEASES
from corral_lab.places import NAME, Lab, Problem, labs, names


def main() -> int:
    arguments = _parser().parse_args()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, _interrupt)
    try:
        return int(arguments.run(arguments) or 0)
    except Problem as problem:
        print(f"lab.py: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("lab.py: interrupted; run it again to go on, or `lab.py down` to remove what is there", file=sys.stderr)
        return 130


def _interrupt(*_: object) -> None:
    """End in order, once: a second Ctrl-C does not cut that short."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    up = commands.add_parser("up", help="have a lab running; again: nothing changes")
    up.add_argument("--name", default="demo", type=_name)
    up.add_argument("--hosts", default=2, type=int, help="how many: hyper1, hyper2, ... (default 2)")
    up.add_argument("--release", default="bookworm", choices=RELEASES, help="the hosts' Debian (default bookworm)")
    up.add_argument("--host", action="append", default=[], metavar="NAME=RELEASE", help="another Debian for one host")
    up.add_argument("--network", default="ifupdown", choices=host.NETWORKS, help="what configures the hosts' network")
    up.add_argument("--mirror", help="package mirror; default: this machine's own")
    packages_help = "installed on the hosts from the start (default: none, the hosts are bare)"
    up.add_argument("--packages", default=[], type=lambda text: text.split(","), metavar="NAME,...", help=packages_help)
    image_help = "with a cloud image on a web server (default)"
    up.add_argument("--image", default=True, action=argparse.BooleanOptionalAction, help=image_help)
    later_help = "do not wait for the image: its server answers when it is built"
    up.add_argument("--image-later", action="store_true", help=later_help)
    up.add_argument("--subnet", type=int, metavar="N", help="use 10.86.N.0/24 if nobody does")
    template_help = "begin with the template in that slot, if it has that key and the same network"
    up.add_argument("--template", type=_template, metavar="SLOT=KEY", help=template_help)
    kvm_help = "give the hosts KVM, if a guest starts with it (default: guests are emulated)"
    up.add_argument("--kvm", action="store_true", help=kvm_help)
    uml_help = "each host has a Linux of its own (User-Mode Linux), and so LVM; guests are too slow for a system"
    up.add_argument("--uml", action="store_true", help=uml_help)
    up.set_defaults(run=_up)

    make = commands.add_parser("template", help="stop a lab and make a template of it, for others to begin with")
    make.add_argument("--name", required=True, type=_name)
    make.add_argument("template", type=_template, metavar="SLOT=KEY")
    make.set_defaults(run=lambda given: life.make_template(given.name, given.template))

    down = commands.add_parser("down", help="remove a lab; the cache stays")
    down.add_argument("--name", default="demo", type=_name)
    down.add_argument("--all", action="store_true", help="every lab of this machine, also those of other checkouts")
    down.add_argument("--of-others", action="store_true", help="also a lab that belongs to another checkout")
    down.add_argument("--purge-cache", action="store_true", help="then remove the cache as well")
    down.set_defaults(run=_down)

    here = commands.add_parser("here", help="tell whether this machine can hold a lab, but for its packages")
    here.set_defaults(run=lambda _given: needs.check_machine())

    commands.add_parser("status", help="show every lab of this machine").set_defaults(run=_status)

    build = commands.add_parser("image", help="build the cloud image and print where it is")
    build.add_argument("--mirror")
    build.add_argument("--digest", action="store_true", help="print only its SHA-256, in hexadecimal digits")
    build.set_defaults(run=_image)

    small_help = "build the image of small guests for a lab and print where it is; beside it, their host key"
    guest = commands.add_parser("small-image", help=small_help)
    guest.add_argument("--name", default="demo", type=_name)
    guest.add_argument("--mirror")
    guest.set_defaults(run=_small_image)

    reserve = commands.add_parser(
        "reserve", help="give a guest another address by DHCP, from its next request on: reserve MAC ADDRESS"
    )
    reserve.add_argument("--name", default="demo", type=_name)
    reserve.add_argument("mac")
    reserve.add_argument("address")
    reserve.set_defaults(run=_reserve)

    execute = commands.add_parser("exec", help="run a command in a host, past its network: exec HOST -- COMMAND")
    execute.add_argument("--name", default="demo", type=_name)
    execute.add_argument("host")
    execute.add_argument("command", nargs="+")
    execute.set_defaults(run=_exec)

    serve = commands.add_parser("serve")  # for `up`: the image's server
    serve.add_argument("lab")
    serve.add_argument("address")
    serve.add_argument("port", type=int)
    serve.add_argument("directory", type=Path)
    serve.set_defaults(run=lambda given: webserver.serve(given.lab, given.address, given.port, given.directory))
    return parser


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no name for a lab: up to 8 small letters and digits, a letter first"
        )
    return text


def _template(text: str) -> template.Template:
    slot, equals, key = text.partition("=")
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", slot) or not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not SLOT=KEY")
    return template.Template(slot, key)


def _up(given: argparse.Namespace) -> None:
    needs.check(image=given.image)
    if not 1 <= given.hosts <= 89:
        raise Problem(f"--hosts {given.hosts} is not between 1 and 89")
    releases = {f"hyper{number}": given.release for number in range(1, given.hosts + 1)}
    for spec in given.host:
        name, _equals, release = spec.partition("=")
        if name not in releases or release not in RELEASES:
            raise Problem(
                f"--host {spec} is not NAME=RELEASE with one of {', '.join(releases)} and one of {', '.join(RELEASES)}"
            )
        releases[name] = release
    wanted = life.Wanted(
        releases,
        given.network,
        given.mirror,
        given.image,
        image_later=given.image_later,
        packages=[*given.packages, *host.NETWORKS[given.network]],
        subnet=given.subnet,
        template=given.template,
        kvm=given.kvm,
        uml=given.uml,
    )
    lab = life.up(given.name, wanted)
    print(f"\n  ansible-playbook -i {lab.build}/inventory ...\n  ssh -F {lab.build}/ssh_config hyper1")


def _down(given: argparse.Namespace) -> None:
    needs.check(image=False)
    for name in sorted(names()) if given.all else [given.name]:
        life.down(name, of_others=given.of_others or given.all)
    if given.purge_cache:
        life.purge_cache()


def _status(given: argparse.Namespace) -> None:
    for lab in labs():
        print(f"{lab.name}: {lab.network}, {lab.build}")
        for each in host.hosts(lab).values():
            print(f"  {each.name}  {each.address}  {each.release}  {_state(lab, each.name)}")
        print(f"  DHCP server {lab.prefix}.{dhcp.FIRST} to .{dhcp.LAST}  {_state(lab, dhcp.PART)}")
        print(f"  image server {webserver.url(lab)}  {_state(lab, 'web')}")


def _state(lab: Lab, part: str) -> str:
    return "running" if processes.find(lab.name, part) else "not running"


def _image(given: argparse.Namespace) -> None:
    needs.check(image=True)
    made = image.image(mirror_url=given.mirror, lab="image", say=(lambda _text: None) if given.digest else life.say)
    print(made.with_name("SHA256SUMS").read_text().split()[0] if given.digest else made)


def _small_image(given: argparse.Namespace) -> None:
    needs.check(image=True)
    print(small.image(life.find(given.name), mirror_url=given.mirror, say=lambda _text: None))


def _reserve(given: argparse.Namespace) -> None:
    needs.check(image=False)
    dhcp.reserve(life.find(given.name), given.mac, given.address)


def _exec(given: argparse.Namespace) -> int:
    needs.check(image=False)
    lab = life.find(given.name)
    known = host.hosts(lab)
    if given.host not in known:
        raise Problem(f"lab {lab.name} has no host {given.host}: it has {', '.join(known)}")
    return machine.execute(lab, known[given.host], given.command)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # without waiting for threads that wait for hosts
