# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a host gets its certificates: the controller's half of the exchange, independent of its transport."""

from __future__ import annotations

import contextlib
import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import changes as _changes
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._core.output import agree
from ansible_collections.corral.virt.plugins.module_utils._core.step import Step
from ansible_collections.corral.virt.plugins.module_utils._tls import files_tls
from ansible_collections.corral.virt.plugins.module_utils._tls.model_tls import (
    AUTHORITIES,
    CONTROLLER,
    FoundTls,
    TlsSpec,
)
from ansible_collections.corral.virt.plugins.module_utils._tls.plan_tls import Request, SetMode, SetTrust, decide
from ansible_collections.corral.virt.plugins.module_utils._tls.run_tls_options import (
    install,
    renew_before,
    trust_options,
    trusts,
    wanted,
)
from ansible_collections.corral.virt.plugins.plugin_utils._authority.authorities import Authorities, TakeOver, now
from ansible_collections.corral.virt.plugins.plugin_utils._authority.ca import given, subtrees
from ansible_collections.corral.virt.plugins.plugin_utils._authority.host_trust import (
    Survey,
    forgotten,
    strange,
    unread,
)
from ansible_collections.corral.virt.plugins.plugin_utils._authority.signed_certificates import Clock

Variables = dict[str, t.Any]

CONTROLLER_NAME = "controller"
_HERE_ONLY = ("ca_key", "qemu_ca_key", "ca_passphrase")  # never sent to a host
_CALLS = 4  # of the module; more would mean that host and controller never agree


