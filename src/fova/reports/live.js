
// A page of `fova watch` asks the server that sent it for news and takes over what has changed. What the reader
// has done stays: the place on the page, what is unfolded, how tables are sorted, which series are shown.

const liveWords = document.getElementById("live");
let newest = document.body.dataset.version;

function unfolded() {
  return [...document.querySelectorAll("main details")].map((part) => part.open);
}

function sorting() {
  return [...document.querySelectorAll("table.sortable")].map((table) => {
    const head = [...table.tHead.rows[0].cells].find((each) => each.hasAttribute("aria-sort"));
    return head && [head.textContent, head.getAttribute("aria-sort")];
  });
}

function sortAgain(table, heading, order) {
  // A column appears with its first figure, so its place may have changed.
  const column = [...table.tHead.rows[0].cells].findIndex((head) => head.textContent === heading);
  if (column >= 0) arrange(table, column, order);
}

const stops = () => [...document.querySelectorAll("main a, main button, main summary, main [tabindex]")];

function takeOver(fresh) {
  const [open, sorted, focus] = [unfolded(), sorting(), stops().indexOf(document.activeElement)];
  const [x, y] = [scrollX, scrollY];
  for (const part of ["header", "main"]) document.querySelector(part).replaceWith(fresh.querySelector(part));
  document.title = fresh.title;
  enliven(document.querySelector("main"));
  document.querySelectorAll("main details").forEach((part, i) => (part.open = open[i] ?? part.open));
  document.querySelectorAll("table.sortable").forEach((table, i) => {
    if (sorted[i]) sortAgain(table, ...sorted[i]);
  });
  if (focus >= 0) stops()[focus]?.focus({ preventScroll: true });
  scrollTo(x, y);
}

async function renew() {
  if (document.hidden) return;
  try {
    const answer = await fetch(location.href, { cache: "no-store", headers: { "If-None-Match": `"${newest}"` } });
    if (answer.status === 304) {
      liveWords.textContent = "";
      return;
    }
    if (!answer.ok) throw new Error(answer.statusText);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    newest = fresh.body.dataset.version;
    takeOver(fresh);
    liveWords.textContent = "";
  } catch {
    liveWords.textContent = "fova watch does not answer. This page shows what was known last.";
  }
}

setInterval(renew, 1000 * Number(document.body.dataset.seconds));
addEventListener("visibilitychange", renew);
