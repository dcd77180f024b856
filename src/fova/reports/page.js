"use strict";
// Everything on the page can be read without this script. It lets tables be sorted, shows the values under a
// crosshair, hides series, zooms, saves charts as SVG and CSV, copies commands, and opens what is folded when the
// page is printed.

// --- Small parts ---

const SVG = "http://www.w3.org/2000/svg";
const shown = (value) =>
  value.toLocaleString("en", Math.abs(value) < 1 ? { maximumSignificantDigits: 3 } : { maximumFractionDigits: 1 });

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function makeButton(words, label, press) {
  const button = make("button", { type: "button", class: "tool", "aria-label": label }, words);
  button.addEventListener("click", press);
  return button;
}

// --- Tables ---

const missingLast = (one, other) => Number.isNaN(one) - Number.isNaN(other);

function sortBy(table, column, direction) {
  const value = (row) => row.cells[column].dataset.value;
  const isText = [...table.tBodies[0].rows].some((row) => value(row) && Number.isNaN(Number(value(row))));
  const number = (row) => (value(row) === "" ? NaN : Number(value(row)));
  const compare = isText
    ? (one, other) => direction * value(one).localeCompare(value(other), undefined, { numeric: true })
    : (one, other) => missingLast(number(one), number(other)) || direction * (number(one) - number(other));
  table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
}

function arrange(table, column, order) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head) => head.removeAttribute("aria-sort"));
  heads[column].setAttribute("aria-sort", order);
  sortBy(table, column, order === "ascending" ? 1 : -1);
}

function makeSortable(table) {
  const announcement = make("p", { class: "announcement", role: "status" });
  table.parentElement.after(announcement);
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = make("button", { type: "button" }, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      // The first press shows the largest figures, or the first letters of the alphabet.
      const [first, second] = column === 0 ? ["ascending", "descending"] : ["descending", "ascending"];
      const order = head.getAttribute("aria-sort") === first ? second : first;
      arrange(table, column, order);
      announcement.textContent = `sorted by ${button.textContent}, ${order}`;
    });
  });
}

