"use strict";
// The circuit view: what is shown (slider, sign, kinds, search), what is in focus, zoom and pan, keyboard.
class CircuitView {
  constructor(root, data) {
    Object.assign(this, { root, data, mode: "direct", picked: null, hover: null, query: "" });
    this.find = (selector) => root.querySelector(selector);
    this.stage = this.find("[data-stage]");
    this.canvas = this.find("canvas");
    this.layer = this.find("svg.nodes > g");
    if (this.stage.clientHeight) Atlas.circuit.stretch(data, (this.stage.clientWidth - 78) / this.stage.clientHeight);
    this.routes = Atlas.circuit.routes(data);
    this.view = { zoom: 1, x: 0, y: 0 };
    this.family = getComputedStyle(this.stage).fontFamily;
    this.buildNodes();
    this.buildGutter();
    this.buildRoles();
    this.bindControls();
    this.bindStage();
    this.bindKeys();
    Atlas.themeListeners.push(() => this.readColours());
    this.readColours();
    this.reset();
    new ResizeObserver(() => this.resize()).observe(this.stage);
    root.view = this;
  }

  // ---- building

  // Each node and strip has an unseen element above the canvas: it takes pointer, focus and what a screen reader says.
  buildNodes() {
    const { data } = this;
    for (const thing of [...data.nodes, ...data.groups]) thing.ports = [];
    for (const port of data.ports) (port.node == null ? data.groups[port.group] : data.nodes[port.node]).ports.push(port);
    const build = (type) => (thing, index) => {
      const [x, y, width, h] = thing.box;
      const height = h + (type === "node" && thing.ports.length && thing.kind !== "logits" ? thing.ports[0].box[3] : 0);
      const words = [thing.name, thing.label ?? thing.heads].filter(Boolean).join(", ");
      const said = { role: "button", "aria-label": words, "data-id": thing.id };
      const item = Atlas.svg(this.layer, "rect", { x, y, width, height, class: type, tabindex: -1, ...said });
      item.pick = { type, index };
      return item;
    };
    this.items = { groups: data.groups.map(build("group")), nodes: data.nodes.map(build("node")) };
    this.allItems = [...this.items.nodes, ...this.items.groups];
  }

  buildGutter() {
    const gutter = this.find(".gutter");
    gutter.append(Atlas.el("b", {}, "layer"));
    this.rows = this.data.bands.map(([layer, top, bottom, used]) => {
      const mark = gutter.appendChild(Atlas.el("span", {}, String(layer)));
      return { mark, y: (top + bottom) / 2, used };
    });
  }

  buildRoles() {
    const seen = new Map();
    for (const node of this.data.nodes) {
      const name = node.role && (node.label.match(/^[^\d,;]*[^\d,;\s.-]/)?.[0] ?? node.label);
      if (name && !seen.has(name)) seen.set(name, node.role);
    }
    for (const [name, role] of seen) {
      const chip = Atlas.el("button", { type: "button", class: `chip ${role}`, title: `Search for ${name}` }, name);
      chip.addEventListener("click", () => this.search(this.query === name ? "" : name));
      this.find("[data-roles]").append(chip);
    }
  }

  readColours() {
    const names = ["pos", "neg", "line", "line-strong", "surface", "sunken", "ink", "muted", "hit", "hit-soft"];
    for (let role = 0; role < 7; role++) names.push(`role-${role}`);
    this.colours = Object.fromEntries(names.map((name) => [name, Atlas.colour(name)]));
    this.repaint();
  }

  // ---- what is shown

  reset() {
    Object.assign(this, { sign: "all", picked: null, query: "", mode: "direct" });
    this.kinds = new Set(this.data.ports.map((port) => port.kind));
    this.find("[data-search]").value = "";
    this.find("[data-hide]").checked = false;
    this.hideIdle = false;
    this.setNumber(Math.min(this.routes.length, 200));
    this.fit();
  }

  // The slider runs over the logarithm, so that each factor of ten has the same length.
  setNumber(n, fromSlider = false) {
    const most = this.routes.length;
    this.number = Math.min(most, Math.max(Math.min(1, most), Math.round(n) || 0));
    if (!fromSlider) this.find("[data-slider]").value = most > 1 ? (1000 * Math.log(this.number)) / Math.log(most) : 1000;
    this.find("[data-number]").value = this.number;
    this.update();
  }

  update() {
    const wanted = (route) =>
      (this.sign === "all" || route.score < 0 === (this.sign === "neg")) && this.kinds.has(this.data.ports[route.to].kind);
    this.shown = this.routes.slice(0, this.number).filter(wanted);
    this.find("[data-count]").textContent =
      `showing ${Atlas.count(this.shown.length)} of ${Atlas.count(this.data.inCircuit)} edges`;
    this.root.dataset.shown = this.shown.length;
    for (const button of this.root.querySelectorAll("[data-sign], [data-kind]")) {
      const { sign, kind } = button.dataset;
      button.setAttribute("aria-pressed", sign ? sign === this.sign : this.kinds.has(kind));
    }
    this.refocus();
  }

