// One guest, one host.

import { html } from "/static/lib/htm/standalone.module.js";
import { state } from "/static/server.js";
import { act, actionOf, jobOf, label, refusal } from "/static/actions.js";
import { may } from "/static/rights.js";
import { askFor, quick } from "/static/forms.js";
import { Graphs } from "/static/graphs.js";
import { JobsOf } from "/static/jobs.js";
import { HostButtons, Maintenance, Progress, consoleRefusal, doTo, openGuestMenu, storageOf } from "/static/overview.js";
import { Bar, Certificates, Expiry, Facts, State, Table, Waiting, useAnswer } from "/static/parts.js";
import { ago, backupOf, bytes, diskUsed, guestLink, hostLink, memory, plural, protectionOf, readable, shown, snapshotsOf } from "/static/words.js";

function Buttons({ guest, found, runs }) {
  const button = (name) => actionOf(name) && !refusal(name, guest) && html`<button onClick=${() => doTo(name, [guest])}>${name === "migrate" ? "Migrate to …" : label(name)}</button>`;
  return html`<span class="buttons">
    ${runs && found && may("console", { guest }) && [["vnc", "Display"], ["serial", "Serial console"]].map(([kind, word]) => {
      const why = consoleRefusal(guest, kind, found);
      return why ? html`<button disabled title=${why}>${word}</button>` : html`<a class="button" href=${`#/console/${guest.uuid}/${kind}`}>${word}</a>`;
    })}
    ${["start", "resume", "shutdown", "migrate", "change"].map(button)}
    <button aria-haspopup="menu" aria-label=${`Actions of ${shown(guest.name)}`} onClick=${(event) => openGuestMenu(event.currentTarget, guest, found)}>⋯</button></span>`;
}

export function Guest({ host, uuid }) {
  const guest = state.guest.get(`guest/${host}/${uuid}`);
  const changes = guest && JSON.stringify({ ...guest, migration: undefined });
  const answer = useAnswer(`/api/hosts/${encodeURIComponent(host)}/guests/${encodeURIComponent(uuid)}`, changes);
  if (!guest) {
    const elsewhere = [...state.guest.values()].find((other) => other.uuid === uuid);
    return html`<h1>Guest</h1><p class="empty">The guest is not on ${host}. ${elsewhere ? html`It is on <a href=${guestLink(elsewhere)}>${elsewhere.host}</a>.` : html`<a href="#/">All guests</a>`}</p>`;
  }
  const [cpu, used] = state.figures.get(`figures/${host}`)?.guests[uuid] || [];
  const runs = guest.state === "running" || guest.state === "paused";
  return html`<nav class="path" aria-label="Path"><a href="#/">Hosts</a> / <a href=${hostLink(host)}>${host}</a></nav>
    <div class="title"><h1>${shown(guest.name)}</h1><${State} value=${guest.state} /><${Buttons} guest=${guest} found=${answer.value} runs=${runs} /></div>
    ${guest.title && html`<p class="quiet">${readable(guest.title)}</p>`}
    <${Progress} guest=${guest} job=${jobOf(uuid)} />
    ${runs && html`<div class="bars wide"><${Bar} label="CPU" value=${cpu} detail=${`of ${plural(guest.vcpus, "vCPU")}`} />${used !== null && used !== undefined && html`<${Bar} label="Memory" value=${used} detail=${`of ${memory(guest.memory_mib)}`} />`}</div>`}
    ${answer.value ? html`<${GuestFacts} guest=${guest} found=${answer.value} />` : html`<${Waiting} answer=${answer} />`}
    <${Graphs} path=${`/api/history/${encodeURIComponent(host)}/${uuid}`} />
    <${JobsOf} query=${`&guest=${uuid}`} fits=${(job) => job.guests?.some((each) => each.uuid === uuid)} />`;
}

const source = (disk) => disk.source || disk.volume || disk.block || "";
const network = (nic) => nic.bridge || nic.network || nic.dev || "";

function GuestFacts({ guest, found }) {
  const snapshots = snapshotsOf(guest), backup = backupOf(guest), protection = protectionOf(found);
  return html`<section class="panel"><h2>Guest</h2><${Facts} facts=${[
      ["Addresses", found.addresses.join(", ") || "none known"],
      ["vCPUs", `${found.vcpus.current}${found.vcpus.maximum > found.vcpus.current ? ` of at most ${found.vcpus.maximum}` : ""}`],
      ["Memory", memory(found.memory.current_mib)],
      ["Description", found.description && readable(found.description)],
      ["Snapshots", snapshots && html`<span class=${snapshots.old ? "warn" : ""}>${snapshots.words}${snapshots.old ? "; a snapshot is no backup: delete it when it has done its work" : ""}</span>`],
      ["Backup", backup && html`<span class=${backup.late ? "warn" : ""}>${backup.words}</span>`],
      ["Protected", protection && html`<span class=${protection.bad ? "warn" : ""}>${readable(protection.words)}</span>`],
      ["Definition kept in", protection?.place && html`<code>${shown(protection.place)}</code>`],
      ["Owner", protection?.owner && readable(protection.owner)],
      ["Last failover", protection?.last && readable(protection.last)],
      ["Tags", guest.tags.map(shown).join(", ")],
      ["Starts with its host", guest.autostart ? "yes" : "no"],
      ["Machine", found.machine],
      ["Firmware", found.firmware],
      ["Type", found.virt_type],
      ["UUID", html`<code>${guest.uuid}</code>`],
    ]} /></section>
    <${Table} title="Disks" empty="No disks." columns=${["Target", "Size", "Used", "Bus", "Format", "Where"]} rows=${found.disks.map((disk) => [disk.target, bytes(disk.capacity_bytes), diskUsed(disk), disk.bus, disk.format, html`<code>${shown(source(disk))}</code>`])} />
    <${Table} title="Network interfaces" empty="No network interfaces." columns=${["Name", "Type", "Network", "MAC address", "Model"]} rows=${found.interfaces.map((nic) => [nic.name, nic.type, shown(network(nic)), html`<code>${nic.mac}</code>`, nic.model])} />`;
}

