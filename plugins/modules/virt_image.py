#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A disk image is in a pool, or a disk made from one."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_image
short_description: A disk image is in a storage pool, or a disk made from one
version_added: 0.1.0
description:
  - Brings an image into a pool that is a directory, verified before it becomes visible under its name.
  - The content is an immutable, read-only file whose name holds the checksum of its source
    (C(debian-12.1a2b3c4d5e6f.qcow2)); the image's name is a link to it. A newer version never rewrites the file under
    disks that stand on it.
  - A download that was interrupted goes on where it ended, in the same run (O(retries)) and in the next. What is not
    whole yet is kept in the directory C(.corral) of the pool, never among the images.
  - Two runs that want the same image on the same host do the work once.
  - How far a transfer is, is shown on the terminal. It goes on when the connection to the host, or the controller, is
    lost.
  - With O(image), O(size), O(state=rebased) or O(state=flattened), O(name) is a disk instead, a plain file of the pool
    that guests write to. It is made from an image, grows, and comes to stand on another image or on nothing. A disk
    that a running guest of this host has is only changed through libvirt, by what QEMU can do meanwhile; one that is
    open in any other process is left alone.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
options:
  name:
    description: Name of the image or disk in the pool, with its ending.
    type: str
    required: true
  pool:
    description: Storage pool; a directory of the machine on which the module runs.
    type: str
    default: default
  state:
    description:
      - V(present) has the image, or the disk; a disk that is there is kept, with its content, whatever O(clone) says.
      - V(absent) removes the image with all its contents, unless a disk in an active pool or a guest of the host stands
        on one of them. A disk is only removed with O(remove_storage), and when no guest has it, no image in an active
        pool stands on it, and no process has it open.
      - V(rebased) lets the disk stand on the current content of O(image). Its own content stays as it is; what differs
        is copied into it. Refused while a guest runs with it.
      - V(flattened) lets the disk stand on nothing; all it reads from below is copied into it. While a guest runs with
        it, by a job of its QEMU.
      - A disk that no guest of the host has is rebased, flattened or resized only when it stands on images from this
        module. What else its own first bytes name, a guest may have written.
    type: str
    choices: [present, absent, rebased, flattened]
    default: present
  image:
    description:
      - The image from which the disk is made, or with O(state=rebased) on which it is to stand. A disk always stands on
        the content that the name points to now, never on the name.
      - A disk that stands on an older content of the same image is as wanted; one that stands on another image is
        refused.
      - A disk of a guest is no image to stand on. It can be copied while the guest is off.
      - It must be qcow2 or raw by the ending of its name and by its first bytes, and stand on nothing or on images from
        this module.
    type: str
  image_pool:
    description: Pool of O(image); follows from O(pool) when not given.
    type: str
  clone:
    description:
      - How the disk is made from O(image). With V(overlay), what is written goes into the disk, the rest is read from
        the image.
      - V(copy) takes all of it, with holes where it has holes. Where the filesystem can, it shares blocks with the
        image until they are written, if both have the same format.
      - Follows as V(overlay) when not given.
    type: str
    choices: [overlay, copy]
  size:
    description:
      - Size of the disk, as V(20GiB); a bare number is in GiB. A disk that is made has the size of its image when not
        given.
      - A disk that is there grows, also while its guest runs. The guest sees more room; what is in the disk is the
        guest's to enlarge.
    type: str
  allow_shrink:
    description:
      - Let O(size) be smaller than the disk, or than the image it is made from. Everything beyond the new end is lost,
        so shrink what is in the disk before. Refused while a guest runs with it or an image stands on it.
    type: bool
    default: false
  remove_storage:
    description: With O(state=absent), remove the disk O(name) and its data.
    type: bool
    default: false
  job_timeout:
    description: Seconds that flattening in a running guest may take; then it stops, and the disk stands where it stood.
    type: int
    default: 1800
  url:
    description:
      - Where to download it from (HTTP or HTTPS; proxies as the environment says). Files ending in C(.gz), C(.xz),
        C(.bz2) or C(.zst) (which needs C(zstd) on the host) are unpacked.
      - Its user, password and query (a presigned URL) are neither shown nor kept.
    type: str
  src:
    description:
      - A file on the controller, looked for as P(ansible.builtin.copy#module) does. It is sent piece by piece, and goes
        on where a broken transfer ended.
    type: path
  remote_src:
    description: Whether O(src) is a file of the machine on which the module runs.
    type: bool
    default: false
  origin:
    description:
      - Another hypervisor that has the image from this module. It is copied over libvirt's TLS connection, sparse.
      - Its bytes must be those of O(checksum), whatever that hypervisor notes of them. An image that was unpacked or
        converted there has others, and is refused; bring it from its source, or give the sha256 of the file itself.
      - Without O(checksum) it is what the name points to there, with a warning and RV(verified) false.
    type: str
  origin_uri:
    description: The libvirt of O(origin) as this host reaches it. V(qemu+tls://ORIGIN/system) when not given.
    type: str
  origin_pool:
    description: Pool of O(origin). O(pool) when not given.
    type: str
  catalogue:
    description:
      - An official cloud image by its name, such as V(debian-12) or V(fedora-43). It stands for O(url), O(checksum)
        and, with a O(keyring), O(signature).
      - The names are in the guide "Images".
    type: str
  arch:
    description: Architecture of the image that O(catalogue) names, in its kernel's or its vendor's spelling. V(x86_64)
      when not given.
    type: str
  fan_out:
    description:
      - Let hosts of the play feed each other. The source (O(url), O(src) or O(origin)) feeds one host, and each host
        that has the image feeds one other at a time, over libvirt's TLS connection.
      - An image that is unpacked or converted comes from its source on each host, with a warning, as under O(origin).
      - Hosts must reach each other as C(qemu+tls://INVENTORY_NAME/system), as role P(corral.virt.pki#role) sees to. A
        host that cannot feed is passed over with a warning.
    type: bool
    default: false
  checksum:
    description:
      - V(sha256:<hex>), V(sha384:<hex>) or V(sha512:<hex>), or the URL of a published list (V(https://…/SHA512SUMS),
        V(sha256:https://…)). Lists of Debian, Ubuntu, Fedora, CentOS, AlmaLinux, Rocky and openSUSE are understood.
      - V(none) downloads unverified. A download without any is refused.
      - With a list, a new version is fetched when the list changes. A list verifies an image only when it comes over
        HTTPS, from a server whose certificate is checked, or with a O(signature). With any other list the image is
        brought all the same, with a warning and RV(verified) false.
      - Of a file of the controller, the checksum is taken there when it is not given.
    type: str
  signature:
    description:
      - The signature of the list in O(checksum). An URL, or V(inline) where the list holds its signature itself
        (Fedora). It is checked with C(gpgv).
    type: str
  keyring:
    description: Whose O(signature) is trusted. OpenPGP public keys, as armoured text or as the path of a file on the
      host.
    type: str
  format:
    description:
      - Format in the pool; follows from the ending of O(name) when not given. The source (qcow2, raw, vmdk, vdi, vhdx,
        vpc) is converted when it differs.
      - A disk that is there must be of that format already. What a guest has written is not asked what it is.
    type: str
    choices: [qcow2, raw]
  current:
    description:
      - Let O(name) point to what O(checksum) says. With V(false) that content is brought beside the current one, for
        disks that stand on it or will; playbook C(corral.virt.migrate) does.
    type: bool
    default: true
  prune:
    description:
      - Remove earlier contents of this image that no disk in a pool and no guest of the host stands on, and from which
        none is being made. Those kept are told in RV(notes).
    type: bool
    default: false
  max_size:
    description:
      - How large the image may be at most, as V(20GiB); a bare number is in GiB. It bounds what is sent, what that is
        unpacked to, and the disk inside the image. What is larger is refused, and nothing of it is left. A file of a
        few KiB can be made to unpack without end.
      - Images of vendors are a few GiB; a Windows disk can be 127 GiB.
    type: str
    default: 256GiB
  reserve:
    description:
      - Room in O(pool) that stays free, as V(20GiB). When not given, the larger of 1 GiB and 5 % of the filesystem;
        V(0) is none.
      - What would leave less is refused before anything is written, as far as its size is known; else as soon as it is
        seen. It holds for images, for disks that are made, rebased or flattened, and not for what guests write later.
    type: str
  retries:
    description: How often a download is tried again that fails for the moment (no answer, a stall, HTTP 5xx), after 1,
      2, 4, … 30 seconds.
    type: int
    default: 4
  timeout:
    description: Seconds without a byte after which a download counts as failed.
    type: int
    default: 60
  headers:
    description: Headers to send to the server of O(url), by name.
    type: dict
  url_username:
    description: User for the server of O(url).
    type: str
  url_password:
    description: Password for the server of O(url).
    type: str
  force_basic_auth:
    description: Send user and password without being asked for them.
    type: bool
    default: false
  validate_certs:
    description: Verify the server's TLS certificate.
    type: bool
    default: true
  ca_path:
    description: File with the certificates of the authorities that are trusted, instead of the host's own.
    type: path
  use_proxy:
    description: Go through the proxy that the host's environment names.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: The current Debian 12 is in the pool
  corral.virt.virt_image:
    name: debian-12.qcow2
    url: https://cloud.debian.org/images/cloud/bookworm/latest/debian-12-genericcloud-amd64.qcow2
    checksum: https://cloud.debian.org/images/cloud/bookworm/latest/SHA512SUMS

- name: The same by its name, on all hypervisors with one download, and earlier ones go
  corral.virt.virt_image:
    name: debian-12.qcow2
    catalogue: debian-12
    fan_out: true
    prune: true

- name: A list is trusted for its signature
  corral.virt.virt_image:
    name: ubuntu-24.04.qcow2
    url: https://cloud-images.ubuntu.com/noble/current/noble-server-cloudimg-amd64.img
    checksum: https://cloud-images.ubuntu.com/noble/current/SHA256SUMS
    signature: https://cloud-images.ubuntu.com/noble/current/SHA256SUMS.gpg
    keyring: "{{ lookup('ansible.builtin.file', 'ubuntu-cloudimage.asc') }}"

- name: An image of the controller
  corral.virt.virt_image:
    name: centos.qcow2
    src: images/centos.qcow2

- name: An image that lies on the host already
  corral.virt.virt_image:
    name: centos.qcow2
    src: /srv/incoming/centos.vmdk
    remote_src: true
    checksum: sha256:0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0

- name: What another hypervisor has
  corral.virt.virt_image:
    name: centos.qcow2
    origin: hyper1

- name: An image that no disk stands on any more is gone
  corral.virt.virt_image:
    name: debian-11.qcow2
    state: absent

- name: A disk that stands on an image, larger than it; later a larger size grows it, also while its guest runs
  corral.virt.virt_image:
    name: web1-data.qcow2
    image: debian-12.qcow2
    size: 20GiB

- name: A raw disk with all of the image in it
  corral.virt.virt_image:
    name: db1-data.img
    image: debian-12.qcow2
    clone: copy

- name: A disk is cut, after its filesystem was shrunk
  corral.virt.virt_image:
    name: web1-data.qcow2
    size: 10GiB
    allow_shrink: true

- name: A disk stands on the current Debian, with its content as it was
  corral.virt.virt_image:
    name: web1-data.qcow2
    image: debian-12.qcow2
    state: rebased

- name: A disk stands on nothing, so that its image can go
  corral.virt.virt_image:
    name: web1-data.qcow2
    state: flattened

- name: A disk that no guest has any more is gone, with its data
  corral.virt.virt_image:
    name: web1-data.qcow2
    state: absent
    remove_storage: true
"""

RETURN = r"""
read_again:
  description: Whether the content that is there was read again, as it was not the very file that its manifest says was
    verified.
  returned: with O(current=false), when it was
  type: bool
name:
  description: Name of the image.
  returned: success
  type: str
path:
  description: Path under which the image is found.
  returned: success
  type: str
content:
  description: Name of the immutable file it points to.
  returned: for an image
  type: str
size_bytes:
  description: Size of the disk; its file can be smaller.
  returned: for a disk, when present
  type: int
stands_on:
  description: Path of the image on which the disk stands; null when on none.
  returned: for a disk
  type: str
checksum:
  description: Digest of the source that is wanted, as far as it is known.
  returned: when known
  type: str
verified:
  description:
    - Whether the image is what a checksum says that nobody on the way can have written - given as a digest, in a list
      that came over HTTPS, or in a signed list.
  returned: for an image, when present
  type: bool
fetched_from:
  description: URL (without user, password and query), file or hypervisor that it was, or would be, fetched from.
  returned: when fetched
  type: str
part:
  description: What the host has already of what would be fetched, C(path) and C(bytes), and how large it may become,
    C(max_bytes).
  returned: in check mode, when it would be fetched
  type: dict
progress:
  description: File in which the module notes how far it is, while it copies, rebases or flattens a disk.
  returned: in check mode, when it would do so
  type: str
steps:
  description: What was done, or in check mode would be done, in order.
  returned: success
  type: list
  elements: str
notes:
  description: What the user should know, such as earlier contents that are still in use.
  returned: success
  type: list
  elements: str
"""

import typing as t
from urllib.parse import urlsplit

from ansible.module_utils.urls import ConnectionError as UrlsError
from ansible.module_utils.urls import open_url

from ansible_collections.corral.virt.plugins.module_utils._files.detached import detach
from ansible_collections.corral.virt.plugins.module_utils._front import clone, image
from ansible_collections.corral.virt.plugins.module_utils._front.module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._front.reach import reached
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._plan import arrival, clone_spec, image_spec
from ansible_collections.corral.virt.plugins.module_utils._run import Gate

HTTP_OPTIONS = {
    "timeout": {"type": "int", "default": 60},
    "headers": {"type": "dict", "no_log": True},
    "url_username": {"type": "str"},
    "url_password": {"type": "str", "no_log": True},
    "force_basic_auth": {"type": "bool", "default": False},
    "validate_certs": {"type": "bool", "default": True},
    "ca_path": {"type": "path"},
    "use_proxy": {"type": "bool", "default": True},
}
# Understood by the action plugin, which leaves them out of what it sends here.
CONTROLLER_OPTIONS = {
    "catalogue": {"type": "str"},
    "arch": {"type": "str"},
    "fan_out": {"type": "bool", "default": False},
}


def _opener(params: t.Mapping[str, t.Any]) -> t.Any:
    """Read an address; who the user is, only the server of `url` is told."""

    def read(location: str, headers: t.Mapping[str, str]) -> t.Any:
        said = {name: params[name] for name in ("timeout", "validate_certs", "ca_path", "use_proxy")}
        if urlsplit(location)[:2] == urlsplit(params["url"] or "")[:2]:
            said.update({name: params[name] for name in ("url_username", "url_password", "force_basic_auth")})
            headers = {**(params["headers"] or {}), **headers}
        try:
            return open_url(
                location,
                headers=headers,
                http_agent="corral.virt",
                decompress=False,
                unredirected_headers=["Authorization", "Cookie", *(params["headers"] or ())],
                **said,
            )
        except UrlsError as error:
            raise arrival.unread(location, error) from error

    return read


def main() -> None:
    """Parameters in, one image or disk in its place, result out."""
    spec = {**URI_OPTION, **image.OPTIONS, **clone.OPTIONS, **HTTP_OPTIONS, **CONTROLLER_OPTIONS}
    module = Module(argument_spec=spec, supports_check_mode=True)
    gate, disk = Gate(check_mode=module.check_mode), clone_spec.concerns(module.params)
    with failures(module):
        image_spec.refuse_bypass(module.params)
        detach("virt_image")
        with opened(module.params["uri"], watched=disk) as connection:
            if disk:
                result = clone.converge(connection, module.params, gate)
            else:
                world = image.World(_opener(module.params), lambda uri: reached(uri, watched=True))
                result = image.converge(connection, module.params, gate, world)
    for warning in result.pop("warnings", []):
        module.warn(warning)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
