"""Who uses the contents of images on other hosts."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils._images.image_users import elsewhere, elsewhere_of_all


def image(used_by: str | None = None, *, used: bool = False, content: str | None = "a.2") -> dict[str, t.Any]:
    contents = [{"content": "a.1", "used_by": used_by}, {"content": "a.2", "used_by": None}]
    return {"content": content, "contents": contents, "used": used or used_by is not None}


def test_the_users_of_contents_on_other_hosts() -> None:
    answers = {
        "h1": {"images": [image("guest own")]},
        "h2": {"images": [image("guest web1"), image(used=True)]},
        "h3": {"images": [image("guest web2"), image(), image(used=True, content=None)]},
        "h4": {},
    }
    assert elsewhere(answers, "h1", {}) == {"a.1": "guest web1 on h2", "a.2": "a disk on h2"}
    assert elsewhere(answers, "h2", {})["a.1"] == "guest own on h1"
    assert elsewhere({"h1": answers["h1"]}, "h1", {}) == {}
    assert elsewhere_of_all(answers, {}) == {host: elsewhere(answers, host, {}) for host in answers}
    by_path = {"h4": {"users": {"/mnt/a.1": "guest web4 at /mnt/a.1", "/mnt/a.2": None}}}
    assert elsewhere({"h1": answers["h1"], "h4": {}}, "h1", by_path) == {"a.1": "guest web4 at /mnt/a.1 on h4"}


def test_each_answer_is_read_once_for_all_hosts() -> None:
    read: list[str] = []

    class Answer(dict[str, t.Any]):
        def get(self, key: str, default: t.Any = None) -> t.Any:
            read.append(key)
            return super().get(key, default)

    elsewhere_of_all({f"h{number}": Answer(images=[image("guest web1")]) for number in range(20)}, {})
    assert read == ["images"] * 20
