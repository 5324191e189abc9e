// What the user may, as far as the page can tell: it greys by it. The server decides, by policy.py.

let me = { rules: [], may: [] };

export function setUser(found) {
  me = { may: [], ...found, rules: found?.rules || [{ may: found?.may || [] }] };
}

const listed = (value) => (value === undefined ? [] : Array.isArray(value) ? value : [value]);

// A pattern of a shell, as the server reads it: * ? [abc] [!abc].
function matches(text, pattern) {
  const source = pattern.replace(/\[(!?)(\]?[^\]]*)\]|[^]/g, (part, not, inside) => {
    if (inside !== undefined) return `[${not ? "^" : ""}${inside.replace(/[\\^[\]]/g, "\\$&")}]`;
    return { "*": "[^]*", "?": "[^]" }[part] || part.replace(/[.+^${}()|[\]\\]/, "\\$&");
  });
  try {
    return new RegExp(`^${source}$`, "u").test(text);
  } catch {
    return false; // a range that is none, such as [z-a]
  }
}

// Whether a rule lets them give an option of a module to an action.
export function mayGive(action, option) {
  return me.rules.some((rule) => {
    const words = listed(rule.may);
    if (words.includes("*")) return true;
    return words.includes(action) && ["*", option].some((name) => name in (rule.arguments || {}) || name in (rule.at_most || {}));
  });
}

const one = (patterns, texts) => !patterns.length || patterns.some((pattern) => texts.some((text) => matches(text, pattern)));

// `host`: one that the action names, such as a goal. Without one, it acts where the guest is; `anywhere`: on a host that
// is yet to be chosen; `everywhere`: on all guests and hosts.
export function may(action, { guest, host, anywhere = false, everywhere = false } = {}) {
  return me.rules.some((rule) => {
    if (!listed(rule.may).some((word) => word === "*" || word === action)) return false;
    const [guests, tags, hosts] = [rule.guests, rule.tags, rule.hosts].map(listed);
    if (everywhere) return !guests.length && !tags.length && !hosts.length;
    if (!guest) return host === undefined || (one(hosts, [host]) && !guests.length && !tags.length);
    return one(guests, [guest.name]) && one(tags, guest.tags) && (anywhere || one(hosts, [host ?? guest.host]));
  });
}
