"use strict";
// Words about a circuit: tooltips, the side panel, texts in boxes; and which edges and nodes belong together.

Atlas.circuit.reader = (data, port) => {
  if (port.kind === "logits") return "logits";
  if (port.kind === "mlp") return data.nodes[port.node].name;
  return `${(port.node == null ? data.groups[port.group] : data.nodes[port.node]).name} ${port.kind}`;
};

Atlas.circuit.kindText = (data, port) => {
  const words = { q: "query", k: "key", v: "value", x: "mixer input", mlp: "MLP input", logits: "logits" }[port.kind];
  if (port.group != null) return `${words} of ${data.groups[port.group].heads}`;
  return words;
};

Atlas.circuit.tipOfEdge = ({ data }, route, x, y) => {
  const port = data.ports[route.to];
  const rows = [
    ["score", Atlas.exact(route.score)],
    ["rank", `${Atlas.count(route.index + 1)} of ${Atlas.count(data.inCircuit)}`],
    ["kind", Atlas.circuit.kindText(data, port)],
  ];
  Atlas.tip.show(x, y, `${data.nodes[route.from].name} → ${Atlas.circuit.reader(data, port)}`, rows);
};

Atlas.circuit.totals = ({ data }, { type, index }) => {
  const thing = type === "node" ? data.nodes[index] : data.groups[index];
  const sum = (score, edges) => `${Atlas.signed(score)} in ${Atlas.count(edges)} edge${edges > 1 ? "s" : ""}`;
  const row = (word, [score, edges]) => [word, edges ? sum(score, edges) : "none"];
  const rows = [];
  if (thing.kind !== "input") rows.push(row("received", thing.received));
  for (const group of thing.groups ?? []) rows.push(row(`received by ${data.groups[group].name}`, data.groups[group].received));
  if (thing.sent && thing.kind !== "logits") rows.push(row("sent", thing.sent));
  return rows;
};

Atlas.circuit.titleOf = ({ data }, { type, index }) => {
  const thing = type === "node" ? data.nodes[index] : data.groups[index];
  return [thing.name, thing.label ?? thing.heads].filter(Boolean).join(" · ");
};

Atlas.circuit.tipOfNode = (view, pick, x, y) =>
  Atlas.tip.show(x, y, Atlas.circuit.titleOf(view, pick), Atlas.circuit.totals(view, pick));

// Node and group numbers at the ends of some edges. An edge into a group does not touch its heads.
Atlas.circuit.touched = ({ data }, routes) => {
  const nodes = new Set();
  const groups = new Set();
  for (const { from, to } of routes) {
    nodes.add(from);
    const port = data.ports[to];
    if (port.node == null) groups.add(port.group);
    else nodes.add(port.node);
  }
  return { nodes, groups };
};

// Edge numbers that a picked node, group or edge singles out among those shown. Direct: the edges that touch it, a group's
// keys and values counting for each of its heads. Paths: everything upstream and downstream of it.
Atlas.circuit.related = (view, { type, index }, mode) => {
  const { data, shown } = view;
  if (type === "edge") return new Set([index]);
  const shares = (node, group) => Boolean(data.nodes[node].groups?.includes(group));
  const enters = (route, node) => {
    const port = data.ports[route.to];
    return port.node === node || (port.group != null && shares(node, port.group));
  };
  const readers = (route) => {
    const port = data.ports[route.to];
    return port.node == null ? data.groups[port.group].members : [port.node];
  };
  const start = type === "node" ? [index] : data.groups[index].members;
  const into = type === "group" ? shown.filter((route) => data.ports[route.to].group === index) : null;
  const found = new Set((into ?? shown.filter((route) => enters(route, index))).map((route) => route.index));
  if (type === "node") for (const route of shown) if (route.from === index) found.add(route.index);
  if (mode === "direct") return found;
  const spread = (nodes, next) => {
    const seen = new Set(nodes);
    const queue = [...nodes];
    while (queue.length) {
      for (const [route, others] of next(queue.pop())) {
        found.add(route.index);
        for (const other of others) if (!seen.has(other)) queue.push(other) && seen.add(other);
      }
    }
  };
  const above = (node) => shown.filter((route) => route.from === node).map((route) => [route, readers(route)]);
  const below = (node) => shown.filter((route) => enters(route, node)).map((route) => [route, [route.from]]);
  spread(into ? into.map((route) => route.from) : start, below);
  spread(start, above);
  return found;
};

// ---- side panel

Atlas.circuit.panel = (view, hits) => {
  const box = view.find("[data-detail]");
  if (view.picked?.type === "edge") box.replaceChildren(...Atlas.circuit.edgePanel(view));
  else if (view.picked) box.replaceChildren(...Atlas.circuit.nodePanel(view));
  else if (hits) box.replaceChildren(...Atlas.circuit.hitPanel(view, hits));
  else box.replaceChildren(Atlas.el("h3", {}, "Strongest edges shown"), ...Atlas.circuit.list(view, view.shown, 100));
  Atlas.circuit.widthSamples(view);
};

Atlas.circuit.heading = (view, text) => {
  const clear = Atlas.el("button", { type: "button", class: "link" }, "clear");
  clear.addEventListener("click", () => view.clear());
  return Atlas.el("h3", {}, Atlas.el("span", {}, text), clear);
};

