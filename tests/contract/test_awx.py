"""The role awx against a stand-in for AWX's API, through the modules of awx.awx; and what it says of the inventory."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions
from ansible_collections.corral.virt.tests.contract import awx_server
from ansible_collections.corral.virt.tests.contract.awx_server import Awx
from ansible_collections.corral.virt.tests.contract.play import defaults
from ansible_collections.corral.virt.tests.contract.test_inventory import Inventory, guest
from ansible_collections.corral.virt.tests.tools import awx_collection, job_templates, payload, preloaded

pytestmark = pytest.mark.slow

SECRETS = {
    "key": "the client's key",
    "ca_key": "libvirt's key",
    "qemu_ca_key": "QEMU's key",
    "passphrase": "pass phrase",
}
CLIENT = {"ca_certificate": "CA", "certificate": "CERT", "key": SECRETS["key"]}
AUTHORITY = {
    "ca_certificate": "CA",
    "ca_key": SECRETS["ca_key"],
    "qemu_ca_certificate": "QEMU CA",
    "qemu_ca_key": SECRETS["qemu_ca_key"],
    "passphrase": SECRETS["passphrase"],
}
WISH: dict[str, t.Any] = {
    "awx_organization": "Cloud",
    "awx_scm_url": "https://git.example.org/cloud.git",
    "awx_scm_branch": "stable",
    "awx_machine_credential": "hypervisors",
    "awx_client": CLIENT,
    "awx_authority": AUTHORITY,
    "awx_image": "registry.example.org/corral:1",
    "awx_instance_groups": ["default"],
    "awx_token": awx_server.TOKEN,
}
TEMPLATES = {template.name: template for template in job_templates.TEMPLATES}
NAMES = set(TEMPLATES)
# A job template takes a second; with these few, a run does all that it does for the others.
ROLE = yaml.safe_load((payload.ROOT / "roles/awx/vars/main/templates.yml").read_text())
FEW = {"site", "rotate_certificates", "rolling_update", "build_image", "query", "start"}
FEW_ONLY = {"__awx_templates": [each for each in ROLE["__awx_templates"] if each["name"] in FEW]}
TWO_ONLY: dict[str, t.Any] = {
    "__awx_templates": [each for each in ROLE["__awx_templates"] if each["name"] in {"query", "start"}],
    "__awx_workflows": [],
    "awx_schedules": [],
}
PLAYBOOKS = sorted({f"playbooks/{template.action.name}.yml" for template in job_templates.TEMPLATES})


class Setup:
    """The playbook, run against one AWX."""

    def __init__(self, place: Path, url: str, held: Awx, collections: str) -> None:
        self.place, self.url, self.held, self.collections = place, url, held, collections
        self.code, self.changed = 0, -1
        self.environment: dict[str, str] = {}
        self.inventory = "localhost,"

    def run(self, *flags: str, **wish: t.Any) -> str:
        """What the playbook printed, in one line."""
        output = {"awx_host": self.url, "ansible_python_interpreter": sys.executable, **WISH, **wish}
        output = {name: value for name, value in output.items() if value is not ...}
        words = ["ansible-playbook", "-i", self.inventory, "corral.virt.awx_setup", "-e", json.dumps(output), *flags]
        environment = defaults(ANSIBLE_COLLECTIONS_PATH=self.collections)
        for name in ("CONTROLLER_HOST", "CONTROLLER_OAUTH_TOKEN", "http_proxy", "HTTP_PROXY"):
            environment.pop(name, None)
        environment.update(self.environment)
        done = preloaded.run(words, cwd=self.place, env=environment, timeout_s=900, given=None)
        self.code, text = done.returncode, done.stdout + done.stderr
        found = re.search(r"changed=(\d+)", text)
        self.changed = int(found[1]) if found else -1
        return re.sub(r"\s+", " ", text)


@pytest.fixture(scope="module")
def collections() -> str:
    """A path of collections on which awx.awx is."""
    try:
        there = awx_collection.collections()
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"the package {awx_collection.PACKAGE} cannot be downloaded: {error}")
    return f"{payload.ROOT / '.cache'}:{there}"


@pytest.fixture
def awx(tmp_path: Path, collections: str) -> t.Iterator[Setup]:
    with awx_server.awx() as (url, kept):
        kept.pushed = ["inventory/hosts.yml", *PLAYBOOKS]
        yield Setup(tmp_path, url, kept, collections)


@pytest.mark.deep  # it makes every job template, twice; the tests after it ask the same of a few
def test_everything_is_set_up_once_and_changes_are_seen(awx: Setup) -> None:
    output = awx.run("--check", **FEW_ONLY)
    assert awx.code == 0 and awx.changed > 0 and awx.held.writes == [], output
    output = awx.run()
    assert awx.code == 0 and awx.changed > 0, output
    assert [each for each in awx.held.writes if each.endswith("/update/")], "AWX had an old copy of the project"
    everything_is_there(awx.held)
    start, written = awx.held.named("job_templates", "corral.virt.start")["id"], list(awx.held.writes)
    awx.held.surveys[start] = {"name": "", "description": "", "spec": []}
    output = awx.run("--check", awx_scm_branch="main", **FEW_ONLY)
    assert (awx.code, awx.changed, awx.held.writes) == (0, 2, written), output  # the project, and the job templates
    output = awx.run("-vvv", awx_scm_branch="main", **FEW_ONLY)
    project = f"PATCH /api/v2/projects/{awx.held.named('projects', 'corral.virt')['id']}/"
    assert (awx.code, awx.changed) == (0, 2), output
    assert awx.held.writes == [*written, project, f"POST /api/v2/job_templates/{start}/survey_spec/"]
    assert not [name for name, secret in SECRETS.items() if secret in output]
    output = awx.run("--check", awx_scm_branch="main", **FEW_ONLY)
    assert (awx.code, awx.changed) == (0, 0), output


def everything_is_there(held: Awx) -> None:
    """As the catalogue says it."""
    templates = {thing["name"].removeprefix("corral.virt."): thing for thing in held.objects["job_templates"]}
    assert set(templates) == NAMES
    for name, template in templates.items():
        related = {kind: held.names(kind, held.related.get(f"job_templates/{template['id']}/{kind}", [])) for kind in
                   ("credentials", "labels", "instance_groups")}  # fmt: skip
        signs = ["corral.virt.authority"] if name in ("site", "rotate_certificates") else []
        made = TEMPLATES[name]
        costs = ["destructive"] * made.action.destructive + ["admin"] * made.admin
        assert related == {
            "credentials": ["hypervisors", *signs],
            "labels": ["corral.virt", *costs],
            "instance_groups": ["default"],
        }, name
        assert template["playbook"] == f"playbooks/{made.action.name}.yml" and template["ask_job_type_on_launch"]
        assert template["ask_variables_on_launch"] is False
        assert held.surveys[template["id"]]["spec"] == job_templates.questions(made)
    source = held.named("inventory_sources", "corral.virt")
    assert (source["source"], source["source_path"], source["enabled_var"]) == ("scm", "inventory", "virt_state")
    assert json.loads(source["source_vars"]) == {"ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true"}
    assert source["credential"] == held.named("credentials", "corral.virt.client")["id"] and source["overwrite"]
    assert held.named("projects", "corral.virt")["scm_branch"] == "stable"
    assert held.named("credentials", "corral.virt.authority")["inputs"] == AUTHORITY
    types = {thing["name"]: thing["injectors"] for thing in held.objects["credential_types"] if "injectors" in thing}
    assert types["corral client"]["env"]["CORRAL_VIRT_KEY_FILE"] == "{{ tower.filename.key }}"
    assert set(types["corral authority"]["extra_vars"]) <= actions.role_variables()
    workflows_are_there(held, templates)
    schedules = {thing["name"]: thing["unified_job_template"] for thing in held.objects["schedules"]}
    assert schedules == {
        "corral.virt.daily report": templates["query"]["id"],
        "corral.virt.new certificates": templates["rotate_certificates"]["id"],
    }


def workflows_are_there(held: Awx, templates: t.Mapping[str, dict[str, t.Any]]) -> None:
    """A plan, an approval, and what was planned."""
    nodes = {thing["identifier"]: thing for thing in held.objects["workflow_job_template_nodes"]}
    assert (nodes["plan"]["unified_job_template"], nodes["plan"]["job_type"]) == (
        templates["rolling_update"]["id"],
        "check",
    )
    assert nodes["update"]["unified_job_template"] == templates["rolling_update"]["id"]
    assert nodes["update"].get("job_type", "") == ""
    (approval,) = held.objects["approvals"]
    assert nodes["approve"]["unified_job_template"] == approval["id"]
    follow = {
        name: held.names(
            "workflow_job_template_nodes",
            held.related.get(f"workflow_job_template_nodes/{node['id']}/success_nodes", []),
        )
        for name, node in nodes.items()
    }
    assert follow == {
        "plan": ["approve"],
        "approve": ["update"],
        "update": [],
        "build": ["distribute"],
        "distribute": [],
    }
    for name, action in (("planned_rolling_update", "rolling_update"), ("new_image", "build_image")):
        workflow = held.named("workflow_job_templates", f"corral.virt.{name}")
        assert held.surveys[workflow["id"]]["spec"] == job_templates.questions(TEMPLATES[action])
        assert workflow["ask_variables_on_launch"] is False


@pytest.mark.parametrize("broken", [True, False], ids=["update fails", "files missing"])
def test_a_project_without_the_playbooks_gets_no_job_templates(broken: bool, awx: Setup) -> None:
    awx.held.broken, awx.held.pushed = broken, PLAYBOOKS[2:]
    output = awx.run()
    assert awx.code == 2 and "job_templates" not in awx.held.objects, output
    if broken:
        assert "AWX cannot update the project corral.virt from https://git.example.org/cloud.git: The Project" in output
        assert "Read the last update of the project in AWX, under Jobs" in output
    else:
        assert f"The project corral.virt has no {PLAYBOOKS[0]}, {PLAYBOOKS[1]}. Copy the missing files" in output


TEAMS: list[dict[str, t.Any]] = [
    {"name": "web", "users": ["alice"], "run": ["start", "query"]},
    {"name": "night", "run": ["query"]},
]
MAIL = {
    "name": "mail",
    "type": "email",
    "when": ["error"],
    "configuration": {"host": "mail.example.org", "recipients": ["ops@example.org"], "password": "the mail's secret"},
}


def test_teams_run_what_they_may_and_are_told(awx: Setup) -> None:
    """On an automation platform, whose address has a prefix; awx.awx takes it from a variable of the environment."""
    awx.held.prefix = "/api/controller/v2/"
    awx.environment["CONTROLLER_OPTIONAL_API_URLPATTERN_PREFIX"] = "/api/controller/"
    awx.held.add("users", {"username": "alice"})
    wish: dict[str, t.Any] = {"awx_teams": TEAMS, "awx_notifications": [MAIL], **TWO_ONLY}
    output = awx.run("--check", **wish)
    assert awx.code == 0 and awx.held.writes == [], output
    output = awx.run("-vvv", **wish)
    assert awx.code == 0 and "the mail's secret" not in output, output

    def may(name: str) -> list[str]:
        return awx.held.granted("teams", "job_templates", f"corral.virt.{name}", "execute")

    assert (may("start"), may("query")) == (["web"], ["night", "web"])
    assert awx.held.granted("users", "teams", "web", "member") == ["alice"]
    start = awx.held.named("job_templates", "corral.virt.start")
    assert awx.held.related[f"job_templates/{start['id']}/notification_templates_error"] == [
        awx.held.named("notification_templates", "mail")["id"]
    ]
    asked = ("diff_mode", "forks", "job_type", "limit", "timeout", "verbosity")
    assert start["diff_mode"] and all(start[f"ask_{name}_on_launch"] for name in asked)
    output = awx.run(**{**wish, "awx_teams": [{"name": "web", "run": ["query"]}, TEAMS[1]]})
    assert (awx.code, may("start"), may("query")) == (0, [], ["night", "web"]), output
    output = awx.run("--check", **{**wish, "awx_teams": [{"name": "web", "run": ["query"]}]})
    assert (awx.code, awx.changed) == (0, 0), output
    paths = {re.sub(r"/+", "/", each.partition(" ")[2]) for each in awx.held.writes}
    assert all(path.startswith("/api/controller/v2/") for path in paths), paths


@pytest.mark.deep  # the test before, with workflows and schedules
def test_the_address_of_an_automation_platform_has_a_prefix(awx: Setup) -> None:
    awx.held.prefix = "/api/controller/v2/"
    awx.environment["CONTROLLER_OPTIONAL_API_URLPATTERN_PREFIX"] = "/api/controller/"
    output = awx.run(**FEW_ONLY)
    assert awx.code == 0 and awx.held.writes, output
    paths = {re.sub(r"/+", "/", each.partition(" ")[2]) for each in awx.held.writes}
    assert all(path.startswith("/api/controller/v2/") for path in paths), paths


CLOUD: dict[str, t.Any] = {
    "vars": {
        "virt_images": ["debian-13", "debian-12-netboot"],
        "own": [{"name": "{{ inventory_hostname }}.qcow2", "src": "own.qcow2"}],
        "virt_images_catalogue": {
            "ours": {"url": "https://mirror.example.org/ours.qcow2", "checksum": "sha256:" + "0" * 64}
        },
    },
    "hosts": {"h1": {}, "h2": {"virt_images": "{{ own + ['ours'] }}"}},
}


@pytest.mark.deep
def test_surveys_offer_the_hypervisors_and_images_of_the_inventory(awx: Setup) -> None:
    """Each host's, of the site's catalogue, too; ISOs are no choice, as no disk is made from one."""
    awx.inventory = str(awx.place / "hosts.yml")
    Path(awx.inventory).write_text(json.dumps({"kvm": CLOUD, "hyper": {"hosts": {"other": {}}}}))
    asked = [each for each in ROLE["__awx_templates"] if each["name"] in {*FEW, "create"}]
    output = awx.run(virt_group="kvm", __awx_templates=asked)
    assert awx.code == 0, output

    def choices(name: str) -> dict[str, list[str]]:
        spec = awx.held.surveys[awx.held.named("job_templates", f"corral.virt.{name}")["id"]]["spec"]
        return {each["variable"]: each["choices"] for each in spec if each["variable"] in ("host", "image")}

    assert choices("create") == {"host": ["h1", "h2"], "image": ["debian-13.qcow2", "h2.qcow2", "ours.qcow2"]}
    assert choices("rolling_update") == {"host": ["h1", "h2"]}


@pytest.mark.deep
def test_without_authorities_nothing_signs_certificates(awx: Setup) -> None:
    wish = {"awx_authority": ..., "awx_client": ..., "awx_organization": "Default", **FEW_ONLY}
    output = awx.run("--check", **wish)
    assert awx.code == 0 and awx.held.writes == [], output  # AWX has the organization, and nothing else yet
    output = awx.run(**wish)
    assert "There are no job templates for rotate_certificates and site" in output.replace(
        "site and rotate_certificates", "rotate_certificates and site"
    )
    names = {thing["name"].removeprefix("corral.virt.") for thing in awx.held.objects["job_templates"]}
    assert awx.code == 0 and names == FEW - {"site", "rotate_certificates"}
    assert [thing["name"] for thing in awx.held.objects["workflow_job_templates"]] == [
        "corral.virt.planned_rolling_update"
    ]
    assert [thing["name"] for thing in awx.held.objects["credentials"]] == ["hypervisors"]


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        ({"awx_host": ""}, "awx_host is missing: set it, or CONTROLLER_HOST in the environment"),
        ({"awx_scm_url": ...}, "missing required arguments: awx_scm_url"),
        ({"awx_machine_credential": "kvm"}, "AWX has no kvm among its credentials; create it there"),
        ({"awx_instance_groups": ["far"]}, "AWX has no far among its instance_groups; create it there"),
        ({"awx_client": {"ca_certificate": "CA"}}, "missing required arguments: certificate, key"),
        (
            {"awx_schedules": [{"name": "a", "action": "stop", "rrule": "x"}]},
            "there is no job template for stop; choose one",
        ),
        (
            {"awx_teams": [{"name": "web", "run": ["stop"]}]},
            "awx_teams: there is no job template for stop; choose from",
        ),
        (
            {"awx_teams": [{"name": "web", "run": [], "users": ["bob"]}]},
            "AWX has no bob among its users; create it there",
        ),
        ({"awx_scm_ur1": "x"}, "awx_scm_ur1: awx_setup has no such argument; did you mean awx_scm_url?"),
    ],
    ids=str,
)
def test_what_is_wrong_is_refused_before_anything_is_done(awx: Setup, wish: dict[str, t.Any], told: str) -> None:
    output = awx.run(**wish)
    assert told in output and awx.code == 2 and awx.held.writes == [], output


def test_who_lacks_awx_awx_is_told_how_to_get_it(tmp_path: Path) -> None:
    awx = Setup(tmp_path, "http://127.0.0.1:9", Awx(), str(payload.ROOT / ".cache"))
    assert "awx_setup requires awx.awx; install it: ansible-galaxy collection install awx.awx" in awx.run()
    assert awx.code == 2


def test_guests_that_are_off_are_disabled_and_hypervisors_are_not(tmp_path: Path) -> None:
    """As AWX decides it: by the variable, where a host has it."""
    inventory = Inventory(tmp_path / "inventory")
    uri = inventory.host("h1", guest(1, "web1"), guest(2, "web2", "shutdown"))
    inventory.write("hosts.yml", hyper={"hosts": {"h1": {"virt_uri": uri}}})
    inventory.write("virt.yml", plugin="corral.virt.virt", uri="{{ virt_uri }}")
    (task,) = (
        each["awx.awx.inventory_source"]
        for each in yaml.safe_load((payload.ROOT / "roles/awx/tasks/objects.yml").read_text())[0]["block"]
        if "awx.awx.inventory_source" in each
    )
    hosts = inventory.list()["_meta"]["hostvars"]
    found = {name: values.get(task["enabled_var"]) for name, values in hosts.items()}
    assert {name: value in (None, task["enabled_value"]) for name, value in found.items()} == {
        "h1": True,
        "web1": True,
        "web2": False,
    }
