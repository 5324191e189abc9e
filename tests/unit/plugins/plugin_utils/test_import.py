"""What hosts say of their guests, as files that Ansible reads: the same arguments, and nothing that it would run."""

from __future__ import annotations

import tempfile
import typing as t

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.plugin_utils._guests import import_files

XML = "<domain>\n  <devices>\n    <redirdev bus='usb'/>\n  </devices>\n</domain>\n"
WEB1: dict[str, t.Any] = {
    "name": "web1",
    "vcpus": 2,
    "memory": "5GiB",
    "disks": [{"name": "vda", "source": "/a b.qcow2"}],
}
EVIL = (
    "{{ lookup('pipe', 'touch /tmp/evil') }}",
    "{% for x in y %}",
    "{# x #}",
    "a\n{{ 1 }}\n",
    "#jinja2:variable_start_string:'[%', variable_end_string:'%]'\n[% lookup('pipe', 'touch /tmp/evil') %]",
    "!unsafe x",
    "a: b # c",
    "'\"",
    "- x",
    "* {{",
    " leading",
    "trailing \n\n",
    "yes",
    "1e3",
    "~",
    "\u00fc\u4e2d",
    "",
)


def read(text: str) -> t.Any:
    """The file as Ansible reads one of variables: what it says may be templates."""
    with tempfile.NamedTemporaryFile("w", suffix=".yml", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        return DataLoader().load_from_file(file.name, cache="none", trusted_as_template=True)


@pytest.mark.parametrize("form", ["list", "host_vars"])
def test_a_file_says_what_the_host_said(form: str) -> None:
    guest = import_files.guest("web1", {"arguments": {**WEB1, "xml": XML}})
    [(path, text)] = import_files.files([guest], "/x/dest", form).items()
    assert path == ("/x/dest" if form == "list" else "/x/dest/web1.yml")
    found = read(text)
    assert (found["virt_guests"] == [{**WEB1, "xml": XML}]) if form == "list" else (found["virt_guest"]["xml"] == XML)
    assert "xml: |" in text and "<redirdev bus='usb'/>\n" in text and "memory: 5GiB" in text


@pytest.mark.parametrize("text", EVIL)
def test_no_text_of_a_host_is_a_template(text: str) -> None:
    result = {"arguments": {**WEB1, "title": "x", "description": text}}
    [written] = import_files.files([import_files.guest("web1", result)], "/x", "list").values()
    variables = read(written)
    value = Templar(loader=DataLoader(), variables=variables).template(variables["virt_guests"])
    assert value[0]["description"] == text
    plain = read("a: '{{ 1 + 1 }}'")
    assert Templar(loader=DataLoader(), variables=plain).template(plain["a"]) == 2, "this test reads no templates"


def test_a_secret_is_a_variable_of_the_vault() -> None:
    result = {
        "arguments": {**WEB1, "name": "Web-1.x"},
        "withheld_arguments": {"graphics": {"type": "vnc", "listen": "127.0.0.1"}},
        "not_imported": [
            {"path": "/domain/devices/graphics[1]", "why": "it has a password", "option": "graphics"},
            {"path": "/domain/devices/graphics[2]", "why": "it has a password"},
            {"path": "/domain/devices/disk[2]", "why": "it holds a secret"},
        ],
    }
    guest = import_files.guest("Web-1.x", result)
    assert import_files.notes("Web-1.x", result, guest) == [
        "Web-1.x: set vault_web_1_x_5ede09b9_graphics_password (ansible-vault)",
        "Web-1.x: /domain/devices/graphics[2]: it has a password",
        "Web-1.x: /domain/devices/disk[2]: it holds a secret",
    ]
    [text] = import_files.files([guest], "/x", "list").values()
    variables = {**read(text), "vault_web_1_x_5ede09b9_graphics_password": "letmein"}
    found = Templar(loader=DataLoader(), variables=variables).template(variables["virt_guests"])
    assert found[0]["graphics"]["password"] == "letmein"


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({}, "returned no arguments for it"),
        (
            {"arguments": None, "not_imported": [{"path": "/domain", "why": "it is no XML"}]},
            r"cannot describe it \(it is no XML\)",
        ),
        (
            {"arguments": {**WEB1, "state": "absent"}},
            "returned invalid arguments .state does not describe an existing guest",
        ),
        ({"arguments": {**WEB1, "remove_storage": True}}, "returned invalid arguments .remove_storage"),
        ({"arguments": {**WEB1, "clone_of": "web2"}}, "returned invalid arguments .clone_of"),
        ({"arguments": {**WEB1, "cloud_init": {}}}, "returned invalid arguments .cloud_init"),
        (
            {"arguments": {**WEB1, "disks": [{"name": "a", "image": "x"}]}},
            r"returned invalid arguments .disks\[\]",
        ),
        ({"arguments": {**WEB1, "name": "web2"}}, "returned no arguments for it"),
        ({"arguments": WEB1, "withheld_arguments": ["x"]}, "returned no arguments for it"),
        ({"arguments": {**WEB1, "colour": "red"}}, "returned invalid arguments"),
        ({"arguments": {**WEB1, "state": "on"}}, "returned invalid arguments"),
        ({"arguments": WEB1, "withheld_arguments": {"cloud_init": {}}}, "returned invalid arguments"),
    ],
)
def test_an_answer_that_is_none_is_refused(told: dict[str, t.Any], why: str) -> None:
    with pytest.raises(BadInput, match=f"cannot import web1: its host {why}"):
        import_files.guest("web1", told)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, []),
        ({}, ["its host did not check whether the arguments would change it"]),
        ({"results": None}, ["its host did not check whether the arguments would change it"]),
        ({"results": ["x", {"name": "web2", "changed": True}, {"name": "web1", "changed": False}]}, []),
        ({"results": [{"name": "web1", "failed": True, "msg": "no"}]}, ["its host refuses the arguments: no"]),
        (
            {"results": [{"name": "web1", "changed": True, "diff": {"after": {"title": "x"}}}]},
            ["the arguments would change it (title); name the guests without it: -e guest=..."],
        ),
        (
            {"results": [{"name": "web1", "changed": True}]},
            ["the arguments would change it (unknown); name the guests without it: -e guest=..."],
        ),
    ],
)
def test_a_guest_that_its_arguments_would_change_is_refused(answer: dict[str, t.Any] | None, why: list[str]) -> None:
    assert list(import_files.differences("web1", answer)) == [f"cannot import web1: {one}" for one in why]


def test_two_guests_never_share_a_secret() -> None:
    names = ["web1", "Web1", "WEB1", "a-b", "a.b", "a_b", "b\u00fcro", "b_ro"]
    withheld = {"graphics": {"type": "vnc"}}
    guests = [
        import_files.guest(name, {"arguments": {**WEB1, "name": name}, "withheld_arguments": withheld})
        for name in names
    ]
    variables = [guest["graphics"]["password"] for guest in guests]
    assert len(set(variables)) == len(names) and all(one[3:-3].isascii() for one in variables)


def test_guests_of_one_name_on_several_hosts_are_refused() -> None:
    there = (("web1", "hyper2"), ("db1", "hyper1"), ("web1", "hyper1"))
    chosen = [{"name": name, "host": host} for name, host in there]
    assert list(import_files.twins(chosen)) == [
        "cannot import web1: hyper1 and hyper2 each have a guest of that name; exclude one: --limit"
    ]


@pytest.mark.parametrize("name", ["../../etc/cron.d/x", "a/b", "..", "a\n"])
def test_a_name_is_never_a_path(name: str) -> None:
    with pytest.raises(BadInput, match="is not a valid name"):
        import_files.guest(name, {"arguments": {**WEB1, "name": name}})