export function Host({ name }) {
  const host = state.host.get(`host/${name}`);
  const answer = useAnswer(`/api/hosts/${encodeURIComponent(name)}`, host?.state);
  if (!host) return html`<h1>Host</h1><p class="empty">There is no host ${name}. <a href="#/">All hosts</a></p>`;
  const guests = [...state.guest.values()].filter((guest) => guest.host === name).sort((one, other) => one.name.localeCompare(other.name));
  const figures = state.figures.get(`figures/${name}`) || {};
  const storage = storageOf(host);
  const found = answer.value;
  const action = (known) => actionOf(known) && may(known, { host: name }) && html`<button onClick=${() => (quick(known) ? act(known, { hosts: [name] }) : askFor(known, { hosts: [name] }))}>${label(known)}</button>`;
  return html`<nav class="path" aria-label="Path"><a href="#/">Hosts</a></nav>
    <div class="title"><h1>${name}</h1><span class=${`state ${host.state}`}>${host.state === "unreachable" ? `Unreachable since ${new Date(host.since * 1000).toLocaleString()}` : host.state === "connected" ? "Connected" : "Connecting"}</span>
      <span class="buttons">${host.state === "connected" && "maintenance" in host && action(host.maintenance ? "undrain" : "drain")}${host.state === "connected" && html`<${HostButtons} host=${host} />`}</span></div>
    ${host.reason && html`<p class="problem">${readable(host.reason)}</p>`}
    <${Maintenance} host=${host} />
    <${Expiry} host=${host} />
    ${host.state === "connected" && html`<div class="bars wide"><${Bar} label="CPU" value=${figures.cpu} detail=${`of ${plural(host.cpus, "CPU")}`} /><${Bar} label="Memory" value=${figures.memory} detail=${`of ${memory(host.memory_mib)}`} />
      ${storage && html`<${Bar} label="Storage" value=${storage.percent} detail=${`of ${bytes(storage.all)}`} />`}</div>`}
    <${Table} title="Guests" empty="No guests." columns=${["Name", "State", "vCPUs", "Memory"]} rows=${guests.map((guest) => [html`<a href=${guestLink(guest)}>${shown(guest.name)}</a>`, html`<${State} value=${guest.state} />`, guest.vcpus || "", memory(guest.memory_mib)])} />
    ${found ? html`<section class="panel"><h2>Host</h2><${Facts} facts=${[
        ["Name there", found.hostname],
        ["Processor", `${found.cpu_model || ""} ${found.arch}`],
        ["libvirt", found.libvirt_version],
        ["Hypervisor", `${found.hypervisor_version} (${(found.virt_types[found.arch] || []).join(", ")})`],
        ["Processors", `${found.cpus} (${found.sockets} × ${found.cores} × ${found.threads})`],
        ["Memory", memory(found.memory_mib)],
        ["Fence devices of others", host.fencing && html`<span class=${host.fencing.ok < host.fencing.of ? "warn" : ""}>${host.fencing.ok} of ${host.fencing.of} can be used, tested ${ago(Date.parse(host.fencing.tested) / 1000)}</span>`],
        ["Security drivers", found.security_drivers.join(", ")],
      ]} /></section>
      <${Table} title="Storage pools" empty="No storage pools." columns=${["Name", "Path", "Used", "Size"]} rows=${found.pools.map((pool) => [shown(pool.name), html`<code>${shown(pool.path)}</code>`, bytes(pool.allocation_bytes), bytes(pool.capacity_bytes)])} />
      <${Table} title="Networks" empty="No virtual networks." columns=${["Name", "Bridge", "Active"]} rows=${found.networks.map((each) => [shown(each.name), each.bridge, each.active ? "yes" : "no"])} />`
      : html`<${Waiting} answer=${host.state === "connected" ? answer : { problem: "Details are shown while the host is connected." }} />`}
    <${Certificates} host=${host} />
    <${Graphs} path=${`/api/history/${encodeURIComponent(name)}`} />
    <${JobsOf} query=${`&host=${encodeURIComponent(name)}`} fits=${(job) => job.hosts?.includes(name)} />`;
}
