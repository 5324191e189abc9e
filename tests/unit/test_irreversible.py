"""A call that destroys something stands only where it is known what it destroys: under a look, or what the run itself has
made and nobody else knows.
"""

from __future__ import annotations

import ast
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.tools import house, payload

ROOT = payload.ROOT
FOLDERS = ("plugins", "roles/console/files", "roles/image_builder/files")
DESTROYS = {
    "abortJob", "blockJobAbort", "blockPull", "blockResize", "delete", "destroy", "destroyFlags", "ftruncate",
    "managedSaveRemove", "rename", "resize", "revoke", "rmdir", "rmtree", "truncate", "undefine", "undefineFlags", "unlink",
}  # fmt: skip
OF_OS = {"remove", "replace"}  # names that other things have, too: as functions, of os, durable or definition
# Programs that destroy, and what makes others do it: `qemu-img commit`, `cryptsetup luksFormat`. Plans only tell them, in
# remedies.
PROGRAMS = {
    "blkdiscard", "dd", "lvreduce", "lvremove", "lvresize", "mkfs", "mkswap", "parted", "pvremove", "rm", "sfdisk", "sgdisk",
    "shred", "vgreduce", "vgremove", "wipefs", "zpool",
}  # fmt: skip
OF_LUKS = {"luksErase", "luksFormat", "reencrypt"}
VERBS = {"commit", "rebase", "resize", *OF_LUKS}