@dataclasses.dataclass
class Certifier:
    """Issues the certificates of one host, and the controller's.

    `ask` calls the module on the host; `inventory` is the host's inventory, `inventories` are all, `hosts` their hosts.
    `warn` shows the user a sentence at once, also if the host fails later.
    """

    params: Variables
    gate: Gate
    ask: t.Callable[[Variables], Variables]
    inventory: str = ""
    inventories: t.Collection[str] = ()
    hosts: t.Sequence[str] = ()
    clock: Clock = now
    # what all hosts hold, of which the directory has seen these; None: nobody can be asked
    held: t.Callable[[t.Collection[str]], contextlib.AbstractContextManager[Survey]] | None = None
    warn: t.Callable[[str], None] = lambda _sentence: None
    # the run's note of revocations, by serial, that check mode has planned
    planned: t.Callable[[], contextlib.AbstractContextManager[Variables]] = lambda: contextlib.nullcontext({})
    limited: bool = False  # --limit leaves hosts out: a renamed one gets no new certificates in this run

    @property
    def authorities(self) -> Authorities:
        """The controller's authorities; in check mode with the revocations that this run has planned."""
        retired = self.params["retired_ca_certificates"] or ""
        passphrase, texts, place = self.params["ca_passphrase"], given(self.params), self.params["ca_dir"]
        found = Authorities(place, given=texts, passphrase=passphrase, retired=retired, clock=self.clock)
        with contextlib.ExitStack() as stack:
            self.gate.rehearse(lambda: found.assume_revoked(stack.enter_context(self.planned())))
        return found

    def certify(self, *, check: t.Callable[[], None]) -> Variables:
        """Issue certificates: one call of the module if there is nothing to sign, else two or more.

        `check` validates the names before anything is signed.
        """
        params = self.params
        if params["name"] == CONTROLLER_NAME:
            why = "is the name in the controller's certificate; give the host another name"
            raise BadInput([f"name: {CONTROLLER_NAME} {why}"])
        elsewhere = given(params) is None and self._elsewhere()
        goals = wanted(params, trusts(params), group=lambda name: name)
        subtrees(params["ca_constraints"])
        sent = {option: value for option, value in params.items() if option not in _HERE_ONLY}
        if elsewhere:
            return self._told_of_shorter_lists(self.ask(sent))
        authorities = self.authorities
        taken = self._take_over(authorities)

        def call(**more: t.Any) -> Variables:
            says = {name: authorities.trust(name, name=params["name"], gate=self.gate) for name in AUTHORITIES}
            return self.ask({**sent, **trust_options(says), **more})

        result = call()
        if result.get("failed"):
            return result
        if result["renewed"]:
            check()
        # Only now: a host that belongs to another authority is refused before there is one here.
        made = self._keep(authorities, goals)
        done = [*map(str, taken), *made]
        agreed = self.gate.perform(
            lambda: self._agreed(authorities, goals, result, call, check=check, again=bool(made)),
            otherwise=lambda: result,
        )
        return self._complete(authorities, _with_changes(agreed, taken), done)

    def _take_over(self, authorities: Authorities) -> t.Sequence[TakeOver]:
        """Record here what the lists of all hosts have revoked, before anything is sent to a host.

        Steps are returned only by the process that asked the hosts.
        """
        if self.held is None or not authorities.ends():
            return ()  # without a CA nothing was revoked
        place, remembers = self.params["ca_dir"], authorities.remembers()
        with self.held(authorities.recorded()) as survey:
            own = files_tls.in_place(CONTROLLER, place, "crl")
            held = authorities.unknown({**survey.lists, own: [*survey.lists.get(own, ()), CONTROLLER_NAME]})
            self.gate.run(held.steps, authorities.take_over)
            self.gate.perform(lambda: authorities.keep_lists(held.lists), otherwise=lambda: authorities.assume(held))
            self.gate.perform(lambda: authorities.learn(survey.certificates), otherwise=lambda: None)
        if not survey.asked:
            return ()
        if held.steps and remembers:
            self.warn(forgotten(place, held.steps))
        if survey.silent:
            self.warn(unread(place, survey.silent))
        strangers = {} if self.params["replace_authority"] else authorities.strangers(survey.certificates)
        if strangers:
            self.warn(strange(place, strangers))
        return held.steps

    def _told_of_shorter_lists(self, result: Variables) -> Variables:
        """Warn if the host kept a longer list of revoked certificates of the same CA than the option has."""
        for name in result.get("crl") or {}:
            option = "qemu_ca_crl" if name == "qemu" else "ca_crl"
            if self.params[option]:
                self.warn(
                    f"{self.params['name']} refuses certificates that the list in {option} has not revoked. The "
                    f"list in place stays: set {option} to a newer one"
                )
        return result

    def _complete(self, authorities: Authorities, result: Variables, done: t.Sequence[str]) -> Variables:
        """The host's result with the controller's part; `done` steps came before."""
        if result.get("failed"):
            return result
        if self.params["controller"]:
            self._certify_controller(authorities, result)
        result["changed"] = result["changed"] or bool(done)
        result["steps"] = [*done, *result["steps"]]
        result["rolling"] = authorities.rolling(name=self.params["name"])
        return {key: value for key, value in result.items() if key not in ("crl", "held", "requests")}

    def _elsewhere(self) -> bool:
        """True if other CAs than the controller's sign. Raises BadInput if the options say so for a part only."""
        options = {"libvirt": "ca_certificate", "qemu": "qemu_ca_certificate"}
        missing = [options[name] for name in self.params["identities"] if not self.params[options[name]]]
        given = [
            option
            for option in (*options.values(), "ca_crl", "qemu_ca_crl", "revoked", "certificates")
            if self.params[option]
        ]
        if given and missing:
            raise BadInput(
                [
                    f"{option} is missing: {', '.join(given)} {agree(len(given), 'requires', 'require')} it to name "
                    "the signing CAs"
                    for option in missing
                ]
            )
        return bool(given)

    def revoke(self) -> Variables:
        """Revoke certificates. This does not contact the host, which may be gone or replaced."""
        params = self.params
        if (params["name"] is None) == (params["hypervisors"] is None):
            raise BadInput(
                ["state: revoked requires name, whose certificates are revoked, or hypervisors, which keep theirs"]
            )
        authorities = self.authorities
        strays: list[str] = []
        with contextlib.ExitStack() as stack:
            # Another run may see one of these hosts, or issue it other certificates, just now.
            self.gate.hold(stack, authorities.steady)
            if params["name"] is None:
                # Who is still there may be a hypervisor of another group.
                stay = [*params["hypervisors"], *self.hosts, CONTROLLER_NAME]
                names, strays = authorities.gone(stay=stay, inventories=self.inventories)
                if self.limited:
                    names, strays = [], sorted({*names, *strays})
            else:
                names = [params["name"]]
            steps = self._revocable(authorities, names)
            self.gate.run(steps, authorities.revoke)
            self.gate.rehearse(lambda: stack.enter_context(self.planned()).update(authorities.records_of(steps)))
        changes = [
            _changes.Change(f"{step.certificate.holder}.{step.certificate.serial}", "valid", "revoked")
            for step in steps
        ]
        revoked = sorted({step.certificate.holder for step in steps})
        warnings = [
            f"{name} has valid certificates, but is not in the inventory. If it is gone: ansible-playbook "
            f"corral.virt.rotate_certificates -e revoke={name}"
            for name in strays
        ]
        return {
            "changed": bool(steps),
            "steps": [*map(str, steps)],
            "diff": _changes.diff(changes),
            "revoked": revoked,
            "warnings": warnings,
        }

    def _revocable(self, authorities: Authorities, names: t.Sequence[str]) -> list[t.Any]:
        """The steps that revoke; raises Refused if the named host has no certificate that can be revoked."""
        name, ca_dir = self.params["name"], self.params["ca_dir"]
        if name is not None and not authorities.knows(name):
            raise Refused(
                f"cannot revoke the certificates of {name}: {ca_dir} has no record of certificates issued to it. Check "
                "the name; or revoke it where its certificates were issued, or after a run that has reached it"
            )
        found = authorities.to_revoke(names=names)
        steps = [step for step in found if step.certificate.issuer]
        if found and not steps and name is not None:
            raise Refused(
                f"cannot revoke the certificates of {name}: the CA that signed them is not in {ca_dir}, and a list "
                "signed by another CA would not be accepted; restore that CA from the backup, or revoke them where it "
                "is"
            )
        return steps

    def _keep(self, authorities: Authorities, goals: t.Mapping[str, TlsSpec]) -> list[str]:
        """Create the CAs that are due or requested, and protect their keys; returns the steps as text."""
        params = self.params
        used = sorted(
            {goal.identity.authority for goal in goals.values()} | ({"libvirt"} if params["controller"] else set())
        )
        new_steps = [step for name in used for step in authorities.due(name, days=params["days"])]
        if params["new_authority"]:
            new_steps += [
                authorities.another(name) for name in used if name not in {step.authority for step in new_steps}
            ]
        self.gate.run(new_steps, lambda step: authorities.make(step, within=self._constraints(step.authority)))
        protecting = authorities.unprotected()
        self.gate.after(new_steps).run(protecting, authorities.protect)
        return [*map(str, new_steps), *map(str, protecting)]

    def _constraints(self, authority: str) -> list[str]:
        """The names that a CA is restricted to, with the controller's name if the CA signs for it."""
        constraints: list[str] = self.params["ca_constraints"]
        domains, _networks = subtrees(constraints)
        return [*constraints, CONTROLLER_NAME] if domains and authority == CONTROLLER.authority else constraints

    def _agreed(
        self,
        authorities: Authorities,
        goals: t.Mapping[str, TlsSpec],
        result: Variables,
        call: t.Callable[..., Variables],
        *,
        check: t.Callable[[], None],
        again: bool,
    ) -> Variables:
        """Call the host until it requests nothing more: signatures, trust in a new CA, others' revocations.

        Raises Failed after too many calls.
        """
        for _turn in range(_CALLS):
            for name in AUTHORITIES:
                crl = str(result.get("crl", {}).get(name, ""))
                held = authorities.adopt(name, crl, host=self.params["name"])
                if held.steps and authorities.remembers():
                    self.warn(forgotten(self.params["ca_dir"], held.steps))
                again |= bool(held)
            requests = result.get("requests", {})
            if not (again or requests):
                self._remember(authorities, result)
                return result
            if requests:
                check()  # whatever the host says of what it has renewed
            signed = {
                name: authorities.sign(csr, goals[name], days=self.params["days"]) for name, csr in requests.items()
            }
            then = call(certificates=signed, force=False)
            if then.get("failed"):
                return then
            result, again = _both(result, then), False
        raise Failed(
            f"cannot issue certificates to {self.params['name']}: it keeps requesting new ones; inspect its files in "
            f"{self.params['pki_dir']}"
        )

    def _remember(self, authorities: Authorities, result: Variables) -> None:
        """Record what the host reports of itself: a false report only delays the next roll-over."""
        authorities.learn({self.params["name"]: [text for texts in result["held"].values() for text in texts]})
        certificates = result["certificates"]
        authorities.seen(
            self.params["name"],
            trusts=result["trusts"],
            serials={name: [one["serial"] for one in pair.values()] for name, pair in certificates.items()},
            inventory=self.inventory,
            **self._lives(authorities),
        )

    def _lives(self, authorities: Authorities) -> Variables:
        """The dates that _report/expiry_warnings.py needs."""
        ends = {name: end.strftime("%Y-%m-%dT%H:%M:%SZ") for name, end in authorities.ends().items()}
        return {"authorities": ends, "renew_before": self.params["renew_before"]}

    def _certify_controller(self, authorities: Authorities, result: Variables) -> None:
        """Issue the controller's certificate with the same plan and steps as on a host, in the CA's directory."""
        root = self.params["ca_dir"]
        with contextlib.ExitStack() as stack:
            # Another process may have done the same just now.
            self.gate.hold(stack, authorities.locked)
            wish = self._controllers(authorities)
            plan = decide(wish, files_tls.read(CONTROLLER, root, trust=wish.trust), now=self.clock())
            self.gate.run(plan.steps, lambda step: self._do(authorities, wish, step))
            found = files_tls.read(CONTROLLER, root, trust=wish.trust)
            shown = found.certificates.get("client")
            if shown:
                serial = shown.serial
                self.gate.perform(lambda: self._remember_controller(authorities, found, serial), otherwise=lambda: None)
        result["changed"] = result["changed"] or bool(plan.steps)
        result["steps"] = [*result["steps"], *map(str, plan.steps)]
        result["certificates"].update({CONTROLLER_NAME: {"client": shown.result()}} if shown else {})
        for side, fields in _changes.diff(plan.changes).items():
            result["diff"][side].update(fields)

    def _controllers(self, authorities: Authorities) -> TlsSpec:
        """The controller's desired certificate."""
        owner, group = files_tls.me()
        return TlsSpec(
            CONTROLLER,
            CONTROLLER_NAME,
            (CONTROLLER_NAME,),
            renew_before({**self.params, "name": CONTROLLER_NAME}, CONTROLLER_NAME),
            owner=owner,
            group=group,
            force=self.params["force"],
            replace_authority=True,
            trust=authorities.trust("libvirt", name=CONTROLLER_NAME, gate=self.gate),
        )

    def _do(self, authorities: Authorities, wish: TlsSpec, step: Step) -> None:
        _ON_CONTROLLER[type(step)](_Controller(self.params["ca_dir"], authorities, wish, self.params["days"]), step)

    def _remember_controller(self, authorities: Authorities, found: FoundTls, serial: str) -> None:
        trusts, serials = {"libvirt": sorted(found.trusts)}, {"libvirt": [serial]}
        authorities.seen(CONTROLLER_NAME, trusts=trusts, serials=serials, **self._lives(authorities))