  // Marks what the search and the picked node or edge single out.
  refocus() {
    const hits = this.hits();
    this.focus = this.picked ? Atlas.circuit.related(this, this.picked, this.mode) : hits ? this.edgesOf(hits) : null;
    const busy = Atlas.circuit.touched(this, this.shown);
    const near = this.focus && Atlas.circuit.touched(this, this.shown.filter((route) => this.focus.has(route.index)));
    const mark = (kind) => (item, index) => {
      const picked = this.picked?.type === item.pick.type && this.picked.index === index;
      if ((item.getAttribute("aria-pressed") === "true") !== picked) item.setAttribute("aria-pressed", picked);
      const idle = !busy[kind].has(index);
      const hit = kind === "nodes" && Boolean(hits?.has(index));
      return { picked, idle, hit, near: picked || Boolean(near?.[kind].has(index)), focused: item === this.focused };
    };
    this.marks = { nodes: this.items.nodes.map(mark("nodes")), groups: this.items.groups.map(mark("groups")) };
    this.dimmed = this.picked != null || hits != null;
    this.rove();
    Atlas.circuit.panel(this, hits);
    this.repaint();
  }

  hits() {
    const words = this.query.trim().toLowerCase();
    if (!words) return null;
    const found = new Set();
    this.data.nodes.forEach(({ id, name, short, label }, index) => {
      const exact = /^(\d+\.\d+|l\d+h\d+|a\d+\.h\d+|m(lp)?\d+)$/.test(words);
      const texts = [id, name, short, label ?? ""].map((text) => text.toLowerCase());
      if (texts.some((text) => (exact ? text === words : text.includes(words)))) found.add(index);
    });
    return found;
  }

  edgesOf(nodes) {
    return new Set(this.shown.filter(({ from, to }) => nodes.has(from) || nodes.has(this.data.ports[to].node)).map(({ index }) => index));
  }

  pick(target) {
    const same = target && this.picked && target.type === this.picked.type && target.index === this.picked.index;
    this.picked = same ? null : target;
    this.refocus();
  }

  search(query) {
    this.query = query;
    this.find("[data-search]").value = query;
    this.picked = null;
    this.refocus();
  }

  // ---- view

  repaint() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      if (this.size) this.draw();
    });
  }

  draw() {
    const { zoom, x, y } = this.view;
    const context = this.canvas.getContext("2d");
    const step = Math.round(Math.log2(zoom) * 4);
    if (step !== this.step) Atlas.circuit.fitTexts(this.data.nodes, 2 ** ((this.step = step) / 4), context, this.family);
    Atlas.circuit.paint(context, this.ratio, this);
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.layer.setAttribute("transform", `translate(${x} ${y}) scale(${zoom})`), 60);
    let last = Infinity;
    for (const { mark, y: centre, used } of this.rows) {
      const place = centre * zoom + y;
      const room = last - place > 11 && used;
      mark.style.display = room ? "" : "none";
      if (room) mark.style.top = `${(last = place)}px`;
    }
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.stage;
    if (!width || !height) return;
    const first = !this.size;
    this.size = [width, height];
    this.ratio = Math.min(devicePixelRatio || 1, 2);
    this.canvas.width = width * this.ratio;
    this.canvas.height = height * this.ratio;
    if (first || this.fitted) this.fit();
    this.repaint();
  }

  fit() {
    if (!this.size) return;
    const width = this.size[0] - 78; // between the layer numbers and the zoom buttons
    const zoom = Math.min(width / this.data.width, this.size[1] / this.data.height, 1.5);
    this.view = { zoom, x: 34 + (width - zoom * this.data.width) / 2, y: (this.size[1] - zoom * this.data.height) / 2 };
    this.fitted = true;
    this.least = zoom / 2;
    this.repaint();
  }

  zoomBy(factor, at = [this.size[0] / 2, this.size[1] / 2]) {
    const zoom = Math.min(6, Math.max(this.least, this.view.zoom * factor));
    const scale = zoom / this.view.zoom;
    this.view = { zoom, x: at[0] - (at[0] - this.view.x) * scale, y: at[1] - (at[1] - this.view.y) * scale };
    this.fitted = false;
    this.repaint();
  }

  panBy(dx, dy) {
    this.view = { zoom: this.view.zoom, x: this.view.x + dx, y: this.view.y + dy };
    this.fitted = false;
    this.repaint();
  }

  // Brings a node into sight, and near enough to be read.
  show(index) {
    const [x, y, w, h] = this.data.nodes[index].box;
    const zoom = Math.max(this.view.zoom, 0.9);
    this.view = { zoom, x: this.size[0] / 2 - zoom * (x + w / 2), y: this.size[1] / 2 - zoom * (y + h / 2) };
    this.fitted = false;
    this.repaint();
  }
}

Atlas.views.circuit = (root, data) => new CircuitView(root, data);
