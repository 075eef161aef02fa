"use strict";
// The head map: one cell per head, layer 0 at the bottom, coloured by the chosen score.
class HeadMap {
  constructor(root, data) {
    Object.assign(this, { root, data, only: null });
    this.find = (selector) => root.querySelector(selector);
    this.select = this.find("[data-score]");
    this.build();
    this.buildRoles();
    this.select.addEventListener("change", () => this.colour());
    this.grid.addEventListener("keydown", (event) => this.onKey(event));
    this.grid.addEventListener("pointerover", (event) => this.tip(event));
    this.grid.addEventListener("pointermove", (event) => this.tip(event));
    this.grid.addEventListener("pointerleave", () => Atlas.tip.hide());
    this.grid.addEventListener("focusin", (event) => this.rove(event.target.closest(".map-cell")));
    this.grid.addEventListener("focusout", () => Atlas.tip.hide());
    this.grid.addEventListener("click", (event) => this.choose(event.target.closest(".map-cell")));
    document.addEventListener("atlas:head", ({ detail }) => detail.from !== root && this.mark(detail.layer, detail.head));
    Atlas.themeListeners.push(() => this.colour());
    this.colour();
    root.view = this;
  }

  build() {
    const { layers, heads } = this.data;
    const frame = this.find("[data-frame]");
    const width = Math.min(46, Math.max(13, Math.floor(760 / heads)));
    const height = Math.min(26, Math.max(13, Math.floor(640 / layers)));
    this.numbers = width >= 30;
    this.grid = frame.appendChild(Atlas.el("div", { class: "map-grid", role: "grid", "aria-label": "Heads by layer" }));
    this.grid.style.gridTemplate = `repeat(${layers}, ${height}px) 18px / 42px repeat(${heads}, ${width}px)`;
    this.cells = Array.from({ length: layers }, () => []);
    for (let layer = layers - 1; layer >= 0; layer--) {
      const row = this.grid.appendChild(Atlas.el("div", { role: "row", style: "display:contents" }));
      row.append(Atlas.el("div", { class: "axis layer", role: "rowheader", "aria-label": `layer ${layer}` }, String(layer)));
      for (let head = 0; head < heads; head++) row.append((this.cells[layer][head] = this.cell(layer, head)));
    }
    const foot = this.grid.appendChild(Atlas.el("div", { "aria-hidden": "true", style: "display:contents" }));
    foot.append(Atlas.el("div", { class: "axis layer" }, "↑ layer"));
    const every = Math.ceil(24 / (width + 1));
    for (let head = 0; head < heads; head++) foot.append(Atlas.el("div", { class: "axis" }, head % every ? "" : String(head)));
    frame.append(Atlas.el("div", { class: "map-name", style: `width:${heads * (width + 1)}px` }, "head"));
    this.rove(this.cells[layers - 1][0]);
  }

  cell(layer, head) {
    const labels = this.data.labels[`${layer}.${head}`] ?? [];
    const look = labels.length ? `map-cell labelled ${labels[0][1]}` : "map-cell";
    const cell = Atlas.el("div", { class: look, role: "gridcell", tabindex: -1, "data-head": `${layer}.${head}` });
    cell.place = { layer, head, name: `L${layer}H${head}`, labels };
    return cell;
  }

  buildRoles() {
    const seen = new Map(Object.values(this.data.labels).flat());
    for (const [text, role] of seen) {
      const title = `Only heads labelled ${text}`;
      const chip = Atlas.el("button", { type: "button", class: `chip ${role}`, "aria-pressed": "false", title }, text);
      chip.addEventListener("click", () => {
        this.only = this.only === text ? null : text;
        for (const other of this.find("[data-roles]").children) other.setAttribute("aria-pressed", String(other.textContent === this.only));
        this.root.classList.toggle("only", this.only != null);
        for (const cell of this.cells.flat()) cell.classList.toggle("kept", cell.place.labels.some(([label]) => label === this.only));
      });
      this.find("[data-roles]").append(chip);
    }
  }

  get score() {
    return this.data.scores[this.select.selectedIndex];
  }

