"""The projects below `examples/`: Ansible reads them, and their variables are those of the roles."""

from __future__ import annotations

import json
import re
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions
from ansible_collections.corral.virt.tests.contract.play import defaults
from ansible_collections.corral.virt.tests.tools import payload, preloaded

EXAMPLES = payload.ROOT / "examples"
PROJECTS = sorted(path.parent.name for path in EXAMPLES.glob("*/inventory"))
PASSWORD = "example"  # as company/README.md says
ROLES = sorted(path.name for path in (payload.ROOT / "roles").iterdir())
Options = dict[str, t.Any]


class _Loader(yaml.SafeLoader):
    """With secrets as texts."""


_Loader.add_constructor("!vault", lambda loader, node: loader.construct_scalar(t.cast(t.Any, node)))


def set_by(project: str) -> dict[str, Path]:
    """Variables that its files set, and where."""
    files = (EXAMPLES / project / "inventory/group_vars").rglob("*.yml")
    return {name: path for path in files for name in yaml.load(path.read_text(), _Loader)}


def options() -> Options:
    """Of all roles."""
    found: Options = {}
    for role in ROLES:
        text = (payload.ROOT / f"roles/{role}/meta/argument_specs.yml").read_text()
        for entry in yaml.safe_load(text)["argument_specs"].values():
            found |= entry.get("options", {})
    return found


def check(spec: Options, values: Options, what: str) -> None:
    """Types and choices; what stands in for a text with a template is rendered before."""
    result = ArgumentSpecValidator(_declared(spec)).validate(values)
    assert not result.error_messages, f"{what}: {result.error_messages}"


def _declared(spec: Options) -> Options:
    keys = ("type", "elements", "choices", "required", "options", "no_log")
    kept = {name: {key: value for key, value in one.items() if key in keys} for name, one in spec.items()}
    return {
        name: {**one, "options": _declared(one["options"])} if "options" in one else one for name, one in kept.items()
    }


def run(project: str, tmp_path: Path, *words: str) -> str:
    """What an Ansible command prints in the project, without a home."""
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    here = {"HOME": str(tmp_path), "ANSIBLE_VAULT_PASSWORD_FILE": str(password), "ANSIBLE_LOCALHOST_WARNING": "0"}
    done = preloaded.run(words, cwd=EXAMPLES / project, env=defaults(**here), timeout_s=120, given=None)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_projects_are_found() -> None:
    assert PROJECTS == ["company", "homelab", "nfs", "project"]
    for project in PROJECTS:
        assert f"[{project}]({project})" in (EXAMPLES / "README.md").read_text()
        assert (EXAMPLES / project / "README.md").exists()


@pytest.mark.parametrize("project", PROJECTS)
def test_no_name_is_made_up(project: str) -> None:
    """A variable is one of a role, of Ansible, or used by the project itself."""
    used = "".join(path.read_text() for path in (EXAMPLES / project).rglob("*.yml"))
    strange = {
        name
        for name in set_by(project)
        if not name.startswith("ansible_") and name not in options() and not re.search(rf"{{{{[^}}]*\b{name}\b", used)
    }
    assert not strange


@pytest.mark.slow
@pytest.mark.parametrize("project", PROJECTS)
def test_values_are_what_the_roles_take(project: str, tmp_path: Path) -> None:
    names = sorted(set_by(project))
    defined = [{"name": name} for name in names]
    tell = {
        "ansible.builtin.copy": {
            "content": "{{ dict(names | zip(query('ansible.builtin.vars', *names, default='not set here'))) | to_json }}",
            "dest": f"{tmp_path}/{{{{ inventory_hostname }}}}.json",
        },
        "connection": "local",
        "vars": {
            "ansible_connection": "local",
            "ansible_become": False,
            "ansible_python_interpreter": "/usr/bin/python3",
        },
    }
    play = {
        "hosts": "hyper",
        "gather_facts": False,
        "vars": {"names": [one["name"] for one in defined]},
        "tasks": [tell],
    }
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    run(project, tmp_path, "ansible-playbook", "-i", "inventory/hosts.yml", str(tmp_path / "play.yml"))
    known, guests = options(), actions.options("virt_domain")
    result = sorted(tmp_path.glob("*.json"))
    assert result
    for path in result:
        values = {
            name: value
            for name, value in json.loads(path.read_text()).items()
            if name in known and value != "not set here"
        }
        check({name: known[name] for name in values}, values, path.stem)
        for guest in values["virt_guests"]:
            whole = {**values.get("virt_guest_defaults", {}), **guest}
            check(guests, whole, f"{path.stem}: {guest['name']}")
            pools = {pool["name"] for pool in values.get("storage_pools", [])} | {"default"}
            assert (
                whole.get("host", path.stem) != path.stem
                or {disk.get("pool", "default") for disk in whole.get("disks", [])} <= pools
            )
            images = {image["name"] for image in values["virt_images"]}
            assert {whole.get("image"), *(disk.get("image") for disk in whole.get("disks", []))} - {None} <= images


@pytest.mark.slow
@pytest.mark.parametrize("project", PROJECTS)
def test_ansible_reads_it(project: str, tmp_path: Path) -> None:
    """No hypervisor is asked: there is no certificate to do it with."""
    known = json.loads(run(project, tmp_path, "ansible-inventory", "-i", "inventory", "--list"))
    hosts = [name for group in known["hyper"].get("children", ["hyper"]) for name in known[group]["hosts"]]
    assert hosts and {known["_meta"]["hostvars"][name]["virt_reachable"] for name in hosts} == {False}
    playbooks = sorted(map(str, [*(EXAMPLES / project).glob("*.yml"), *(EXAMPLES / project).glob("playbooks/*.yml")]))
    assert "playbook: " in run(
        project, tmp_path, "ansible-playbook", "-i", "inventory/hosts.yml", "--syntax-check", *playbooks
    )
    text = yaml.safe_load((EXAMPLES / project / "collections/requirements.yml").read_text())
    galaxy = yaml.safe_load((payload.ROOT / "galaxy.yml").read_text())
    assert text == {"collections": [{"name": "corral.virt", "version": f">={galaxy['version']}"}]}


@pytest.mark.parametrize("config", [*(f"examples/{name}/ansible.cfg" for name in PROJECTS), "ansible.cfg"])
def test_a_connection_to_a_dead_host_ends_as_the_guide_says(config: str) -> None:
    guide = (payload.ROOT / "docs/docsite/rst/guide_scale.rst").read_text()
    (setting,) = re.findall(r"^    (ssh_args = .*)$", guide, re.MULTILINE)
    assert setting in (payload.ROOT / config).read_text().splitlines()


@pytest.mark.slow
def test_the_password_of_the_vault_is_the_documented_one(tmp_path: Path) -> None:
    assert f"password of the example's vault is `{PASSWORD}`" in (EXAMPLES / "company/README.md").read_text()
    words = ["-i", "inventory/hosts.yml", "hyper11", "-m", "ansible.builtin.debug", "-a", "var=pki_ca_passphrase"]
    assert "replace this passphrase" in run("company", tmp_path, "ansible", *words)


def test_examples_are_shipped() -> None:
    """Nothing of them is left out of the tarball."""
    ignored = yaml.safe_load((payload.ROOT / "galaxy.yml").read_text())["build_ignore"]
    assert "examples" not in ignored and "extensions" not in ignored
    assert not [path for path in EXAMPLES.rglob("*") if path.name.startswith(".") or path.suffix == ".retry"]
