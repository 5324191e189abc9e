#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A disk image is in a pool, or a disk made from one."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_image
short_description: Manage disk images, and disks created from them, in a storage pool
version_added: 0.1.0
description:
  - Adds an image to a pool that is a directory. The module verifies the image before it becomes visible under its name.
  - The content is an immutable, read-only file whose name contains the checksum of its source
    (C(debian-12.1a2b3c4d5e6f.qcow2)); the image's name is a link to this file. A newer version never overwrites the
    backing file of existing disks.
  - An interrupted download resumes where it stopped, in the same run (O(retries)) and in the next run. Incomplete files
    are kept in the directory C(.corral) of the pool, never among the images.
  - If two runs want the same image on the same host, the work is done once.
  - Transfer progress is shown on the terminal. A transfer continues if the connection to the host, or the controller,
    is lost.
  - With O(image), O(size), O(state=rebased) or O(state=flattened), O(name) is a disk instead, a plain file in the pool
    that guests write to. The module creates it from an image, grows it, changes its backing image or removes its
    backing image. It changes a disk of a running guest of this host only through libvirt, as far as QEMU supports it.
    It does not touch a disk that any other process has open.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
options:
  name:
    description: Name of the image or disk in the pool, with its suffix.
    type: str
    required: true
  pool:
    description: Storage pool; a directory on the machine on which the module runs.
    type: str
    default: default
  state:
    description:
      - V(present) ensures that the image or disk exists. An existing disk keeps its content, whatever O(clone) says.
      - V(absent) removes the image with all its contents, unless a disk in an active pool or a guest of the host uses
        one of them as its backing file, or a process of any host has it open. See O(used_elsewhere) for a pool on a
        shared filesystem. It removes a disk only with O(remove_storage), and only if no guest has it, no
        image in an active pool is based on it, and no process has it open.
      - V(rebased) makes the current content of O(image) the backing file of the disk. The guest sees the same content
        as before; the differences are copied into the disk. Refused while a guest runs with it.
      - V(flattened) removes the backing file of the disk; all data that the disk reads from it is copied into the disk.
        While a guest runs with the disk, a job of its QEMU does this.
      - A disk that no guest of the host has is rebased, flattened or resized only if its backing files are images from
        this module. Any other backing file that its header names may have been written by a guest.
    type: str
    choices: [present, absent, rebased, flattened]
    default: present
  image:
    description:
      - The image from which the disk is created, or with O(state=rebased) the new backing image. The backing file is
        always the content that the name currently points to, never the name itself.
      - A disk that is based on an older content of the same image is accepted; a disk that is based on another image is
        refused.
      - A guest's disk cannot be a backing image. It can be copied while the guest is off.
      - The image must be qcow2 or raw by its suffix and by its first bytes, and must have no backing file, or one from
        this module.
    type: str
  image_pool:
    description: Pool of O(image). Defaults to O(pool).
    type: str
  clone:
    description:
      - How the disk is created from O(image). V(overlay) stores writes in the disk, and reads everything else from the
        image.
      - V(copy) copies the whole image and keeps it sparse. Where the filesystem supports it, the copy shares blocks
        with the image until they are written, if both have the same format.
      - Defaults to V(overlay).
    type: str
    choices: [overlay, copy]
  size:
    description:
      - Size of the disk, such as V(20GiB); a bare number is in GiB. A new disk has the size of its image by default.
      - An existing disk grows, even while its guest runs. The guest sees a larger disk; enlarging the partitions and
        filesystems in it is up to the guest.
    type: str
  allow_shrink:
    description:
      - Allow O(size) to be smaller than the disk, or than the image from which it is created. All data beyond the new
        end is lost, so shrink the filesystems in the disk first. Refused while a guest runs with the disk, or while an
        image is based on it.
    type: bool
    default: false
  remove_storage:
    description: With O(state=absent), remove the disk O(name) and its data.
    type: bool
    default: false
  job_timeout:
    description: Seconds that flattening in a running guest may take. After that it stops, and the disk keeps its
      backing file.
    type: int
    default: 1800
  url:
    description:
      - URL to download the image from (HTTP or HTTPS; proxies from the environment). Files that end in C(.gz), C(.xz),
        C(.bz2) or C(.zst) (which requires C(zstd) on the host) are unpacked. So are archives that contain exactly one
        disk (C(.tar), compressed or not, C(.box) and C(.ova)).
      - User, password and query (a presigned URL) are neither shown nor stored.
    type: str
  src:
    description:
      - A file on the controller, found as by P(ansible.builtin.copy#module). It is sent in pieces, and an interrupted
        transfer resumes where it stopped.
    type: path
  remote_src:
    description: Whether O(src) is a file on the machine on which the module runs.
    type: bool
    default: false
  origin:
    description:
      - Another hypervisor that has the image from this module. The image is copied over libvirt's TLS connection, as a
        sparse file.
      - Its bytes must match O(checksum), whatever that hypervisor has recorded. An image that was unpacked or converted
        there does not match, and is refused; fetch it from its source, or set the sha256 of the file itself.
      - Without O(checksum), the module copies the content that the name points to there, with a warning and
        RV(verified) false.
    type: str
  origin_uri:
    description: libvirt URI of O(origin) as this host reaches it. Defaults to V(qemu+tls://ORIGIN/system).
    type: str
  origin_pool:
    description: Pool on O(origin). Defaults to O(pool).
    type: str
  catalogue:
    description:
      - Name of an official cloud image, such as V(debian-12) or V(fedora-43). It sets O(url), O(checksum) and, with a
        O(keyring), O(signature).
      - The guide "Images" lists the names. The variable C(virt_images_catalogue) adds images and changes those of the
        collection. With the variable C(virt_images_mirror), the addresses lead to that mirror.
    type: str
  arch:
    description: Architecture of the O(catalogue) image, as spelled by the kernel or the vendor. Defaults to the host's
      architecture if its facts are known, and otherwise to V(x86_64).
    type: str
  update:
    description: Whether an existing image is replaced by another content that O(checksum) selects. With V(false), an
      existing file O(name) is kept, whoever imported it, and neither the source nor a list is read.
    type: bool
    default: true
  fan_out:
    description:
      - Let the hosts of the play distribute the image. The source (O(url), O(src) or O(origin)) serves one host, and
        each host that has the image serves one other host at a time, over libvirt's TLS connection.
      - For an image that is unpacked or converted, each host fetches it from the source, with a warning, as described
        for O(origin).
      - Hosts must reach each other as C(qemu+tls://INVENTORY_NAME/system), which the role P(corral.virt.pki#role) sets
        up. A host that cannot serve the image is skipped with a warning.
    type: bool
    default: false
  checksum:
    description:
      - V(sha256:<hex>), V(sha384:<hex>) or V(sha512:<hex>), or the URL of a published list (V(https://…/SHA512SUMS),
        V(sha256:https://…)). The module supports the lists of Debian, Ubuntu, Fedora, CentOS, AlmaLinux, Rocky and
        openSUSE, the output of C(openssl dgst), the JSON documents of Fedora CoreOS and simplestreams, and metalinks
        (of these only digests of whole files; the addresses in them are not used).
      - In a list with sections, the heading names the algorithm. A digest of BLAKE2 or SHA3 is not one of SHA-2.
      - V(none) downloads without verification. A download without O(checksum) is refused.
      - With a list, a new version is fetched when the list changes. A list verifies an image only if it has a
        O(signature), or comes over HTTPS from a server whose certificate is verified. With any other list the image is
        fetched with a warning and RV(verified) false.
      - For a file on the controller, the checksum is computed there by default.
    type: str
  signature:
    description:
      - Signature of the list in O(checksum), as a URL, or V(inline) if the list contains its signature (Fedora). It is
        checked with C(gpgv).
    type: str
  keyring:
    description: OpenPGP public keys trusted to sign the list, as armoured text or as the path of a file on the host.
    type: str
  format:
    description:
      - Format in the pool. Defaults to the suffix of O(name). The source (qcow2, raw, vmdk, vdi, vhdx, vpc) is
        converted if its format differs.
      - An existing disk must already have this format. Guest-written disks are never probed for their format.
    type: str
    choices: [qcow2, raw]
  current:
    description:
      - Whether O(name) points to the content that O(checksum) selects. With V(false), that content is stored beside the
        current one, for disks that are or will be based on it. The playbook C(corral.virt.migrate) uses this.
      - The task is refused if O(name) would point to another content while an overlay is based on the name instead of a
        content.
    type: bool
    default: true
  prune:
    description:
      - Remove earlier contents of this image that no disk in a pool and no guest of the host uses as a backing file,
        which no process of any host has open, and from which no disk is being created. RV(notes) lists the contents
        that are kept.
      - In a pool on a filesystem that other hosts may mount, such as NFS, nothing is removed without O(used_elsewhere).
        The playbook C(corral.virt.images) asks all hosts, and sets it.
    type: bool
    default: false
  used_elsewhere:
    description:
      - The contents that disks or guests of other hosts use, by file name, each with a user, such as V(guest web1 on
        hyper2). O(prune) keeps them, and O(state=absent) is refused. V({}) means that no other host uses any.
      - It counts only in a pool on a filesystem that other hosts may mount.
    type: dict
  max_size:
    description:
      - Maximum size of the image, such as V(20GiB); a bare number is in GiB. It limits the transferred file, the
        unpacked file, and the disk inside the image. A larger image is refused, and nothing of it is kept. A file of a
        few KiB can be crafted to unpack without end.
      - Vendor images are a few GiB; a Windows disk can be 127 GiB.
    type: str
    default: 256GiB
  reserve:
    description:
      - Space that must stay free in O(pool), such as V(20GiB). Defaults to 1 GiB or 5 % of the filesystem, whichever is
        larger; V(0) reserves nothing.
      - A transfer that would leave less is refused before anything is written if its size is known, and otherwise as
        soon as the size is known. The reserve applies to images and to disks that are created, rebased or flattened,
        not to later writes of guests.
    type: str
  retries:
    description: Number of retries of a download that fails temporarily (no answer, a stall, HTTP 5xx). The delays are
      1, 2, 4, … 30 seconds.
    type: int
    default: 4
  timeout:
    description: Seconds without data after which a download fails.
    type: int
    default: 60
  headers:
    description: HTTP headers to send to the server of O(url), by name.
    type: dict
  url_username:
    description: User for the server of O(url).
    type: str
  url_password:
    description: Password for the server of O(url).
    type: str
  force_basic_auth:
    description: Send user and password with the initial request.
    type: bool
    default: false
  validate_certs:
    description: Verify the server's TLS certificate.
    type: bool
    default: true
  ca_path:
    description: File with the certificates of the trusted CAs, instead of the host's own.
    type: path
  use_proxy:
    description: Use the proxy that the host's environment sets.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Add the current Debian 12 to the pool
  corral.virt.virt_image:
    name: debian-12.qcow2
    url: https://cloud.debian.org/images/cloud/bookworm/latest/debian-12-genericcloud-amd64.qcow2
    checksum: https://cloud.debian.org/images/cloud/bookworm/latest/SHA512SUMS

- name: Add it from the catalogue to all hypervisors with one download, and remove earlier versions
  corral.virt.virt_image:
    name: debian-12.qcow2
    catalogue: debian-12
    fan_out: true
    prune: true

- name: Verify a list by its signature
  corral.virt.virt_image:
    name: ubuntu-24.04.qcow2
    url: https://cloud-images.ubuntu.com/noble/current/noble-server-cloudimg-amd64.img
    checksum: https://cloud-images.ubuntu.com/noble/current/SHA256SUMS
    signature: https://cloud-images.ubuntu.com/noble/current/SHA256SUMS.gpg
    keyring: "{{ lookup('ansible.builtin.file', 'ubuntu-cloudimage.asc') }}"

- name: Add an image from the controller
  corral.virt.virt_image:
    name: centos.qcow2
    src: images/centos.qcow2

- name: Add an image from a file on the host
  corral.virt.virt_image:
    name: centos.qcow2
    src: /srv/incoming/centos.vmdk
    remote_src: true
    checksum: sha256:0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0

- name: Copy an image from another hypervisor
  corral.virt.virt_image:
    name: centos.qcow2
    origin: hyper1

- name: Remove an image that no disk is based on
  corral.virt.virt_image:
    name: debian-11.qcow2
    state: absent

- name: Create a disk on a backing image, larger than the image; a larger size grows it later, even while its guest runs
  corral.virt.virt_image:
    name: web1-data.qcow2
    image: debian-12.qcow2
    size: 20GiB

- name: Create a raw disk as a full copy of the image
  corral.virt.virt_image:
    name: db1-data.img
    image: debian-12.qcow2
    clone: copy

- name: Shrink a disk after its filesystem was shrunk
  corral.virt.virt_image:
    name: web1-data.qcow2
    size: 10GiB
    allow_shrink: true

- name: Rebase a disk on the current Debian, without changing its content
  corral.virt.virt_image:
    name: web1-data.qcow2
    image: debian-12.qcow2
    state: rebased

- name: Flatten a disk so that its image can be removed
  corral.virt.virt_image:
    name: web1-data.qcow2
    state: flattened

- name: Remove a disk that no guest has, with its data
  corral.virt.virt_image:
    name: web1-data.qcow2
    state: absent
    remove_storage: true
"""

RETURN = r"""
read_again:
  description: Whether the module read the existing content again, because it was not the exact file that its manifest
    records as verified.
  returned: with O(current=false), when it was
  type: bool
name:
  description: Name of the image.
  returned: success
  type: str
path:
  description: Path of the image.
  returned: success
  type: str
content:
  description: Name of the immutable file that the image's name points to.
  returned: for an image
  type: str
size_bytes:
  description: Size of the disk; its file can be smaller.
  returned: for a disk, when present
  type: int
backing_file:
  description: Path of the backing image; null if there is none.
  returned: for a disk
  type: str
checksum:
  description: Digest of the requested source, as far as it is known.
  returned: when known
  type: str
unverified_image:
  description: V(true) if a file with the image's name exists, or O(origin) offers one, that cannot be shown to be the
    requested image.
  returned: on such a failure
  type: bool
verified:
  description:
    - Whether the image matches a checksum that nobody in transit can have written - given as a digest, in a list that
      came over HTTPS, or in a signed list.
  returned: for an image, when present
  type: bool
fetched_from:
  description: URL (without user, password and query), file or hypervisor from which the image was, or would be,
    fetched.
  returned: when fetched
  type: str
part:
  description: The part of the file that the host already has, as C(path) and C(bytes), and its maximum size,
    C(max_bytes).
  returned: in check mode, when it would be fetched
  type: dict
progress:
  description: File in which the module records its progress while it copies, rebases or flattens a disk.
  returned: in check mode, when it would do so
  type: str
steps:
  description: Steps that were done, or in check mode would be done, in order.
  returned: success
  type: list
  elements: str
notes:
  description: Notes for the user, such as earlier contents that are still in use.
  returned: success
  type: list
  elements: str
"""

import typing as t

from ansible.module_utils.urls import ConnectionError as UrlsError
from ansible.module_utils.urls import open_url

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._image import plan_image_checks, plan_image_spec, run_image
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_clone_spec, run_clone
from ansible_collections.corral.virt.plugins.module_utils._system.detached import detach
from ansible_collections.corral.virt.plugins.module_utils._tls.run_connect import reached

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
        options = {name: params[name] for name in ("timeout", "validate_certs", "ca_path", "use_proxy")}
        if plan_image_spec.is_same_server(location, params["url"] or ""):
            options.update({name: params[name] for name in ("url_username", "url_password", "force_basic_auth")})
            headers = {**(params["headers"] or {}), **headers}
        try:
            return open_url(
                location,
                headers=headers,
                http_agent="corral.virt",
                decompress=False,
                unredirected_headers=["Authorization", "Cookie", *(params["headers"] or ())],
                **options,
            )
        except UrlsError as error:
            raise plan_image_checks.unread(location, error) from error

    return read


def main() -> None:
    """Parameters in, one image or disk in its place, result out."""
    spec = {**URI_OPTION, **run_image.OPTIONS, **run_clone.OPTIONS, **HTTP_OPTIONS, **CONTROLLER_OPTIONS}
    module = Module(argument_spec=spec, supports_check_mode=True)
    gate, disk = Gate(check_mode=module.check_mode), plan_clone_spec.concerns(module.params)
    with failures(module):
        plan_image_spec.refuse_bypass(module.params)
        detach("virt_image")
        with opened(module.params["uri"], watched=disk) as connection:
            if disk:
                result = run_clone.converge(connection, module.params, gate)
            else:
                world = run_image.World(_opener(module.params), lambda uri: reached(uri, watched=True))
                result = run_image.converge(connection, module.params, gate, world)
    for warning in result.pop("warnings", []):
        module.warn(warning)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