Atlas.circuit.table = (rows) => {
  const table = Atlas.el("table", { class: "totals" });
  for (const [word, value] of rows) table.append(Atlas.el("tr", {}, Atlas.el("th", {}, word), Atlas.el("td", {}, value)));
  return table;
};

Atlas.circuit.edgePanel = (view) => {
  const { data } = view;
  const route = view.routes[view.picked.index];
  const port = data.ports[route.to];
  const goTo = (pick, text) => {
    const button = Atlas.el("button", { type: "button", class: "link" }, text);
    button.addEventListener("click", () => view.pick(pick));
    return button;
  };
  const reader = port.node == null ? { type: "group", index: port.group } : { type: "node", index: port.node };
  return [
    Atlas.circuit.heading(view, `${data.nodes[route.from].name} → ${Atlas.circuit.reader(data, port)}`),
    Atlas.circuit.table([
      ["score", Atlas.exact(route.score)],
      ["rank", `${Atlas.count(route.index + 1)} of ${Atlas.count(data.inCircuit)}`],
      ["kind", Atlas.circuit.kindText(data, port)],
      ["from", goTo({ type: "node", index: route.from }, data.nodes[route.from].name)],
      ["to", goTo(reader, Atlas.circuit.reader(data, port))],
    ]),
  ];
};

Atlas.circuit.nodePanel = (view) => {
  const { data, picked } = view;
  const modes = Atlas.el("div", { class: "segments", role: "group", "aria-label": "What is isolated" });
  for (const [mode, text] of [["direct", "Its edges"], ["paths", "All paths through it"]]) {
    const button = Atlas.el("button", { type: "button", "aria-pressed": view.mode === mode, "data-mode": mode }, text);
    button.addEventListener("click", () => {
      view.mode = mode;
      view.refocus();
      view.find(`[data-mode="${mode}"]`)?.focus();
    });
    modes.append(button);
  }
  const groups = picked.type === "group" ? [picked.index] : (data.nodes[picked.index].groups ?? []);
  const strip = groups.map((group) => `${data.groups[group].name}, ${data.groups[group].heads}`).join("; ");
  const mine = (route) => picked.type === "node" && data.ports[route.to].node === picked.index;
  const lists = [
    ["Into it", view.shown.filter(mine)],
    [`Into ${strip}`, view.shown.filter((route) => strip && groups.includes(data.ports[route.to].group))],
    ["From it", view.shown.filter((route) => picked.type === "node" && route.from === picked.index)],
  ];
  const parts = lists.filter(([, routes]) => routes.length).flatMap(([word, routes]) => [
    Atlas.el("h4", {}, `${word} (${routes.length} shown)`),
    ...Atlas.circuit.list(view, routes, 60),
  ]);
  const heading = Atlas.circuit.heading(view, Atlas.circuit.titleOf(view, picked));
  return [heading, Atlas.circuit.table(Atlas.circuit.totals(view, picked)), modes, ...parts];
};

Atlas.circuit.hitPanel = (view, hits) => {
  const list = Atlas.el("ul", { class: "edge-list" });
  for (const index of hits) {
    const { name, label } = view.data.nodes[index];
    const words = Atlas.el("span", { class: "ends" }, `${name} `, Atlas.el("i", {}, label ?? ""));
    const button = Atlas.el("button", { type: "button" }, Atlas.el("span", { class: "rank" }), words);
    button.addEventListener("click", () => {
      view.pick({ type: "node", index });
      view.show(index);
    });
    list.append(Atlas.el("li", {}, button));
  }
  return [Atlas.circuit.heading(view, `${hits.size} node${hits.size === 1 ? "" : "s"} found`), list];
};

Atlas.circuit.list = (view, routes, most) => {
  const { data } = view;
  const list = Atlas.el("ol", { class: "edge-list" });
  for (const route of routes.slice(0, most)) {
    const reader = Atlas.circuit.reader(data, data.ports[route.to]);
    const button = Atlas.el(
      "button", { type: "button" },
      Atlas.el("span", { class: "rank" }, String(route.index + 1)),
      Atlas.el("span", { class: "ends" }, data.nodes[route.from].name, Atlas.el("i", {}, " → "), reader),
      Atlas.el("span", { class: route.score < 0 ? "neg" : "pos" }, Atlas.signed(route.score)),
    );
    button.addEventListener("mouseenter", () => view.setHover(route));
    button.addEventListener("mouseleave", () => view.setHover(null));
    button.addEventListener("click", () => view.pick({ type: "edge", index: route.index }));
    list.append(Atlas.el("li", {}, button));
  }
  const rest = routes.length - most;
  return rest > 0 ? [list, Atlas.el("p", { class: "sub" }, `and ${Atlas.count(rest)} weaker`)] : [list];
};

Atlas.circuit.widthSamples = (view) => {
  const box = view.find("[data-widths]");
  if (box.childElementCount || !view.routes.length) return;
  const largest = Math.abs(view.routes[0].score);
  for (const part of [1, 0.5, 0.15]) {
    const line = Atlas.el("i", { style: `height:${Math.max(0.7, 6 * part)}px` });
    box.append(Atlas.el("span", {}, line, Atlas.number(largest * part, 2)));
  }
};
