// What can be done to guests and hosts: the server's catalogue, what is against an action now, and jobs of it.

import { ask, changed, keepJob, state, subscribe } from "/static/server.js";
import { may } from "/static/rights.js";
import { tell } from "/static/ui.js";
import { plural, readable, shown } from "/static/words.js";

export const ENDED = ["succeeded", "failed", "cancelled", "lost"];
export const active = (job) => !ENDED.includes(job.state);

let catalogue = new Map();

export async function readCatalogue() {
  const found = await ask("/api/actions").catch(() => []);
  catalogue = new Map(found.map((action) => [action.name, action]));
  changed();
}

export const actionOf = (name) => catalogue.get(name);
export const label = (name) => LABELS[name] || catalogue.get(name)?.label || name.replaceAll("_", " ");

const LABELS = {
  start: "Start", shutdown: "Shut down", reboot: "Reboot", reset: "Reset", force_off: "Force off", pause: "Pause", resume: "Resume",
  migrate: "Migrate", rename: "Rename", change: "Change", purge: "Purge", create: "Create guest", drain: "Drain", undrain: "Undrain", rebalance: "Rebalance", create_volume: "Create volume", resize_volume: "Resize volume", delete_volume: "Delete volume", resize: "Resize", clone: "Clone",
};
export const VOLUMES = ["create_volume", "resize_volume", "delete_volume", "drain_pool"]; // of a host, with its pools
const POWER = ["start", "resume", "shutdown", "reboot", "pause"];
const HARD = ["reset", "force_off", "purge"];
const ELSEWHERE = ["create", "console", "query", "list", "import", "host_info"]; // have places of their own
const RUNS = ["running", "paused", "crashed"];
// States in which an action does something, and what to say in others.
const WHEN = {
  start: [["shutdown", "crashed"], "it runs already"],
  resume: [["paused"], "it is not paused"],
  pause: [["running"], "it does not run"],
  shutdown: [["running"], "it does not run"],
  reboot: [["running"], "it does not run"],
  reset: [RUNS, "it is off"],
  force_off: [RUNS, "it is off"],
  rename: [["shutdown"], "it must be off; shut it down first"],
  clone: [["shutdown"], "it must be off; shut it down first"],
};

// Of the newest job first. A check changes nothing, so nothing waits for it.
export function jobOf(uuid) {
  let found = null;
  for (const job of state.job.values()) {
    if (!job.check && active(job) && job.guests?.some((guest) => guest.uuid === uuid)) found = job;
  }
  return found;
}

export function jobOfHost(name) {
  return [...state.job.values()].find((job) => !job.check && active(job) && !job.guests?.length && job.hosts?.includes(name));
}

// Names that no job takes, as the server knows them.
const UNNAMED = /^\.{1,2}$|^.{256,}$|[/\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]/su;

// Why the action cannot be done to the guest now; empty when it can.
export function refusal(name, guest) {
  if (UNNAMED.test(guest.name)) return "no job can name it; rename it on its host: virsh domrename";
  // A copy is a new guest, with a name that is not known yet.
  if (!(name === "clone" ? may("create", { host: guest.host }) : may(name, { guest, anywhere: name === "migrate" }))) return `you may not ${label(name).toLowerCase()} it`;
  const host = state.host.get(`host/${guest.host}`);
  if (host && host.state !== "connected") return `${guest.host} cannot be reached`;
  const job = jobOf(guest.uuid);
  if (job) return `a job is at work on it: ${label(job.action).toLowerCase()}`;
  if (guest.migration) return "it migrates";
  const [states, why] = WHEN[name] || [null, ""];
  return states && !states.includes(guest.state) ? why : "";
}

// Of several guests: those that it can be done to, and why not when there are none.
export function possible(name, guests) {
  const refusals = guests.map((guest) => refusal(name, guest));
  const able = guests.filter((_guest, index) => !refusals[index]);
  return { able, why: able.length ? "" : guests.length === 1 ? refusals[0] : `none of the guests: ${refusals[0]}` };
}

export function guestActions() {
  const known = [...catalogue.values()].filter((action) => action.object === "guest").map((action) => action.name);
  const others = known.filter((name) => ![...POWER, ...HARD, ...ELSEWHERE, "migrate"].includes(name));
  return [POWER, ["migrate", ...others], HARD].map((group) => group.filter((name) => known.includes(name))).filter((group) => group.length);
}

// The job as the server has made it. Raises Refused.
export async function begin(name, { guests = [], hosts = [], values = {}, check = false } = {}) {
  const given = { action: name, arguments: values, check, guests: guests.map((guest) => guest.uuid), hosts };
  const { id } = await ask("/api/jobs", { ...given, confirm: guests.length });
  if (!check) begun.add(id);
  const job = await ask(`/api/jobs/${id}`);
  keepJob(job);
  return job;
}

// How the jobs end that were begun here is told, wherever in the page the user is by then.
const begun = new Set();

subscribe(() => {
  for (const id of begun) {
    const job = state.job.get(id);
    if (!job || active(job)) continue;
    begun.delete(id);
    const what = `${label(job.action)} ${namesOf(job.guests || []) || shown(job.creates || "") || (job.hosts || []).join(", ")}`.trim();
    const bad = job.state !== "succeeded";
    tell(bad ? `${what}: ${job.state}. ${readable(job.error || "").split("\n", 1)[0]}` : `${what}: done.`, { bad, link: `#/jobs/${id}`, word: "Show job" });
  }
});

export const namesOf = (guests) => (guests.length > 3 ? plural(guests.length, "guest") : guests.map((guest) => shown(guest.name)).join(", "));

// Begin it at once, and say so.
export async function act(name, about) {
  const what = about.guests?.length ? namesOf(about.guests) : (about.hosts || []).join(", ");
  try {
    const job = await begin(name, about);
    tell(`${label(name)} ${what}: begun.`, { link: `#/jobs/${job.id}`, word: "Show job" });
    return job;
  } catch (error) {
    tell(`${label(name)} ${what}: ${error.message}`, { bad: true });
    return null;
  }
}

export async function cancel(job) {
  try {
    await ask(`/api/jobs/${job.id}/cancel`, {});
  } catch (error) {
    tell(`Cannot cancel: ${error.message}`, { bad: true });
  }
}

export async function again(job) {
  try {
    const { id } = await ask(`/api/jobs/${job.id}/again`, {});
    if (!job.check) begun.add(id);
    location.hash = `#/jobs/${id}`;
  } catch (error) {
    tell(`Cannot run it again: ${error.message}`, { bad: true });
  }
}