  colour() {
    const { score } = this;
    if (!score) return;
    const ramp = this.data.ramps[Atlas.isDark() ? "dark" : "light"];
    const [low, high] = score.range;
    for (const cell of this.cells.flat()) {
      const { layer, head, name, labels } = cell.place;
      const value = score.values[layer][head];
      const part = value == null ? null : Math.min(1, Math.max(0, (value - low) / (high - low)));
      cell.classList.toggle("none", value == null);
      const ground = part == null ? "" : ramp[Math.round(part * (ramp.length - 1))];
      cell.style.background = ground;
      cell.style.color = ground && Atlas.inkOn(ground);
      cell.textContent = this.numbers && value != null ? HeadMap.brief(value, score.range) : "";
      cell.setAttribute("aria-label", [`${name}: ${score.title} ${Atlas.number(value)}`, ...labels.map(([text]) => text)].join(", "));
    }
    this.describe(score, ramp);
    this.listTop(score);
  }

  static brief(value, [low, high]) {
    if (low === 0 && high === 1) return value >= 0.995 ? "1.0" : value < 0.005 ? "0" : value.toFixed(2).replace(/^0/, "");
    return Atlas.number(value, 2);
  }

  describe(score, ramp) {
    this.find("[data-meaning]").textContent = score.meaning;
    const bar = Atlas.el("div", { class: "bar", role: "img", "aria-label": `Colours from ${score.range[0]} to ${score.range[1]}` });
    bar.style.background = `linear-gradient(90deg, ${ramp.filter((_, index) => index % 7 === 0).join(",")})`;
    const [low, high] = score.range;
    const text = [low, (low + high) / 2, high].map((value) => String(Number(value.toPrecision(2))).replace("-", "−"));
    if (score.clipped) text[2] = `≥ ${text[2]}`;
    const ends = Atlas.el("div", { class: "ends" }, ...text.map((value) => Atlas.el("span", {}, value)));
    this.find("[data-scale]").replaceChildren(bar, ends, Atlas.el("div", { class: "unit" }, score.unit));
  }

  listTop(score) {
    const scored = this.cells.flat().map((cell) => [score.values[cell.place.layer][cell.place.head], cell]);
    const best = scored.filter(([value]) => value != null).sort(([one], [other]) => other - one);
    const rows = best.slice(0, 10).map(([value, cell]) => {
      const { layer, head, name, labels } = cell.place;
      const tags = Atlas.el("span", { class: "tags" }, labels.map(([text]) => text).join(", "));
      const number = Atlas.el("span", { class: "value" }, Atlas.number(value));
      const button = Atlas.el("button", { type: "button" }, Atlas.el("span", {}, name), number, tags);
      button.addEventListener("click", () => this.choose(this.cells[layer][head]));
      button.addEventListener("pointerenter", () => this.mark(layer, head));
      return Atlas.el("li", {}, button);
    });
    this.find("[data-top]").replaceChildren(...rows);
  }

  tip(event) {
    const cell = event.target.closest(".map-cell");
    if (!cell) return Atlas.tip.hide();
    return this.tipAt(cell, event.clientX, event.clientY);
  }

  tipAt({ place: { layer, head, name, labels } }, x, y) {
    const rows = this.data.scores.map(({ title, values }) => [title, Atlas.number(values[layer][head])]);
    const words = labels.map(([text, role]) => Atlas.el("span", { class: `chip ${role}`, style: "margin:4px 4px 0 0" }, text));
    const foot = words.length ? Atlas.el("div", {}, ...words) : "";
    Atlas.tip.show(x, y, name, rows, foot);
  }

  rove(cell) {
    if (!cell) return;
    this.home?.setAttribute("tabindex", -1);
    cell.setAttribute("tabindex", 0);
    this.home = cell;
  }

  onKey(event) {
    const cell = event.target.closest(".map-cell");
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [1, 0], ArrowDown: [-1, 0] }[event.key];
    if (event.key === "Escape") Atlas.tip.hide();
    if (!cell || (!step && event.key !== "Enter")) return;
    event.preventDefault();
    if (!step) return this.choose(cell);
    const next = this.cells[cell.place.layer + step[0]]?.[cell.place.head + step[1]];
    if (!next) return;
    next.focus();
    const box = next.getBoundingClientRect();
    this.tipAt(next, box.right, box.bottom);
  }

  mark(layer, head) {
    this.chosen?.classList.remove("chosen");
    this.chosen = this.cells[layer]?.[head];
    this.chosen?.classList.add("chosen");
  }

  // Marks the head here and tells the other views of the page.
  choose(cell) {
    if (!cell) return;
    const { layer, head } = cell.place;
    this.mark(layer, head);
    document.dispatchEvent(new CustomEvent("atlas:head", { detail: { layer, head, from: this.root } }));
  }
}

Atlas.views.head_map = (root, data) => new HeadMap(root, data);
