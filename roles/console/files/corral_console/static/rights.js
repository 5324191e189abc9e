// What the user may, as far as the page can tell: it greys by it. The server decides.

let me = { rules: [], may: [] };

export function setUser(found) {
  me = { may: [], ...found, rules: found?.rules || [{ may: found?.may || [] }] };
}

const listed = (value) => (Array.isArray(value) ? value : [value]);

function matches(pattern, text) {
  const source = String(pattern).replace(/[.+^${}()|[\]\\]/g, "\\$&").replace(/\*/g, ".*").replace(/\?/g, ".");
  return new RegExp(`^${source}$`).test(text);
}

const one = (patterns, texts) => patterns === undefined || listed(patterns).some((pattern) => texts.some((text) => matches(pattern, text)));

// `about`: a guest, or {host: name}.
export function may(action, { guest, host } = {}) {
  return me.rules.some((rule) => {
    if (!listed(rule.may).some((word) => word === "*" || word === action)) return false;
    return (!guest || (one(rule.guests, [guest.name]) && one(rule.tags, guest.tags))) && (!host || one(rule.hosts, [host]));
  });
}
