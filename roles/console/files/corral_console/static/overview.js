// All hosts with their guests: search, filter, group, choose, act, drag.

import { Component, html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "/static/lib/htm/standalone.module.js";
import { ask, changed, state } from "/static/server.js";
import { VOLUMES, act, actionOf, cancel, guestActions, jobOf, jobOfHost, label, possible, refusal } from "/static/actions.js";
import { may } from "/static/rights.js";
import { openChange } from "/static/change.js";
import { openCreate } from "/static/create.js";
import { askFor, quick } from "/static/forms.js";
import { Dock, Verdict, beginDrag, drag, dropOn, endDrag, openMigrate } from "/static/migrate.js";
import { Bar, Expiry, State } from "/static/parts.js";
import { openMenu, updateMenu } from "/static/ui.js";
import { STATES, ago, backupOf, bytes, guestLink, hostLink, memory, plural, readable, shown, snapshotsOf } from "/static/words.js";

// Guests that are chosen, by UUID.
export const chosen = new Set();

export function choose(uuid) {
  if (!chosen.delete(uuid)) chosen.add(uuid);
  changed();
}

const chosenGuests = () => [...state.guest.values()].filter((guest) => chosen.has(guest.uuid) && !arrives(guest));

// A guest that migrates is on both hosts; here is the one that does not run yet.
function arrives(guest) {
  if (guest.state === "running") return false;
  return [...state.guest.values()].some((other) => other.uuid === guest.uuid && other !== guest && other.migration);
}

// Why a console cannot be opened; `found`: all about the guest, when that is known.
export function consoleRefusal(guest, kind, found) {
  if (!may("console", { guest })) return "you may not open its consoles";
  if (!["running", "paused"].includes(guest.state)) return "it is off";
  if (kind === "vnc" && found && !found.graphics.some((each) => each.type === "vnc")) return "it has no VNC display; change graphics to {\"type\": \"vnc\"}";
  return kind === "serial" && found && !found.console ? "it has no serial console; add a port of the type pty to serials" : "";
}

export function openGuestMenu(anchor, guest, found) {
  openMenu(anchor, `Actions of ${shown(guest.name)}`, guestItems([guest], found));
  if (found || consoleRefusal(guest, "vnc")) return;
  const path = `/api/hosts/${encodeURIComponent(guest.host)}/guests/${guest.uuid}`;
  ask(path).then((told) => updateMenu(anchor, guestItems([guest], told)), () => null);
}

export function guestItems(guests, found) {
  const item = (name) => ({
    label: name === "migrate" ? "Migrate to …" : `${label(name)}${quick(name) ? "" : " …"}`,
    danger: actionOf(name)?.destructive,
    refusal: possible(name, guests).why,
    run: () => doTo(name, guests),
  });
  const consoles = guests.length === 1 ? [["vnc", "Display"], ["serial", "Serial console"]].map(([kind, word]) => ({
    label: word, refusal: consoleRefusal(guests[0], kind, found),
    run: () => (location.hash = `#/console/${guests[0].uuid}/${kind}`) })) : [];
  const copies = guests.length === 1 && actionOf("create") ? [item("clone")] : [];
  const groups = [...guestActions().map((names) => names.map(item)), copies, consoles].filter((group) => group.length);
  return groups.flatMap((group, index) => (index ? [{ line: true }, ...group] : group));
}

export function doTo(name, guests) {
  const { able } = possible(name, guests);
  if (!able.length) return;
  if (name === "migrate") openMigrate(able);
  else if (name === "change") openChange(able);
  else if (name === "clone") openCreate(able[0]);
  else if (quick(name)) act(name, { guests: able });
  else askFor(name, { guests: able });
}

// What it has moved, never less than before within a pass.
export function Progress({ guest, job }) {
  const { migration } = guest;
  if (!migration && !job) return null;
  if (!migration) return html`<div class="progress"><div class="row"><span class="busy">${label(job.action)}${job.to && ` to ${job.to}`} …</span> ${job.cancelling ? html`<span class="quiet">cancelling</span>` : html`<button class="small" onClick=${() => cancel(job)}>Cancel</button>`}</div></div>`;
  const disks = Object.entries(migration.disks);
  const percent = migration.data_total ? Math.min(100, Math.floor((100 * migration.data_processed) / migration.data_total)) : null;
  const copied = disks.map(([target, [done, whole]]) => `${target} ${Math.floor((100 * done) / whole)} %`);
  const pass = migration.memory_iteration > 1 ? `pass ${migration.memory_iteration}` : "";
  const rate = migration.memory_bps ? `${bytes(migration.memory_bps)}/s` : "";
  const to = job?.to || [...state.guest.values()].find((other) => other.uuid === guest.uuid && other.host !== guest.host)?.host;
  return html`<div class="progress" data-migration=${percent ?? ""}>
    <${Bar} label=${to ? `→ ${to}` : "Moves"} value=${percent} />
    <div class="row"><span class="quiet">${[...copied, pass, rate].filter(Boolean).join(" · ") || "Begins …"}</span>
    ${job && html`<button class="small" onClick=${() => cancel(job)}>Cancel</button>`}</div></div>`;
}

// Values never change in place, so the same ones need no new card.
class Card extends Component {
  shouldComponentUpdate(next) {
    return Object.keys(next).some((name) => next[name] !== this.props[name]);
  }

  render({ guest, cpu, memory: used, stale, withHost, job, isChosen, arriving, isDragged, draggable }) {
    const runs = guest.state === "running" || guest.state === "paused";
    const { name } = guest;
    const word = shown(name);
    const snapshots = snapshotsOf(guest);
    const backup = backupOf(guest);
    const classes = ["card", stale && "stale", arriving && "arriving", isChosen && "chosen", isDragged && "dragged"].filter(Boolean).join(" ");
    const dragged = () => (chosen.has(guest.uuid) ? possible("migrate", chosenGuests()).able : [guest]);
    return html`<li class=${classes} data-guest=${name} data-state=${guest.state} data-host=${guest.host} data-uuid=${guest.uuid}
        draggable=${draggable ? "true" : undefined} onDragStart=${draggable ? (event) => beginDrag(event, dragged()) : undefined} onDragEnd=${endDrag}>
      <div class="card-head">
        <input type="checkbox" class="choose" aria-label=${`Choose ${word}`} checked=${isChosen} onChange=${() => choose(guest.uuid)} />
        <a class="name" draggable=${false} href=${guestLink(guest)}>${word}</a><${State} value=${arriving ? "arriving" : guest.state} />
        <button class="plain more" aria-haspopup="menu" aria-label=${`Actions of ${word}`} onClick=${(event) => openGuestMenu(event.currentTarget, guest)}>⋯</button></div>
      ${guest.title && html`<div class="quiet cut about">${readable(guest.title)}</div>`}
      <div class="quiet size">${withHost && `${guest.host}, `}${guest.vcpus ? `${plural(guest.vcpus, "vCPU")}, ` : ""}${memory(guest.memory_mib)}${snapshots && html`<span class=${snapshots.old ? "warn" : ""}>, snapshots: ${snapshots.words}</span>`}${backup?.late && html`<span class="warn">, backup: ${backup.words}</span>`}</div>
      <div class="load">${runs && !arriving && !guest.migration && html`<${Bar} label="CPU" value=${cpu} />`}
        ${runs && !guest.migration && used !== null && used !== undefined && html`<${Bar} label="Memory" value=${used} />`}
        <${Progress} guest=${guest} job=${job} /></div>
      ${guest.tags.length > 0 && html`<div class="tags">${guest.tags.map((tag) => html`<span class="tag">${shown(tag)}</span>`)}</div>`}
    </li>`;
  }
}

// Used and whole bytes of a host's pools; pools below the same path share a file system only by name.
export function storageOf(host) {
  const pools = (host.pools || []).filter((pool) => pool.active);
  const used = pools.reduce((sum, pool) => sum + pool.allocation_bytes, 0);
  const all = pools.reduce((sum, pool) => sum + pool.capacity_bytes, 0);
  return all ? { percent: Math.round((100 * used) / all), all } : null;
}

function HostFacts({ host }) {
  const figures = state.figures.get(`figures/${host.name}`) || {};
  const storage = storageOf(host);
  if (host.state !== "connected") {
    const words = host.state === "connecting" ? "Connecting" : "Unreachable since";
    const since = host.state === "connecting" ? "" : ` ${new Date(host.since * 1000).toLocaleString()} (${ago(host.since)})`;
    return html`<p class="problem" role="status"><strong>${words}${since}</strong>${host.reason && html`<br /><span>${readable(host.reason)}</span>`}</p>`;
  }
  return html`<div class="bars">
    <${Bar} label="CPU" value=${figures.cpu} detail=${`of ${plural(host.cpus, "CPU")}`} />
    <${Bar} label="Memory" value=${figures.memory} detail=${`of ${memory(host.memory_mib)}`} />
    ${storage && html`<${Bar} label="Storage" value=${storage.percent} detail=${`of ${bytes(storage.all)}`} />`}
  </div>`;
}

const BLOCK_ROWS = 8;
const WIDTH_PX = 240;
const GAP_PX = 10;
const CARD_PX = 130;
const ROW_PX = 44;

// Whole rows of cards, drawn while they are near to what is seen: of thousands, a few dozen are on the page.
function Block({ guests, columns, rows, withHost, label: words }) {
  const place = useRef(null);
  const height = useRef(0);
  const [near, setNear] = useState(false);
  useEffect(() => {
    const observer = new IntersectionObserver((entries) => setNear(entries.at(-1).isIntersecting), { rootMargin: "60% 0px" });
    observer.observe(place.current);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (near) height.current = place.current.offsetHeight;
  });
  const wanted = height.current || Math.ceil(guests.length / columns) * (rows ? ROW_PX : CARD_PX);
  return html`<div ref=${place} class="block" style=${{ minHeight: near ? "" : `${wanted}px` }}>
    ${near && html`<ul class=${rows ? "cards rows" : "cards"} aria-label=${words}>${guests.map((guest) => {
      const [cpu, used] = state.figures.get(`figures/${guest.host}`)?.guests[guest.uuid] || [];
      const stale = state.host.get(`host/${guest.host}`)?.state !== "connected";
      const arriving = arrives(guest);
      return html`<${Card} key=${`${guest.host}/${guest.uuid}`} guest=${guest} cpu=${cpu} memory=${used} stale=${stale} withHost=${withHost} job=${arriving ? null : jobOf(guest.uuid)}
        isChosen=${chosen.has(guest.uuid)} arriving=${arriving} isDragged=${drag.guests.includes(guest)} draggable=${!arriving && Boolean(actionOf("migrate")) && !refusal("migrate", guest)} />`;
    })}</ul>`}
  </div>`;
}

function Cards({ guests, rows, withHost, label: words }) {
  const place = useRef(null);
  const [columns, setColumns] = useState(4);
  useEffect(() => {
    const count = () => setColumns(Math.max(1, Math.floor((place.current.clientWidth + GAP_PX) / (WIDTH_PX + GAP_PX))));
    const observer = new ResizeObserver(count);
    observer.observe(place.current);
    return () => observer.disconnect();
  }, []);
  const size = rows ? 4 * BLOCK_ROWS : columns * BLOCK_ROWS;
  const blocks = Array.from({ length: Math.ceil(guests.length / size) }, (_each, index) => guests.slice(index * size, (index + 1) * size));
  return html`<div ref=${place} class="blocks">${blocks.map((some, index) => html`<${Block} key=${index} guests=${some} columns=${rows ? 1 : columns} rows=${rows} withHost=${withHost} label=${words} />`)}
    ${!guests.length && html`<p class="quiet none">No guests.</p>`}</div>`;
}

const collator = new Intl.Collator(undefined, { numeric: true });
const byName = (one, other) => collator.compare(one.name, other.name);

function matches(guest, words, wanted, tag) {
  if (wanted && guest.state !== wanted) return false;
  if (tag && !guest.tags.includes(tag)) return false;
  if (!words.length) return true;
  const text = [guest.name, guest.title, guest.host, ...guest.tags].join("\n").toLowerCase();
  return words.every((word) => text.includes(word));
}

function grouped(guests, group, filtered) {
  const groups = new Map();
  const add = (key, guest) => (groups.has(key) ? groups.get(key).push(guest) : groups.set(key, [guest]));
  if (group === "host" && !filtered) for (const host of state.host.values()) groups.set(host.name, []);
  for (const guest of guests) {
    const keys = group === "host" ? [guest.host] : group === "state" ? [STATES[guest.state]] : guest.tags.length ? guest.tags : ["No tag"];
    keys.forEach((key) => add(key, guest));
  }
  return [...groups].sort(([one], [other]) => collator.compare(one, other));
}

function hostItems(host) {
  const busy = jobOfHost(host.name) ? "a job is at work on it" : host.state !== "connected" ? "it cannot be reached" : "";
  const item = (name, refused) => ({ label: `${label(name)}${quick(name) ? "" : " …"}`, danger: actionOf(name).destructive, refusal: busy || (may(name, { host: host.name }) ? refused : `you may not ${label(name).toLowerCase()}${VOLUMES.includes(name) ? "s there" : " it"}`), run: () => (quick(name) ? act(name, { hosts: [host.name] }) : askFor(name, { hosts: [host.name] })) });
  const known = "maintenance" in host;
  const volumes = VOLUMES.filter(actionOf).map((name) => item(name, ""));
  const maintenance = [
    ...(actionOf("drain") ? [item("drain", known && host.maintenance ? "it is drained already" : "")] : []),
    ...(actionOf("undrain") ? [item("undrain", known && !host.maintenance ? "it is not drained" : "")] : []),
  ];
  return [...maintenance, ...(maintenance.length && volumes.length ? [{ line: true }] : []), ...volumes];
}

export function HostButtons({ host }) {
  const items = hostItems(host);
  if (!items.length) return null;
  return html`<button class="plain more" aria-haspopup="menu" aria-label=${`Actions of ${host.name}`} onClick=${(event) => openMenu(event.currentTarget, `Actions of ${host.name}`, items)}>⋯</button>`;
}

export function Maintenance({ host }) {
  const job = jobOfHost(host.name);
  return html`${host.maintenance && html`<p class="notice" role="status">In maintenance: ${readable(host.maintenance)}</p>`}
    ${job && html`<p class="notice busy" role="status">${label(job.action)}: <a href=${`#/jobs/${job.id}`}>${job.state}</a> <button class="small" onClick=${() => cancel(job)}>Cancel</button></p>`}`;
}

function Group({ title, guests, group, rows }) {
  const host = group === "host" && state.host.get(`host/${title}`);
  const over = host && drag.over === title ? " over" : "";
  const verdict = host && drag.refusals ? (drag.refusals.get(title) ? " refuses" : " takes") : "";
  return html`<section class=${`group${over}${verdict}`} aria-label=${`${host ? "Host" : "Group"} ${title}`} data-group=${title} ...${host ? dropOn(title) : {}}>
    <header class="group-head">
      <h2>${host ? html`<a href=${hostLink(title)} draggable=${false}>${title}</a>` : shown(title)} <span class="quiet count">${plural(guests.length, "guest")}</span>${host && html` <${HostButtons} host=${host} />`}</h2>
      ${host && (drag.guests.length ? html`<${Verdict} name=${title} />` : html`<${HostFacts} host=${host} />`)}
    </header>
    ${host && html`<${Maintenance} host=${host} /><${Expiry} host=${host} />`}
    <${Cards} key=${`${group}/${rows}`} guests=${guests} rows=${rows} withHost=${group !== "host"} label=${`Guests of ${title}`} />
  </section>`;
}

function Selection({ listed }) {
  const guests = chosenGuests();
  if (!guests.length) return null;
  const clear = () => {
    chosen.clear();
    changed();
  };
  const all = () => {
    listed.forEach((guest) => chosen.add(guest.uuid));
    changed();
  };
  const button = (name) => {
    const { able, why } = possible(name, guests);
    return actionOf(name) && html`<button disabled=${!able.length} title=${why} onClick=${() => doTo(name, guests)}>${label(name)}</button>`;
  };
  return html`<div class="selection" role="region" aria-label="Chosen guests"><b>${plural(guests.length, "guest")} chosen</b>
    ${["start", "shutdown", "migrate"].map(button)}
    <button aria-haspopup="menu" onClick=${(event) => openMenu(event.currentTarget, "Actions of the chosen guests", guestItems(guests))}>More ⋯</button>
    <button class="plain" onClick=${all}>All ${listed.length} shown</button><button class="plain" onClick=${clear}>None</button></div>`;
}

export function Overview({ filter, setFilter }) {
  const { text, wanted, group, tag } = filter;
  const guests = [...state.guest.values()];
  const count = new Set(guests.map((guest) => guest.uuid)).size; // one that migrates is on two hosts
  const words = useMemo(() => text.toLowerCase().split(/\s+/).filter(Boolean), [text]);
  const found = guests.filter((guest) => matches(guest, words, wanted, tag)).sort(byName);
  const filtered = words.length > 0 || wanted !== "" || tag !== "";
  const running = guests.filter((guest) => guest.state === "running").length;
  const away = [...state.host.values()].filter((host) => host.state === "unreachable").length;
  const tags = [...new Set(guests.flatMap((guest) => guest.tags))].sort(collator.compare);
  const [rows, setRows] = useState(localStorage.getItem("corral-view") === "rows");
  const show = (as) => {
    localStorage.setItem("corral-view", as);
    setRows(as === "rows");
  };
  const set = (name) => (event) => setFilter({ ...filter, [name]: event.target.value });
  return html`<h1 class="hidden">Hosts and guests</h1>
    <div class="tools" role="search">
      <label class="grow"><span class="hidden">Search guests by name, title, host or tag</span>
        <input id="search" type="search" placeholder="Search name, host, tag ( / )" value=${text} onInput=${set("text")} /></label>
      <label>State <select id="state" value=${wanted} onChange=${set("wanted")}>
        <option value="">All</option>
        ${Object.entries(STATES).filter(([value]) => value !== "arriving").map(([value, word]) => html`<option value=${value}>${word}</option>`)}</select></label>
      ${tags.length > 0 && html`<label>Tag <select id="tag" value=${tag} onChange=${set("tag")}><option value="">All</option>${tags.map((each) => html`<option value=${each}>${shown(each)}</option>`)}</select></label>`}
      <label>Group by <select id="group" value=${group} onChange=${set("group")}>
        <option value="host">Host</option><option value="tag">Tag</option><option value="state">State</option></select></label>
      ${actionOf("rebalance") && html`<button disabled=${!may("rebalance", { everywhere: true })} title=${may("rebalance", { everywhere: true }) ? "" : "you may not move the guests of all hosts"} onClick=${() => askFor("rebalance", {})}>Rebalance …</button>`}
      ${actionOf("create") && html`<button class="primary create" onClick=${() => openCreate()}>Create guest</button>`}
    </div>
    <div class="title summary"><p role="status">${filtered ? `${found.length} of ${plural(count, "guest")}` : `${plural(state.host.size, "host")}, ${plural(count, "guest")}, ${running} running`}${away > 0 && html`, <strong class="bad">${plural(away, "host")} unreachable</strong>`}</p>
      <span class="buttons switch" role="group" aria-label="Show guests as"><button class="small" aria-pressed=${rows ? "false" : "true"} onClick=${() => show("cards")}>Cards</button><button class="small" aria-pressed=${rows ? "true" : "false"} onClick=${() => show("rows")}>List</button></span></div>
    ${grouped(found, group, filtered).map(([title, members]) => html`<${Group} key=${`${group}/${title}`} title=${title} guests=${members} group=${group} rows=${rows} />`)}
    ${filtered && !found.length && html`<p class="empty">No guest matches. <button onClick=${() => setFilter({ ...filter, text: "", wanted: "", tag: "" })}>Show all</button></p>`}
    <${Selection} listed=${found} /><${Dock} group=${group} />`;
}