UNFINISHED = "a part of its own, under a name that only this run uses"
LOOKED = "under a look; the step says which"
NOTES = "its own notes, locks and caches"
QEMU_IMG = "its caller's step has a look, or qemu-img itself locks the file; the table in the guide"
# What may destroy, by file and function; `*` for all of a file.
KNOWN = {
    "plugins/action/virt_image.py:_digest": NOTES,
    "plugins/action/virt_tls.py:run": "only passes it on",
    "plugins/module_utils/_core/bytecode_cache.py:_write": UNFINISHED,
    "plugins/module_utils/_host/files_bridge.py:start": NOTES,
    "plugins/module_utils/_host/files_bridge_switch.py:*": "files of a bridge, each with its former content kept for the way back",
    "plugins/module_utils/_system/configuration.py:_replace": "a file that is compared before, under a lock",
    "plugins/module_utils/_host/files_tuning.py:remove_file": LOOKED,
    "plugins/module_utils/_system/detached.py:_clear_away": NOTES,
    "plugins/module_utils/_storage/files_disk.py:*": UNFINISHED,
    "plugins/module_utils/_storage/files_logical.py:remove": LOOKED,
    "plugins/module_utils/_storage/files_luks.py:encrypt": LOOKED,
    "plugins/module_utils/_storage/files_mount.py:remove_unit": LOOKED,
    "plugins/module_utils/_storage/files_pool.py:content": "wipefs only lists here",
    "plugins/module_utils/_storage/model_mount.py:<module>": LOOKED,
    "plugins/module_utils/_storage/files_qemu_img.py:commit": QEMU_IMG,
    "plugins/module_utils/_storage/files_qemu_img.py:rebase": QEMU_IMG,
    "plugins/module_utils/_storage/files_qemu_img.py:repoint": QEMU_IMG,
    "plugins/module_utils/_storage/files_qemu_img.py:resize": QEMU_IMG,
    "plugins/module_utils/_storage/files_writable.py:_write": UNFINISHED,
    "plugins/module_utils/_system/durable.py:*": "the verb itself",
    "plugins/module_utils/_image/files_unpack.py:*": UNFINISHED,
    "plugins/module_utils/_host/files_start_block.py:*": NOTES,
    "plugins/module_utils/_image/files_image.py:publish": UNFINISHED,
    "plugins/module_utils/_image/files_image.py:vouch": NOTES,
    "plugins/module_utils/_image/files_image.py:_link": LOOKED,
    "plugins/module_utils/_image/files_fetch.py:*": UNFINISHED,
    "plugins/module_utils/_system/progress.py:*": NOTES,
    "plugins/module_utils/_storage/files_removed_disks.py:*": LOOKED,
    "plugins/module_utils/_seed/files_seed.py:_publish": LOOKED,
    "plugins/module_utils/_tls/files_tls.py:*": "under the lock of the set; the table in the guide",
    "plugins/module_utils/_system/work_directory.py:*": UNFINISHED,
    "plugins/module_utils/_storage/run_clone.py:*": "under a look, or under the locks that qemu-img takes; the table in the guide",
    "plugins/module_utils/_migration/files_migration.py:remove_note": NOTES,
    "plugins/module_utils/_migration/files_migration.py:write_note": NOTES,
    "plugins/module_utils/_migration/run_copy_offline.py:release": LOOKED,
    "plugins/module_utils/_storage/run_disposal.py:act": LOOKED,
    "plugins/module_utils/_image/run_fetch.py:*": UNFINISHED,
    "plugins/module_utils/_image/run_image.py:_remove": LOOKED,
    "plugins/module_utils/_migration/run_migrate.py:<module>": LOOKED,
    "plugins/module_utils/_migration/run_migration_files.py:clear": "known by mark, time or content on the other host",
    "plugins/module_utils/_backup/files_restored.py:state": "what an interrupted restore has left, and a part of its own",
    "plugins/module_utils/_backup/files_restored.py:discard": UNFINISHED,
    "plugins/module_utils/_backup/files_restored.py:swap": LOOKED,
    "plugins/module_utils/_backup/libvirt_backup.py:forget_checkpoints": LOOKED,
    "plugins/module_utils/_disk_move/libvirt_disk_move.py:copy": "an abort leaves the guest on its disk",
    "plugins/module_utils/_disk_move/libvirt_disk_move.py:pivot": LOOKED,
    "plugins/module_utils/_backup/files_extracted.py:_copy": UNFINISHED,
    "plugins/module_utils/_backup/files_extracted.py:finish": UNFINISHED,
    "plugins/module_utils/_backup/files_extracted.py:new": UNFINISHED,
    "plugins/module_utils/_backup/files_proof.py:remove": LOOKED,
    "plugins/module_utils/_backup/libvirt_proof.py:remove_network": LOOKED,
    "plugins/module_utils/_backup/files_repository.py:_remove": LOOKED,
    "plugins/module_utils/_backup/files_repository.py:unpin": LOOKED,
    "plugins/module_utils/_backup/files_repository.py:finish": UNFINISHED,
    "plugins/module_utils/_backup/files_repository.py:create": UNFINISHED,
    "plugins/module_utils/_backup/files_repository.py:_name": UNFINISHED,
    "plugins/module_utils/_backup/files_repository.py:write_text": UNFINISHED,
    "plugins/module_utils/_backup/libvirt_backup.py:abort": "a job of its own, whose copies the next run removes",
    "plugins/module_utils/_backup/libvirt_backup.py:drop": LOOKED,
    "plugins/module_utils/_backup/run_backup.py:delete": LOOKED,
    "plugins/module_utils/_snapshot/files_snapshot.py:copy_state": UNFINISHED,
    "plugins/module_utils/_snapshot/files_snapshot.py:_replace": "state of then, beside the disks of then",
    "plugins/module_utils/_snapshot/files_snapshot.py:unkeep": "a second name of a file that has its first",
    "plugins/module_utils/_snapshot/libvirt_snapshot.py:drop": LOOKED,
    "plugins/module_utils/_snapshot/libvirt_snapshot.py:merge": "an abort leaves the guest on its chain",
    "plugins/module_utils/_snapshot/libvirt_snapshot.py:stop": LOOKED,
    "plugins/module_utils/_storage/libvirt_blockjob.py:*": "a disk grows, or gets what it stands on; an abort leaves it as it was",
    "plugins/module_utils/_libvirt/definition.py:*": LOOKED,
    "plugins/module_utils/_guest/libvirt_domain.py:*": LOOKED,
    "plugins/module_utils/_guest/plan_guest.py:_renamed": "a plan, which does nothing",
    "plugins/module_utils/_migration/libvirt_migrate.py:*": LOOKED,
    "plugins/module_utils/_noun/libvirt_api.py:*": LOOKED,
    "plugins/module_utils/_noun/plan_noun.py:absent": "a plan, which does nothing",
    "plugins/module_utils/_volume/libvirt_volume.py:download": UNFINISHED,
    "plugins/module_utils/_volume/libvirt_volume.py:unmark": NOTES,
    "plugins/module_utils/_volume/run_volume.py:_resize": LOOKED,
    "plugins/module_utils/_volume/run_volume.py:_save": "a file that the options name",
    "plugins/module_utils/_power/libvirt_power.py:_switch_off": "by UUID; the user said so",
    "plugins/module_utils/_storage/libvirt_storage.py:*": LOOKED,
    "plugins/module_utils/_storage/libvirt_transfer.py:opened": "a pool that it made itself; its files stay",
    "plugins/module_utils/_storage/files_qemu_img.py:_complete_or_absent": UNFINISHED,
    "plugins/plugin_utils/_authority/authorities.py:*": "under the lock of the CA directory; the table in the guide",
    "plugins/plugin_utils/_authority/credential_files.py:close": UNFINISHED,
    "plugins/plugin_utils/_commands/other_hosts.py:__exit__": NOTES,
    "plugins/plugin_utils/_controller/packed_modules.py:*": NOTES,
    "plugins/plugin_utils/_guests/variable_files.py:_restore": UNFINISHED,
    "roles/console/files/console_relay.py:use": NOTES,
    "roles/console/files/corral_console/durable.py:replace": "the verb itself",
    "roles/console/files/corral_console/jobs.py:*": "jobs that have ended, above the number that is kept, or old",
    "roles/console/files/corral_console/run.py:_conclude": NOTES,
    "roles/console/files/corral_console/run.py:main": NOTES,
    "roles/console/files/pack_console.py:_fetch": UNFINISHED,
    "roles/console/files/pack_console.py:_forget_old": NOTES,
    "roles/console/files/pack_console.py:_kept": UNFINISHED,
    "roles/console/files/wheels.py:_fetch_wheels": UNFINISHED,
}


