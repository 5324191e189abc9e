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

export function ago(seconds) {
  const passed = Math.max(0, Math.round(Date.now() / 1000 - seconds));
  if (passed < 60) return `${passed} s ago`;
  if (passed < 3600) return `${Math.floor(passed / 60)} min ago`;
  if (passed < 86400) return `${Math.floor(passed / 3600)} h ago`;
  return `${Math.floor(passed / 86400)} days ago`;
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

// Colours and movements of a terminal are left out; what else is no text is shown as a dot.
export function readable(line) {
  return line.replace(/\x1b\[[0-9;?]*[ -/]*[@-~]/g, "").replace(/\x1b\][^\x07\x1b]*(\x07|\x1b\\)?/g, "").replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g, "·");
}