// --- Commands ---

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make("textarea", { readonly: "", class: "announcement" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

function makeCopyable(command) {
  const said = make("span", { role: "status", class: "said" });
  const button = makeButton("Copy", "Copy this command", async () => {
    await copy(command.innerText.trim());
    said.textContent = "copied";
    setTimeout(() => (said.textContent = ""), 2000);
  });
  command.after(make("div", { class: "tools" }, button, said));
}

// --- Charts: numbers and places ---

const numbers = (text) => (text === undefined ? null : text.split(" ").map(Number));

class Scale {
  constructor([first, last, atFirst, atLast]) {
    Object.assign(this, { first, last, atFirst, atLast });
  }
  at(value) {
    return this.atFirst + ((value - this.first) / (this.last - this.first)) * (this.atLast - this.atFirst);
  }
  value(place) {
    return this.first + ((place - this.atFirst) / (this.atLast - this.atFirst)) * (this.last - this.first);
  }
  over(first, last) {
    return new Scale([first, last, this.atFirst, this.atLast]);
  }
}

function ticks(first, last, most) {
  const least = (last - first) / most;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((each) => each >= least);
  const found = [];
  for (let i = Math.ceil(first / step - 1e-9); i * step <= last + 1e-9 * step; i++) found.push(i * step);
  return found;
}

// The part of a curve between two places, with its ends where it enters and leaves.
function between(x, y, first, last) {
  const points = [];
  for (let i = 0; i < x.length; i++) {
    for (const edge of [first, last]) {
      if (i && (x[i - 1] < edge) !== (x[i] < edge) && x[i] !== edge && x[i - 1] !== edge) {
        points.push([edge, y[i - 1] + ((edge - x[i - 1]) / (x[i] - x[i - 1])) * (y[i] - y[i - 1])]);
      }
    }
    if (x[i] >= first && x[i] <= last) points.push([x[i], y[i]]);
  }
  return points.sort((one, other) => one[0] - other[0]);
}

// --- Charts: what a reader can do with one ---

// What the reader chose stays when a page is renewed: hidden series and the stretch that is shown, by chart.
const choices = new Map();

class Interactive {
  constructor(figure, chart) {
    Object.assign(this, { figure, chart, title: chart.getAttribute("aria-label").split(". ")[0] });
    const place = `${figure.closest("section")?.id ?? ""} ${this.title}`;
    if (!choices.has(place)) choices.set(place, { hidden: new Set(), stretch: null });
    this.choice = choices.get(place);
    this.home = chart.innerHTML;
    this.cursor = null;
    if ("across" in chart.dataset) {
      this.across = new Scale(numbers(chart.dataset.across));
      this.up = new Scale(numbers(chart.dataset.up));
    }
    this.collect();
    this.makeLegend();
    this.makeTools();
    if (this.across) this.makeCrosshair();
    this.draw();
  }

  collect() {
    this.series = [...this.chart.querySelectorAll("[data-x]")].map((mark) => ({
      mark,
      key: mark.dataset.series,
      label: mark.dataset.label,
      faint: mark.classList.contains("faint"),
      ...Object.fromEntries(["x", "y", "low", "high"].map((name) => [name, numbers(mark.dataset[name])])),
    }));
  }

  get visible() {
    return this.series.filter((each) => !this.choice.hidden.has(each.key));
  }

  get zooms() {
    return "zoom" in this.chart.dataset;
  }

  // --- The legend ---

  makeLegend() {
    this.figure.querySelectorAll(".legend li").forEach((entry) => {
      const key = entry.dataset.key;
      if (!this.chart.querySelector(`[data-series="${CSS.escape(key)}"]`)) return;
      const button = make("button", { type: "button", "aria-pressed": "true" }, ...entry.childNodes);
      entry.append(button);
      const show = () => button.setAttribute("aria-pressed", String(!this.choice.hidden.has(key)));
      button.addEventListener("click", () => {
        if (!this.choice.hidden.delete(key)) this.choice.hidden.add(key);
        show();
        this.draw();
      });
      show();
    });
  }

  // --- Buttons ---

  makeTools() {
    const tools = make("div", { class: "tools", role: "group", "aria-label": `Tools for ${this.title}` });
    if (this.zooms) {
      tools.append(
        makeButton("Zoom in", `Zoom in: ${this.title}`, () => this.zoom(0.5)),
        makeButton("Zoom out", `Zoom out: ${this.title}`, () => this.zoom(2)),
        makeButton("Show all", `Show all: ${this.title}`, () => this.stretch(null)),
      );
    }
    tools.append(
      makeButton("Save SVG", `Save SVG: ${this.title}`, () => this.save("svg", "image/svg+xml", this.picture())),
      makeButton("Save CSV", `Save CSV: ${this.title}`, () => this.save("csv", "text/csv", this.table())),
    );
    (this.figure.querySelector(".plot") ?? this.chart).after(tools);
  }

  // --- Zoom ---

  zoom(factor) {
    const [from, to] = [this.across.first, this.across.last];
    const [first, last] = this.choice.stretch ?? [from, to];
    const width = Math.min(factor * (last - first), to - from);
    const start = (this.cursor ?? (first + last) / 2) - width / 2;
    const inside = Math.min(Math.max(start, from), to - width);
    this.stretch([inside, inside + width]);
  }

  stretch(wanted) {
    const all = wanted && wanted[0] <= this.across.first && wanted[1] >= this.across.last;
    const tiny = wanted && wanted[1] - wanted[0] < 1e-6 * (this.across.last - this.across.first);
    if (!tiny) this.choice.stretch = all ? null : wanted;
    this.draw();
  }

  // Draws the chart anew where something is hidden or only a stretch is shown, else as it was written.
  draw() {
    this.chart.innerHTML = this.home;
    this.collect();
    this.view = { across: this.across, up: this.up };
    if (this.zooms && this.visible.length && (this.choice.stretch || this.choice.hidden.size)) this.redraw();
    for (const mark of this.chart.querySelectorAll("[data-series]")) {
      mark.classList.toggle("off", this.choice.hidden.has(mark.dataset.series));
    }
    if (this.across) this.point(this.cursor);
  }

  redraw() {
    const [first, last] = this.choice.stretch ?? [this.across.first, this.across.last];
    const inside = (each) => [each.y, each.low, each.high].filter(Boolean).flatMap((y) => between(each.x, y, first, last));
    const values = this.visible.flatMap(inside).map(([, y]) => y);
    const levels = [...this.chart.querySelectorAll("[data-value]")];
    const told = levels.filter((level) => !this.choice.hidden.has(level.dataset.series)).map((l) => Number(l.dataset.value));
    if (!this.choice.stretch) values.push(...told);
    let [low, high] = [Math.min(...values), Math.max(...values)];
    if (low === high) [low, high] = [low - 0.5, high + 0.5];
    const across = this.across.over(first, last);
    const up = this.up.over(low - 0.04 * (high - low), high + 0.04 * (high - low));
    this.view = { across, up };
    const place = ([x, y]) => `${across.at(x).toFixed(1)} ${up.at(y).toFixed(1)}`;
    const bands = [...this.chart.querySelectorAll(".band")];
    for (const { mark, key, x, y, low: below, high: above } of this.series) {
      mark.querySelectorAll("circle").forEach((circle, i) => {
        circle.setAttribute("cx", across.at(x[i]));
        circle.setAttribute("cy", up.at(y[i]));
        circle.classList.toggle("off", x[i] < first || x[i] > last);
      });
      const points = between(x, y, first, last);
      mark.querySelector("path").setAttribute("d", points.length ? `M${points.map(place).join("L")}` : "M0 0");
      const band = below && bands.find((each) => each.dataset.series === key);
      if (band) {
        const outline = [...between(x, above, first, last), ...between(x, below, first, last).reverse()];
        band.setAttribute("d", outline.length ? `M${outline.map(place).join("L")}Z` : "M0 0");
      }
    }
    for (const level of levels) {
      const value = Number(level.dataset.value);
      level.setAttribute("d", `M${across.atFirst} ${up.at(value).toFixed(1)}H${across.atLast}`);
      level.classList.toggle("out", value < up.first || value > up.last);
    }
    this.drawTicks(across, up);
  }

  drawTicks(across, up) {
    const text = (words, attributes) => `<text ${attributes}>${words}</text>`;
    const rows = ticks(up.first, up.last, 6).map((tick) => {
      const y = up.at(tick).toFixed(1);
      const label = text(tick.toLocaleString("en", { maximumSignificantDigits: 6 }),
        `x="${across.atFirst - 6}" y="${Number(y) + 4.5}" text-anchor="end"`);
      return `<path class="grid" d="M${across.atFirst} ${y}H${across.atLast}"></path>${label}`;
    });
    const columns = ticks(across.first, across.last, 5).map((tick) =>
      text(tick.toLocaleString("en", { maximumSignificantDigits: 6 }),
        `x="${across.at(tick).toFixed(1)}" y="${this.up.atFirst + 18}" text-anchor="middle"`));
    this.chart.querySelector(".ticks").innerHTML = rows.join("") + columns.join("");
  }

  // --- The crosshair ---

  makeCrosshair() {
    const keys = this.zooms ? "Arrow keys show the values, plus and minus zoom, 0 shows all." : "Arrow keys show the values.";
    const plot = make("div", { class: "plot", tabindex: "0", role: "group", "aria-label": `${this.title}. ${keys}` });
    this.chart.replaceWith(plot);
    this.readout = make("p", { class: "readout", role: "status" });
    plot.append(this.chart, this.readout);
    plot.after(...this.figure.querySelectorAll(":scope > .tools"));
    const place = (event) => {
      const box = this.chart.getBoundingClientRect();
      const scale = this.chart.viewBox.baseVal.width / box.width;
      return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    };
    let from = null;
    this.chart.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      this.point(this.nearest(this.view.across.value(x)), this.view.up.value(y));
      if (from !== null && this.zooms) this.mark("selection", `M${from} ${this.up.atLast}V${this.up.atFirst}H${x}V${this.up.atLast}Z`);
    });
    this.chart.addEventListener("pointerleave", () => {
      if (from === null && document.activeElement !== plot) this.point(null);
    });
    this.chart.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      [from] = place(event);
      this.chart.setPointerCapture(event.pointerId);
    });
    const release = (event) => {
      const [to] = place(event);
      const ends = from === null ? null : [from, to].sort((a, b) => a - b);
      from = null;
      this.chart.querySelector(".selection")?.remove();
      if (event.type === "pointerup" && ends && this.zooms && ends[1] - ends[0] > 8) {
        const inside = ends.map((end) => this.view.across.value(end));
        this.stretch([Math.max(this.across.first, inside[0]), Math.min(this.across.last, inside[1])]);
      }
    };
    this.chart.addEventListener("pointerup", release);
    this.chart.addEventListener("pointercancel", release);
    this.chart.addEventListener("dblclick", () => this.zooms && this.stretch(null));
    plot.addEventListener("keydown", (event) => this.press(event));
    plot.addEventListener("blur", () => this.point(null));
  }

  press(event) {
    const places = this.places();
    const at = places.indexOf(this.cursor);
    const last = places.length - 1;
    const moves = { ArrowLeft: at < 0 ? last : Math.max(0, at - 1), ArrowRight: Math.min(last, at + 1), Home: 0, End: last };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in moves) this.point(places[moves[event.key]] ?? null);
    else if (event.key === "Escape") this.point(null);
    else if (this.zooms && "+=".includes(event.key)) this.zoom(0.5);
    else if (this.zooms && event.key === "-") this.zoom(2);
    else if (this.zooms && event.key === "0") this.stretch(null);
    else return;
    event.preventDefault();
  }

  // The places that have a value, from left to right.
  places() {
    const { first, last } = this.view.across;
    const all = new Set(this.visible.flatMap((each) => each.x).filter((x) => x >= first && x <= last));
    return [...all].sort((one, other) => one - other);
  }

  nearest(x) {
    return this.places().reduce((best, each) => (best === null || Math.abs(each - x) < Math.abs(best - x) ? each : best), null);
  }

  mark(name, d) {
    let path = this.chart.querySelector(`.${name}`);
    if (!path) {
      path = document.createElementNS(SVG, "path");
      path.setAttribute("class", name);
      this.chart.append(path);
    }
    path.setAttribute("d", d);
  }

  // Shows the values at a place. Of thin lines only the one nearest to `height` is named.
  point(x, height = null) {
    this.cursor = x;
    this.readout.replaceChildren();
    if (x === null) {
      this.chart.querySelector(".crosshair")?.remove();
      return;
    }
    this.mark("crosshair", `M${this.view.across.at(x).toFixed(1)} ${this.up.atLast}V${this.up.atFirst}`);
    const here = this.visible
      .map((each) => ({ ...each, i: each.x.indexOf(x) }))
      .filter((each) => each.i >= 0);
    const away = (each) => Math.abs(each.y[each.i] - (height ?? each.y[each.i]));
    const thin = here.filter((each) => each.faint).sort((one, other) => away(one) - away(other)).slice(0, 1);
    const named = [...here.filter((each) => !each.faint), ...thin];
    this.readout.append(make("b", {}, `${shown(x)} ${this.chart.dataset.unit}`));
    for (const { label, y, low, high, i } of named) {
      const value = this.zooms ? shown(y[i]) : `${(100 * y[i]).toFixed(0)}%`;
      const interval = low ? ` [${shown(low[i])}, ${shown(high[i])}]` : "";
      this.readout.append(make("span", {}, ` ${label}: ${value}${interval}`));
    }
  }

  // --- Downloads ---

  table() {
    if ("table" in this.chart.dataset) return rows(JSON.parse(this.chart.dataset.table));
    const columns = [this.chart.dataset.unit];
    for (const each of this.series) columns.push(each.label, ...(each.low ? [`${each.label} low`, `${each.label} high`] : []));
    const all = [...new Set(this.series.flatMap((each) => each.x))].sort((one, other) => one - other);
    const lines = all.map((x) => [
      x,
      ...this.series.flatMap(({ x: own, y, low, high }) => {
        const i = own.indexOf(x);
        return (low ? [y, low, high] : [y]).map((values) => (i < 0 ? "" : values[i]));
      }),
    ]);
    return rows([columns, ...lines]);
  }

  // The chart as it is shown, with its legend below it and all colours written out.
  picture() {
    const { width, height } = this.chart.viewBox.baseVal;
    const entries = [...(this.figure.querySelector(".legend") ?? this.figure.closest("section").querySelector(".many-legend .legend"))
      .children].filter((entry) => !this.choice.hidden.has(entry.dataset.key));
    const whole = height + 20 * entries.length + 8;
    const copied = frozen(this.chart);
    const outer = document.createElementNS(SVG, "svg");
    for (const [key, value] of Object.entries({ viewBox: `0 0 ${width} ${whole}`, width, height: whole })) outer.setAttribute(key, value);
    const paper = document.createElementNS(SVG, "rect");
    for (const [key, value] of Object.entries({ width, height: whole, fill: getComputedStyle(document.body).backgroundColor })) paper.setAttribute(key, value);
    const inner = document.createElementNS(SVG, "g");
    inner.append(...copied.childNodes);
    outer.append(paper, inner);
    const look = getComputedStyle(this.chart.querySelector("text") ?? this.chart);
    entries.forEach((entry, i) => {
      const row = document.createElementNS(SVG, "g");
      row.setAttribute("transform", `translate(10 ${height + 20 * i})`);
      const words = document.createElementNS(SVG, "text");
      for (const [key, value] of Object.entries({ x: 36, y: 10.5, fill: look.fill, "font-size": "13px", "font-family": "sans-serif" })) words.setAttribute(key, value);
      words.textContent = entry.innerText.trim();
      row.append(...frozen(entry.querySelector("svg")).childNodes, words);
      outer.append(row);
    });
    return new XMLSerializer().serializeToString(outer);
  }

  save(ending, type, content) {
    const address = URL.createObjectURL(new Blob([content], { type }));
    const name = `${document.title} ${this.title}`.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
    const link = make("a", { href: address, download: `${name}.${ending}` });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }
}

