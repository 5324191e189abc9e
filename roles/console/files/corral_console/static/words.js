// How values are written for people.

export const STATES = { running: "Running", paused: "Paused", shutdown: "Off", crashed: "Crashed", unknown: "Unknown", arriving: "Arriving" };

export function memory(mib) {
  if (mib === undefined || mib === null) return "unknown";
  return mib >= 1024 ? `${+(mib / 1024).toFixed(1)} GiB` : `${mib} MiB`;
}

export function bytes(count) {
  if (count === undefined || count === null) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let index = 0;
  for (; count >= 1024 && index < units.length - 1; index++) count /= 1024;
  return `${+count.toFixed(1)} ${units[index]}`;
}

// What a disk takes of its host's storage. libvirt tells of one that runs how far it was written since it was started: 0 says
// that nobody knows. The file of a format other than raw grows with what is in it, so its length tells.
export function diskUsed(disk) {
  return bytes((disk.format === "raw" ? 0 : disk.physical_bytes) || disk.allocation_bytes || undefined) || "not known";
}

export function ago(seconds) {
  const passed = Math.max(0, Math.round(Date.now() / 1000 - seconds));
  if (passed < 60) return `${passed} s ago`;
  if (passed < 3600) return `${Math.floor(passed / 60)} min ago`;
  if (passed < 86400) return `${Math.floor(passed / 3600)} h ago`;
  return `${Math.floor(passed / 86400)} days ago`;
}

const OLD_S = 7 * 86400; // a snapshot is no backup

export function snapshotsOf({ snapshots }) {
  if (!snapshots?.count) return null;
  const { count, oldest_s: oldest } = snapshots;
  return { words: `${count}${oldest ? `, oldest ${ago(oldest)}` : ""}`, old: Boolean(oldest) && Date.now() / 1000 - oldest > OLD_S };
}

// When a guest was backed up and proven last: `late` if one is older than its tags (backup-24h, proven-7d) allow.
export function backupOf({ backup }) {
  if (!backup) return null;
  const parts = [[backup.at_s, backup.every_s, "", "none"], [backup.proven_s, backup.proven_every_s, "proven ", "not proven"]];
  const found = parts.filter(([at, every]) => at !== null || every !== null);
  const isLate = ([at, every]) => every !== null && (at === null || Date.now() / 1000 - at > every);
  const say = (part) => (part[0] === null ? part[3] : `${part[2]}${ago(part[0])}${isLate(part) ? " (late)" : ""}`);
  return found.length ? { words: found.map(say).join(", "), late: found.some(isLate) } : null;
}

// Why a protected guest runs where it does: the last entry of its history that is no migration.
const failover = (history) => history.findLast((one) => one.from && !one.why.startsWith("migrated"));

// How a guest runs again when its host is dead: `bad` if nothing would start it.
export function protectionOf({ ha }) {
  if (!ha) return null;
  const { mode, priority, kept } = ha;
  const by = !kept ? "by nobody, as far as is known: its definition is not kept" : kept.problem ? `but ${kept.problem}` : kept.resource ? `by Pacemaker (${kept.resource})` : "by the playbook recover";
  const last = kept && failover(kept.history);
  return { words: `${mode}, priority ${priority}, ${by}`, bad: !kept || Boolean(kept.problem),
    place: kept?.directory && `${kept.directory}/.corral/guests`, owner: kept?.owner,
    last: last && `${last.at} from ${last.from} to ${last.to}: ${last.why}` };
}

export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

export function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

// A browser's description of itself, for people.
export function browserName(agent) {
  const browser = [["Edg/", "Edge"], ["Firefox/", "Firefox"], ["Chrome/", "Chromium"], ["Safari/", "Safari"]].find(([mark]) => agent.includes(mark));
  const system = ["Android", "iPhone", "iPad", "Windows", "Mac", "Linux"].find((mark) => agent.includes(mark));
  return browser ? `${browser[1]}${system ? ` on ${system}` : ""}` : agent || "unknown";
}

export const guestLink = (guest) => `#/guest/${encodeURIComponent(guest.host)}/${guest.uuid}`;
export const hostLink = (name) => `#/host/${encodeURIComponent(name)}`;

// A name with what nobody can see of it: blanks at its ends or in a row, what has no width or turns the direction of text,
// and the sign that marks them. Names that differ look different.
export function shown(name) {
  const written = String(name).replace(/[^\P{C}]|[^\P{Z} ]|[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\u{e0100}-\u{e01ef}⟨␠]/gu, (letter) => `⟨U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
  return written.replace(/^ +| +$| {2,}/g, (blanks) => "␠".repeat(blanks.length));
}

// Colours and movements of a terminal are left out; what else is no text is shown as a dot.
export function readable(line) {
  return line.replace(/\x1b\[[0-9;?]*[ -/]*[@-~]/g, "").replace(/\x1b\][^\x07\x1b]*(\x07|\x1b\\)?/g, "").replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g, "·");
}
