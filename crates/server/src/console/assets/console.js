// Times of the reader's zone, keys, theme and live updates. Every page works without this file.

const policy = window.trustedTypes?.createPolicy("sluice", { createHTML: (text) => text });
const main = document.getElementById("main");
const byId = (id) => document.getElementById(id);

// Times: the exact UTC time stays in the attribute and is shown on focus and hover.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

function showTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    time.title = time.dateTime;
    time.textContent = format.format(at);
  }
}
showTimes(document);
// Charts and pictures are drawn by the node: it labels them in the reader's zone from the next page on.
document.cookie = `zone=${encodeURIComponent(zone)}; path=/; max-age=31536000; samesite=lax`;
byId("zone").textContent = zone === "UTC" ? "Times in UTC." : `Times in ${zone}; hover for UTC.`;

// Theme: the system's, or the reader's choice.
const themes = ["", "light", "dark"];
function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  byId("theme").textContent = `Theme: ${theme || "system"}`;
}
function nextTheme() {
  const theme = themes[(themes.indexOf(localStorage.getItem("theme") ?? "") + 1) % themes.length];
  localStorage.setItem("theme", theme);
  setTheme(theme);
}
byId("theme").hidden = false;
byId("theme").addEventListener("click", nextTheme);
setTheme(localStorage.getItem("theme") ?? "");

// Keys. They can be turned off, for readers whose own tools use them.
const help = byId("help");
let keysOn = localStorage.getItem("keys") !== "off";
let awaitsPage = false;
byId("keys").hidden = false;
function showKeys() {
  byId("keys").textContent = keysOn ? "Keys: on" : "Keys: off";
}
showKeys();
byId("keys").addEventListener("click", () => {
  keysOn = !keysOn;
  localStorage.setItem("keys", keysOn ? "on" : "off");
  showKeys();
});

const rows = () => [...main.querySelectorAll(".rows tbody tr")];
function moveRow(step) {
  const all = rows();
  if (all.length === 0) return;
  const current = all.findIndex((row) => row.classList.contains("current"));
  const next = Math.min(all.length - 1, Math.max(0, current + step));
  all[current]?.classList.remove("current");
  all[next].classList.add("current");
  (all[next].querySelector("a") ?? all[next].querySelector("input"))?.focus();
}

const acts = {
  "/": () => byId("search").focus(),
  "?": () => help.showModal(),
  g: () => { awaitsPage = true; },
  j: () => moveRow(1),
  k: () => moveRow(-1),
  t: nextTheme,
  x: () => main.querySelector("tr.current input[type=checkbox]")?.click(),
};

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, select, textarea, dialog");
  if (event.key === "Escape" && typing) event.target.blur();
  if (!keysOn || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (awaitsPage) {
    awaitsPage = false;
    document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`)?.click();
    return;
  }
  if (acts[event.key]) {
    event.preventDefault();
    acts[event.key]();
  }
});

// Live: the stream says that something has changed, and the page reads itself again. Rows that are known change in place; if
// the rows differ, or the reader is filling a form, a button offers the new ones.
let shownAt = new Date();
let source;
let busy = false;
let isBehind = false;
const mayReload = () => main.dataset.path !== "";

async function fetchPage() {
  const headers = { accept: "text/html", "sluice-live": "1" };
  const response = await fetch(location.href, { headers, redirect: "error" });
  if (!response.ok) throw new Error(`${response.status}`);
  const text = await response.text();
  const parsed = new DOMParser().parseFromString(policy ? policy.createHTML(text) : text, "text/html");
  return parsed;
}

const isEditing = () =>
  main.querySelector("input:checked, details[open]:not(.code, .points, .more)") !== null ||
  [...main.querySelectorAll("form:not(.filter) input")].some((input) => input === document.activeElement);

function replaceMain(fresh) {
  const next = fresh.getElementById("main");
  if (!next) return;
  main.replaceChildren(...next.childNodes);
  document.querySelector("nav.side").replaceChildren(...fresh.querySelector("nav.side").childNodes);
  showTimes(document);
  bindRefresh();
}

const keyOf = (row) => row.querySelector("a")?.getAttribute("href") ?? row.cells[0].textContent;

function swap(part, other) {
  if (part.innerHTML !== other.innerHTML) part.replaceChildren(...other.childNodes);
}

function swapChart(chart, other) {
  const parts = [".finding", ".plot", ".legend", ".points tbody"];
  const isAlike = parts.every((part) => !chart.querySelector(part) === !other.querySelector(part));
  if (!isAlike) return swap(chart, other);
  for (const part of parts) {
    if (chart.querySelector(part)) swap(chart.querySelector(part), other.querySelector(part));
  }
}

function update(fresh) {
  showTimes(fresh);
  const [before, after] = [rows(), [...fresh.querySelectorAll("#main .rows tbody tr")]];
  const isSame = before.length === after.length && before.every((row, n) => keyOf(row) === keyOf(after[n]));
  document.querySelector("nav.side").replaceChildren(...fresh.querySelector("nav.side").childNodes);
  // Counts have their place whatever the rows do.
  for (const selector of [".facts", ".map", ".state-map", ".stars", ".gate-scroll"]) {
    const [old, other] = [main.querySelectorAll(selector), fresh.querySelectorAll(`#main ${selector}`)];
    old.forEach((part, n) => other[n] && swap(part, other[n]));
  }
  // A chart keeps its table open.
  const charts = fresh.querySelectorAll("#main .chart");
  main.querySelectorAll(".chart").forEach((chart, n) => charts[n] && swapChart(chart, charts[n]));
  const offers = isEditing() || !isSame;
  byId("fresh").hidden = !offers;
  if (offers) return;
  before.forEach((row, n) => {
    if (row.innerHTML === after[n].innerHTML) return;
    [...row.cells].forEach((cell, m) => {
      const other = after[n].cells[m];
      if (other && cell.textContent !== other.textContent) cell.replaceChildren(...other.childNodes);
    });
    row.classList.add("changed");
  });
}

async function refresh(act) {
  if (!mayReload()) return;
  if (busy) {
    isBehind = true;
    return;
  }
  busy = true;
  try {
    act(await fetchPage());
    shownAt = new Date();
    byId("lost").hidden = true;
  } catch {
    lost();
  } finally {
    busy = false;
  }
  // Something changed while the page was on its way.
  if (isBehind) {
    isBehind = false;
    setTimeout(() => refresh(update), 1000);
  }
}

function lost() {
  byId("shown").textContent = format.format(shownAt);
  byId("lost").hidden = false;
  byId("live").textContent = "Not live.";
}

function bindRefresh() {
  byId("refresh")?.addEventListener("click", () => refresh(replaceMain));
}

function listen() {
  source = new EventSource("/api/v1/stream");
  const changed = () => refresh(update);
  source.addEventListener("hello", () => {
    byId("live").textContent = "Live.";
    byId("lost").hidden = true;
  });
  source.addEventListener("jobs", changed);
  source.addEventListener("control", changed);
  source.addEventListener("error", lost);
}

bindRefresh();
// A hidden tab gives its connection back.
document.addEventListener("visibilitychange", () => {
  source?.close();
  if (!document.hidden) {
    listen();
    refresh(update);
  }
});
listen();
