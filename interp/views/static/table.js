"use strict";
// The table of heads: sorting, filtering, evidence on hover, export. A row: [layer, head, labels, ...numbers].
class HeadTable {
  constructor(root, data) {
    Object.assign(this, { root, data, more: false });
    this.find = (selector) => root.querySelector(selector);
    this.sort = { key: data.sort, down: true };
    this.rows = data.rows.map((row, index) => this.build(row, index));
    this.find("[data-filter]").addEventListener("input", () => this.fill());
    this.find("[data-csv]").addEventListener("click", () => Atlas.save("heads.csv", "text/csv", this.csv()));
    this.find("[data-more]")?.addEventListener("change", (event) => this.showAll(event.target.checked));
    this.find("tbody").addEventListener("pointermove", (event) => this.tip(event));
    this.find("tbody").addEventListener("pointerleave", () => Atlas.tip.hide());
    this.find("tbody").addEventListener("click", (event) => this.choose(event.target.closest("tr")));
    document.addEventListener("atlas:head", ({ detail }) => detail.from !== root && this.show(detail.layer, detail.head));
    this.header();
    this.fill();
    root.view = this;
  }

  header() {
    const first = [["head", "head", "Head, by layer"], ["labels", "labels", "Number of labels"]];
    const cells = [...first, ...this.data.columns.filter((column) => this.more || !column[6])];
    const row = Atlas.el("tr");
    for (const [key, short, title, meaning] of cells) {
      const kind = key === "head" ? "name text" : key === "labels" ? "text" : "";
      const button = Atlas.el("button", { type: "button", title: meaning ? `${title}. ${meaning}` : title }, short);
      button.addEventListener("click", () => this.sortBy(key));
      const sorted = this.sort.key === key ? (this.sort.down ? "descending" : "ascending") : "none";
      row.append(Atlas.el("th", { class: kind, scope: "col", "aria-sort": sorted, "data-key": key }, button));
    }
    this.find("thead").replaceChildren(row);
  }

  build([layer, head, labels, ...numbers], index) {
    const row = Atlas.el("tr", { "data-head": `${layer}.${head}` }, Atlas.el("th", { class: "name", scope: "row" }, `L${layer}H${head}`));
    const chips = labels.map(([text, role, evidence]) =>
      Atlas.el("span", { class: `chip ${role}`, "data-evidence": evidence, "aria-label": `${text}: ${evidence}` }, text));
    row.append(Atlas.el("td", { class: "text" }, ...chips));
    numbers.forEach((value, column) => {
      const [, , , , low, high, extra] = this.data.columns[column];
      const text = value != null && low === 0 && high === 1 ? value.toFixed(3) : Atlas.number(value); // shares align at the point
      const cell = Atlas.el("td", { class: value == null ? "none" : "number", hidden: extra ? "" : null }, text);
      if (value != null) cell.style.setProperty("--part", `${Math.round(100 * Math.min(1, Math.max(0, (value - low) / (high - low))))}%`);
      row.append(cell);
    });
    const names = [`l${layer}h${head}`, `${layer}.${head}`, `l${layer}`, ...labels.map(([text]) => text.toLowerCase())];
    return Object.assign(row, { layer, head, labels, numbers, names, index });
  }

  showAll(more) {
    this.more = more;
    for (const row of this.rows) this.data.columns.forEach((column, index) => (row.cells[index + 2].hidden = Boolean(column[6]) && !more));
    this.header();
  }

  sortBy(key) {
    this.sort = { key, down: this.sort.key === key ? !this.sort.down : key !== "head" };
    this.header();
    this.fill();
    this.find(`th[data-key="${CSS.escape(key)}"] button`).focus();
  }

  // Undefined values come last whichever way the rest runs.
  ordered(rows) {
    const { key, down } = this.sort;
    const column = this.data.columns.findIndex(([name]) => name === key);
    const valueOf = (row) => (key === "head" ? row.layer * 1e4 + row.head : key === "labels" ? row.labels.length : row.numbers[column]);
    return [...rows].sort((one, other) => {
      const [a, b] = [valueOf(one), valueOf(other)];
      if (a == null || b == null) return (a == null) - (b == null) || one.index - other.index;
      return (down ? b - a : a - b) || one.index - other.index;
    });
  }

  // Words are looked for in names and labels; `entropy < 0.5` compares a column. All parts, separated by commas, must hold.
  conditions() {
    const parts = this.find("[data-filter]").value.toLowerCase().split(",").map((part) => part.trim()).filter(Boolean);
    return parts.map((part) => {
      const [, name, sign, number] = part.match(/^([^<>=]+?)\s*(<=|>=|<|>|=)\s*(-?[\d.]+(?:e-?\d+)?)$/) ?? [];
      const namesOf = ([key, short, title]) => [key, key.replaceAll("_", " "), short, title.replace(/ \(.*/, "")];
      const column = this.data.columns.findIndex((each) => namesOf(each).some((text) => text.toLowerCase() === name));
      if (name && column >= 0) return ({ numbers }) => numbers[column] != null && HeadTable.holds[sign](numbers[column], Number(number));
      const layer = /^(l\d+|l\d+h\d+|\d+\.\d+)$/.test(part);
      return ({ names }) => names.some((text) => (layer ? text === part : text.includes(part)));
    });
  }

  fill() {
    const conditions = this.conditions();
    this.shown = this.ordered(this.rows.filter((row) => conditions.every((holds) => holds(row))));
    const nothing = Atlas.el("td", { colspan: this.data.columns.length + 2 }, "No head matches the filter.");
    const empty = Atlas.el("tr", { class: "empty" }, nothing);
    this.find("tbody").replaceChildren(...(this.shown.length ? this.shown : [empty]));
    this.find("[data-count]").textContent = `${Atlas.count(this.shown.length)} of ${Atlas.count(this.rows.length)} heads`;
  }

  tip(event) {
    const chip = event.target.closest("[data-evidence]");
    if (chip) Atlas.tip.show(event.clientX, event.clientY, chip.textContent, [], chip.dataset.evidence);
    else Atlas.tip.hide();
  }

  mark(row) {
    this.chosen?.classList.remove("chosen");
    this.chosen = row;
    row.classList.add("chosen");
  }

  choose(row) {
    if (!row?.labels) return;
    this.mark(row);
    document.dispatchEvent(new CustomEvent("atlas:head", { detail: { layer: row.layer, head: row.head, from: this.root } }));
  }

  show(layer, head) {
    const row = this.rows.find((other) => other.layer === layer && other.head === head);
    if (!row) return;
    if (!this.shown.includes(row)) {
      this.find("[data-filter]").value = "";
      this.fill();
    }
    this.mark(row);
    this.root.scrollIntoView({ block: "nearest" });
    const frame = this.find(".table-frame");
    frame.scrollTop = row.offsetTop - frame.clientHeight / 2;
  }

  csv() {
    const quote = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const head = ["layer", "head", "labels", ...this.data.columns.map(([key]) => key)];
    const lines = this.shown.map(({ layer, head: number, labels, numbers }) =>
      [layer, number, quote(labels.map(([text]) => text).join("; ")), ...numbers.map((value) => value ?? "")].join(","));
    return [head.map(quote).join(","), ...lines].join("\n") + "\n";
  }
}

HeadTable.holds = {
  "<": (value, limit) => value < limit,
  ">": (value, limit) => value > limit,
  "<=": (value, limit) => value <= limit,
  ">=": (value, limit) => value >= limit,
  "=": (value, limit) => value === limit,
};

Atlas.views.table = (root, data) => new HeadTable(root, data);
