// Loads the page, and again when a part did not arrive: a browser gives up what it loads when a network interface of its
// machine comes or goes, and never tries again.

const RETRY_MS = 1000;

const loaded = new Promise((done) => addEventListener("load", done));

async function styled() {
  await loaded;
  const missing = [...document.querySelectorAll("link[rel=stylesheet]")].find((link) => !link.sheet);
  if (missing) throw new Error(`${missing.href} did not arrive`);
}

Promise.all([import("/static/page.js"), styled()]).catch((error) => {
  console.warn(error);
  setTimeout(() => location.reload(), RETRY_MS);
});