def _called(node: ast.Call) -> str:
    """The name of what a call destroys with; empty where it destroys nothing."""
    function = node.func
    if isinstance(function, ast.Attribute):
        owner = function.value.id if isinstance(function.value, ast.Name) else ""
        if function.attr in DESTROYS or (function.attr in OF_OS and owner in ("os", "durable", "definition", "domain")):
            return function.attr
        # a path: of texts, the same takes two arguments, of times and dataclasses others
        if function.attr == "replace" and len(node.args) == 1 and not node.keywords:
            return function.attr
    if isinstance(function, ast.Name) and function.id in (DESTROYS | OF_OS) - {"replace"}:
        return function.id
    return ""


def _runs(node: ast.AST) -> bool:
    """Whether a list, or what is given to a call, is a command that destroys."""
    if isinstance(node, (ast.List, ast.Tuple)):
        parts, verbs = node.elts, VERBS
    else:
        parts, verbs = (node.args if isinstance(node, ast.Call) else []), OF_LUKS
    words = [part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "" for part in parts]
    runs = any(word.partition(".")[0] in PROGRAMS for word in words)
    return runs or bool({*words[:2]} & verbs) or (words[:1] == ["qemu-img"] and bool({*words[1:2]} & VERBS))


def destroying(tree: ast.Module, *, tells: bool = False) -> set[str]:
    """Functions that destroy something. `tells`: a command in it is only told to the user."""

    def walk(node: ast.AST, function: str) -> t.Iterator[str]:
        for child in ast.iter_child_nodes(node):
            name = child.name if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) else function
            if (not tells and _runs(child)) or (isinstance(child, ast.Call) and _called(child)):
                yield name
            yield from walk(child, name)

    return set(walk(tree, "<module>"))


def _places(path: Path) -> t.Iterator[str]:
    found = destroying(payload.tree(path), tells=house.role(path) == "plan")
    yield from (f"{path.relative_to(ROOT)}:{function}" for function in found)


FOUND = sorted({each for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") for each in _places(path)})


@pytest.mark.parametrize(
    "code",
    [
        "path.rename(other)",
        "Path(x).replace(y)",
        "os.replace(x, y)",
        "self.path.unlink()",
        "command.run(['lvremove', '--yes', path])",
        "command.run('wipefs', '-a', path)",
        "MADE_BY = {'ext4': ('mkfs.ext4', '-q')}",
        "run(['qemu-img', 'commit', path])",
        "_run('merge disk', path, ['commit', '-d', path])",
        "cryptsetup(passphrase, 'luksFormat', device)",
    ],
)
def test_what_destroys_is_seen(code: str) -> None:
    assert destroying(ast.parse(f"def f(path):\n    {code}")) == {"f"}


@pytest.mark.parametrize(
    "code",
    [
        "text.replace('a', 'b')",
        "dataclasses.replace(step, path=path)",
        "moment.replace(tzinfo=zone)",
        "run(['qemu-img', 'info', path])",
        "check_same(step.ref, 'resize', found)",
    ],
)
def test_what_destroys_nothing_is_free(code: str) -> None:
    assert not destroying(ast.parse(f"def f(path):\n    {code}"))


@pytest.mark.parametrize("place", FOUND)
def test_what_destroys_is_accounted_for(place: str) -> None:
    file = place.partition(":")[0]
    assert place in KNOWN or f"{file}:*" in KNOWN, "give its step a look (guide_internals, What cannot be undone)"


def test_the_list_names_what_there_is() -> None:
    files = {place.partition(":")[0] for place in FOUND}
    assert [each for each in KNOWN if each not in FOUND and not (each.endswith(":*") and each[:-2] in files)] == []
