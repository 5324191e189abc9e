// Loads the page, and again when a part did not arrive: a browser gives up what it loads when a network interface of its
// machine comes or goes, and never tries again.

const RETRY_MS = 1000;
const LONGEST_MS = 60000;
const TRIED = "corral-load-tried"; // in this tab

const loaded = new Promise((done) => addEventListener("load", done));

// One that did not arrive has no rules to read, or none at all.
function arrived(link) {
  try {
    return link.sheet.cssRules.length > 0;
  } catch {
    return false;
  }
}

async function styled() {
  await loaded;
  const missing = [...document.querySelectorAll("link[rel=stylesheet]")].find((link) => !arrived(link));
  if (missing) throw new Error(`${missing.href} did not arrive`);
}

try {
  await Promise.all([import("/static/page.js"), styled()]);
  sessionStorage.removeItem(TRIED);
} catch (error) {
  console.warn(error);
  const tried = Number(sessionStorage.getItem(TRIED));
  sessionStorage.setItem(TRIED, tried + 1);
  setTimeout(() => location.reload(), Math.min(RETRY_MS * 2 ** tried, LONGEST_MS));
}
