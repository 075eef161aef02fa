"use strict";
// How a reader acts on the circuit view: controls, pointer, wheel, keyboard. Mixed into CircuitView.
Object.assign(CircuitView.prototype, {
  bindControls() {
    const on = (selector, event, act) => this.find(selector).addEventListener(event, act);
    on("[data-slider]", "input", (event) => this.setNumber(this.routes.length ** (event.target.value / 1000), true));
    on("[data-number]", "change", (event) => this.setNumber(Number(event.target.value)));
    on("[data-search]", "input", (event) => this.search(event.target.value));
    on("[data-search]", "keydown", (event) => {
      const [first] = this.hits() ?? [];
      if (event.key === "Enter" && first != null) this.show(first);
    });
    on("[data-hide]", "change", (event) => {
      this.hideIdle = event.target.checked;
      this.repaint();
    });
    on("[data-reset]", "click", () => this.reset());
    on("[data-export]", "click", () => Atlas.save("circuit.svg", "image/svg+xml", Atlas.circuit.toSvg(this)));
    for (const button of this.root.querySelectorAll("[data-sign]")) {
      button.addEventListener("click", () => {
        this.sign = button.dataset.sign;
        this.update();
      });
    }
    for (const button of this.root.querySelectorAll("[data-kind]")) {
      button.addEventListener("click", () => {
        if (!this.kinds.delete(button.dataset.kind)) this.kinds.add(button.dataset.kind);
        this.update();
      });
    }
    const zooms = { in: () => this.zoomBy(1.4), out: () => this.zoomBy(1 / 1.4), fit: () => this.fit(), full: () => this.toggleFull() };
    for (const button of this.root.querySelectorAll("[data-zoom]")) button.addEventListener("click", zooms[button.dataset.zoom]);
  },

  toggleFull() {
    if (document.fullscreenElement) document.exitFullscreen();
    else this.stage.requestFullscreen?.().catch(() => this.hint("This page may not fill the screen"));
  },

  bindStage() {
    this.pointers = new Map();
    const at = (event) => {
      const box = this.stage.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    this.stage.addEventListener("wheel", (event) => this.onWheel(event, at(event)), { passive: false });
    this.stage.addEventListener("pointerdown", (event) => {
      if (event.button || event.target.closest(".zooms")) return;
      this.pointers.set(event.pointerId, at(event));
      this.moved = 0;
    });
    this.stage.addEventListener("pointermove", (event) => this.onMove(event, at(event)));
    const release = (event) => {
      this.pointers.delete(event.pointerId);
      if (!this.pointers.size) this.stage.classList.remove("dragging");
    };
    this.stage.addEventListener("pointerup", release);
    this.stage.addEventListener("pointercancel", release);
    this.stage.addEventListener("pointerleave", () => {
      if (!this.pointers.size) this.setHover(null);
      Atlas.tip.hide();
    });
    this.stage.addEventListener("click", (event) => this.onClick(event, at(event)));
  },

  onWheel(event, at) {
    if (this.root.dataset.wheel === "ctrl" && !event.ctrlKey && !event.metaKey && !document.fullscreenElement) {
      this.hint("Hold Ctrl or ⌘ and scroll to zoom");
      return;
    }
    event.preventDefault();
    this.zoomBy(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016) * (event.ctrlKey ? 2 : 1)), at);
  },

  onMove(event, at) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return this.onHover(event, at);
    const [dx, dy] = [at[0] - before[0], at[1] - before[1]];
    this.moved += Math.abs(dx) + Math.abs(dy);
    if (this.moved < 4 && this.pointers.size === 1) return undefined;
    if (!this.stage.hasPointerCapture(event.pointerId)) this.stage.setPointerCapture(event.pointerId);
    this.stage.classList.add("dragging");
    if (this.pointers.size === 2) this.pinch(event.pointerId, before, at);
    else this.panBy(dx, dy);
    this.pointers.set(event.pointerId, at);
    Atlas.tip.hide();
    return undefined;
  },

  pinch(id, before, at) {
    const [, other] = [...this.pointers].find(([pointer]) => pointer !== id);
    const spread = (point) => Math.hypot(point[0] - other[0], point[1] - other[1]) || 1;
    this.zoomBy(spread(at) / spread(before), [(at[0] + other[0]) / 2, (at[1] + other[1]) / 2]);
  },

  onHover(event, at) {
    const item = event.target.closest?.("[data-id]");
    const route = item ? null : this.routeAt(at);
    this.setHover(route);
    if (item) Atlas.circuit.tipOfNode(this, item.pick, event.clientX, event.clientY);
    else if (route) Atlas.circuit.tipOfEdge(this, route, event.clientX, event.clientY);
    else Atlas.tip.hide();
  },

  routeAt([x, y]) {
    const { zoom } = this.view;
    const choice = this.focus ? this.shown.filter((route) => this.focus.has(route.index)) : this.shown;
    return Atlas.circuit.hit(choice, (x - this.view.x) / zoom, (y - this.view.y) / zoom, 6 / zoom);
  },

  setHover(route) {
    if (route === this.hover) return;
    this.hover = route;
    this.stage.classList.toggle("on-edge", route != null);
    this.repaint();
  },

  onClick(event, at) {
    if (this.moved >= 4 || event.target.closest(".zooms")) return;
    const item = event.target.closest("[data-id]");
    const route = item ? null : this.routeAt(at);
    if (item) this.pick(item.pick);
    else if (route) this.pick({ type: "edge", index: route.index });
    else if (this.picked) this.pick(null);
  },

  // ---- keyboard: Tab reaches one node, arrows go on from there

  rove() {
    const home = this.focused ?? this.home ?? this.items.nodes[this.data.nodes.findIndex((node) => node.kind === "logits")];
    if (home === this.tabbed) return;
    this.tabbed?.setAttribute("tabindex", -1);
    this.tabbed = home;
    home.setAttribute("tabindex", 0);
  },

  setFocused(item) {
    if (item) this.home = item;
    this.focused = item?.matches(":focus-visible") ? item : null;
    for (const other of this.allItems) {
      const { type, index } = other.pick;
      this.marks[type === "node" ? "nodes" : "groups"][index].focused = other === this.focused;
    }
    this.rove();
    this.repaint();
  },

  bindKeys() {
    // On the stage and not on the SVG group: a browser lets Tab stop at an SVG element that listens for focus.
    this.stage.addEventListener("focusin", (event) => this.setFocused(event.target.closest("[data-id]")));
    this.stage.addEventListener("focusout", () => this.setFocused(null));
    this.root.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.clear();
      else if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
      else if (!this.onKey(event)) return;
      event.preventDefault();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.target.matches("input, select, textarea") || !document.body.classList.contains("fills")) return;
      event.preventDefault();
      this.find("[data-search]").focus();
    });
  },

  onKey({ key, target }) {
    const item = target.closest?.("[data-id]");
    const zooms = { "+": 1.25, "=": 1.25, "-": 0.8 };
    if (key in zooms) this.zoomBy(zooms[key]);
    else if (key === "0") this.fit();
    else if (item && (key === "Enter" || key === " ")) this.pick(item.pick);
    else if (item && key.startsWith("Arrow")) this.moveFocus(item, key.slice(5));
    else return false;
    return true;
  },

  // The nearest node in the arrow's direction, sideways distance counting double.
  moveFocus(item, way) {
    const centre = ({ pick: { type, index } }) => {
      const [x, y, w, h] = (type === "node" ? this.data.nodes : this.data.groups)[index].box;
      return [x + w / 2, y + h / 2];
    };
    const [x0, y0] = centre(item);
    const horizontal = way === "Left" || way === "Right";
    const sense = way === "Left" || way === "Up" ? -1 : 1;
    let best = null;
    let least = Infinity;
    for (const other of this.allItems) {
      const [x, y] = centre(other);
      const along = sense * (horizontal ? x - x0 : y - y0);
      const across = Math.abs(horizontal ? y - y0 : x - x0);
      if (other === item || along <= 1 || (horizontal && across > 40) || !this.isDrawn(other)) continue;
      if (along + 2 * across < least) [best, least] = [other, along + 2 * across];
    }
    best?.focus();
    if (best) this.reveal(centre(best));
  },

  isDrawn({ pick: { type, index } }) {
    return !this.hideIdle || !this.marks[type === "node" ? "nodes" : "groups"][index].idle;
  },

  reveal([x, y]) {
    const { zoom } = this.view;
    const [left, top] = [x * zoom + this.view.x, y * zoom + this.view.y];
    const dx = left < 60 ? 60 - left : Math.min(0, this.size[0] - 60 - left);
    const dy = top < 30 ? 30 - top : Math.min(0, this.size[1] - 30 - top);
    if (dx || dy) this.panBy(dx, dy);
  },

  clear() {
    Atlas.tip.hide();
    this.setHover(null);
    if (this.query || this.picked) this.search("");
  },

  hint(text) {
    const box = this.find("[data-hint]");
    box.textContent = text;
    box.classList.add("on");
    clearTimeout(this.hintTimer);
    this.hintTimer = setTimeout(() => box.classList.remove("on"), 1400);
  },
});