class _Controller(t.NamedTuple):
    """Context of the steps for the controller's own certificate."""

    root: str
    authorities: Authorities
    wish: TlsSpec
    days: int


def _renew(controller: _Controller, _step: Request) -> None:
    root, authorities, wish, days = controller
    csr = files_tls.request(CONTROLLER, root, subject=wish.subject)
    install(wish, root, certificate=authorities.sign(csr, wish, days=days))


_ON_CONTROLLER: dict[type[Step], t.Callable[[_Controller, t.Any], None]] = {
    Request: _renew,
    SetTrust: lambda controller, step: install(step.wanted, controller.root),
    SetMode: lambda controller, step: files_tls.set_mode(
        f"{controller.root}/{step.place.path}", owner=step.owner, group_name=step.group, mode=step.mode
    ),
}


def _with_changes(result: Variables, taken: t.Sequence[TakeOver]) -> Variables:
    """The result of a host, with the revocations that were taken over."""
    changes = [_changes.Change(f"{step.holder}.{step.serial}", "valid", "revoked") for step in taken]
    if result.get("failed") or not changes:
        return result
    diff = {side: {**fields, **result["diff"][side]} for side, fields in _changes.diff(changes).items()}
    return {**result, "diff": diff}


def _both(first: Variables, then: Variables) -> Variables:
    """The results of two calls as one: the steps of both, the state after the second."""
    diff = {side: {**first["diff"][side], **then["diff"][side]} for side in ("before", "after")}
    steps = [*first["steps"], *then["steps"]]
    renewed = [*dict.fromkeys([*first["renewed"], *then["renewed"]])]
    changed = first["changed"] or then["changed"]
    return {**then, "changed": changed, "steps": steps, "diff": diff, "renewed": renewed}
