"use strict";
// The circuit as shown, as an SVG file that needs nothing else: same geometry, colours of the present theme, titles to hover.
Atlas.circuit.toSvg = (view) => {
  const { data } = view;
  const root = view.find("svg.nodes").cloneNode(false);
  for (const name of [...root.getAttributeNames()]) root.removeAttribute(name);
  const put = (parent, tag, attributes, ...children) => Atlas.svg(parent, tag, attributes, ...children);
  const [width, height] = [Math.ceil(data.width), Math.ceil(data.height)];
  Atlas.fill(root, { width, height, viewBox: `0 0 ${width} ${height}` }, []);
  put(root, "style", {}, Atlas.circuit.svgStyle());
  put(root, "rect", { width, height, class: "ground" });
  const edges = put(root, "g", { class: "edges" });
  const chosen = view.shown.filter((route) => !view.focus || view.focus.has(route.index));
  for (const route of [...chosen].reverse()) Atlas.circuit.svgEdge(edges, data, route, put);
  const kept = (mark) => !view.hideIdle || !mark.idle;
  data.groups.forEach((group, index) => {
    const mark = view.marks.groups[index];
    if (kept(mark)) Atlas.circuit.svgPorts(put(root, "g", { class: mark.idle ? "idle" : "strip" }), group, put);
  });
  data.nodes.forEach((node, index) => {
    if (kept(view.marks.nodes[index])) Atlas.circuit.svgNode(root, node, view.marks.nodes[index], put, view);
  });
  return new XMLSerializer().serializeToString(root);
};

Atlas.circuit.svgEdge = (parent, data, route, put) => {
  const [x0, y0, x1, y1, x2, y2, x3, y3] = route.curve.map((value) => Math.round(value * 10) / 10);
  const path = put(parent, "path", {
    d: `M${x0} ${y0}C${x1} ${y1} ${x2} ${y2} ${x3} ${y3}`,
    class: route.score < 0 ? "neg" : "pos",
    "stroke-width": Math.max(0.7, 6 * route.strength).toFixed(2),
    "stroke-opacity": (0.4 + 0.5 * Math.sqrt(route.strength)).toFixed(2),
  });
  const reader = Atlas.circuit.reader(data, data.ports[route.to]);
  put(path, "title", {}, `${data.nodes[route.from].name} → ${reader}: ${Atlas.exact(route.score)}`);
};

Atlas.circuit.svgPorts = (parent, owner, put) => {
  for (const { kind, box: [x, y, width, height] } of owner.ports) {
    if (kind === "logits") continue;
    put(parent, "rect", { class: "port", x, y, width, height });
    const text = Atlas.circuit.portText({ kind, box: [x, y, width, height] }, owner);
    if (kind.length === 1) put(parent, "text", { class: "letter", x: x + width / 2, y: y + height / 2 }, text);
  }
};

Atlas.circuit.svgNode = (root, node, mark, put, view) => {
  const [x, y, width, height] = node.box;
  const group = put(root, "g", { class: `node ${node.kind} ${node.role ?? ""} ${mark.idle ? "idle" : ""}` });
  put(group, "title", {}, Atlas.circuit.titleOf(view, { type: "node", index: view.data.nodes.indexOf(node) }));
  Atlas.circuit.svgPorts(group, node, put);
  put(group, "rect", { class: "box", x, y, width, height, rx: 4 });
  if (node.role) put(group, "rect", { class: "stripe", x: x + 1, y: y + 1, width: 5, height: height - 2 });
  const lines = Atlas.circuit.chooseText(node, width - 13, height, 1, (text, size) => text.length * size * 0.56);
  lines.forEach(({ text, size }, line) => {
    const place = lines.length < 2 ? 0.5 : line ? 0.72 : 0.3;
    const middle = x + width / 2 + (node.role ? 2 : 0);
    put(group, "text", { class: line ? "label" : "name", x: middle, y: y + height * place, "font-size": size }, text);
  });
};

Atlas.circuit.svgStyle = () => {
  const c = (name) => Atlas.colour(name);
  const roles = [0, 1, 2, 3, 4, 5, 6].map((n) => `role-${n}`).map((role) =>
    `.${role} .box{stroke:${c(role)}} .${role} .stripe,.${role} .label{fill:${c(role)}}`);
  return [
    `.ground{fill:${c("surface")}} .edges path{fill:none} .pos{stroke:${c("pos")}} .neg{stroke:${c("neg")};stroke-dasharray:6 4}`,
    `.box{fill:${c("surface")};stroke:${c("line-strong")}} .input .box,.logits .box,.mlp .box{fill:${c("sunken")}} .idle{opacity:.34}`,
    `.port{fill:${c("sunken")};stroke:${c("line-strong")};stroke-width:.7} .letter{font-size:8.5px;fill:${c("muted")}}`,
    `text{font-family:system-ui,sans-serif;text-anchor:middle;dominant-baseline:central;fill:${c("ink")}} .name{font-weight:600}`,
    ...roles,
  ].join("\n");
};