const quoted = (cell) => (/[",\n]/.test(cell) ? `"${String(cell).replaceAll('"', '""')}"` : String(cell ?? ""));
const rows = (table) => table.map((row) => row.map(quoted).join(",")).join("\n") + "\n";

// A copy of what is shown that looks the same without this page's style.
const LOOK = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "font-size", "font-family"];
function frozen(original) {
  const copied = original.cloneNode(true);
  const parts = [...original.querySelectorAll("*")];
  const copies = [...copied.querySelectorAll("*")];
  parts.forEach((part, i) => {
    const look = getComputedStyle(part);
    if (look.display === "none" || part.matches(".crosshair, .selection")) copies[i].remove();
    else for (const name of LOOK) copies[i].setAttribute(name, look.getPropertyValue(name));
    for (const { name } of [...copies[i].attributes]) if (name.startsWith("data-") || name === "class") copies[i].removeAttribute(name);
  });
  return copied;
}

// --- The page ---

function enliven(part) {
  part.querySelectorAll("table.sortable").forEach(makeSortable);
  part.querySelectorAll("pre.command").forEach(makeCopyable);
  part.querySelectorAll("figure svg.chart").forEach((chart) => new Interactive(chart.closest("figure"), chart));
}

enliven(document);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => (part.open = true)));
