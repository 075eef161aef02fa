"use strict";
// Painting of a circuit's nodes: boxes with names and labels, their ports, the strips of key/value groups.

Atlas.circuit.paintNodes = (context, scene) => {
  const { data, marks, view, size } = scene;
  const [left, top] = [-view.x / view.zoom, -view.y / view.zoom];
  const [right, bottom] = [left + size[0] / view.zoom, top + size[1] / view.zoom];
  const inside = ([x, y, w, h]) => x <= right && x + w >= left && y <= bottom && y + h + 12 >= top;
  const alphaOf = (mark, bar) => {
    if (scene.hideIdle && mark.idle && !bar && !mark.picked) return 0;
    if (scene.dimmed && !mark.near && !mark.hit) return scene.picked ? 0.16 : 0.3;
    return mark.idle && !mark.hit ? 0.34 : 1;
  };
  context.setLineDash([]);
  context.textAlign = "center";
  context.textBaseline = "middle";
  data.groups.forEach((group, index) => {
    const alpha = inside(group.box) && alphaOf(marks.groups[index], false);
    if (alpha) Atlas.circuit.paintPorts(context, scene, group, marks.groups[index], alpha);
  });
  data.nodes.forEach((node, index) => {
    const bar = node.kind === "input" || node.kind === "logits";
    const alpha = inside(node.box) && alphaOf(marks.nodes[index], bar);
    if (!alpha) return;
    if (!bar) Atlas.circuit.paintPorts(context, scene, node, marks.nodes[index], alpha);
    Atlas.circuit.paintBox(context, scene, node, marks.nodes[index], alpha, bar);
  });
};

Atlas.circuit.paintBox = (context, { view, size, colours, family }, node, mark, alpha, bar) => {
  const [x, y, w, h] = node.box;
  const { zoom } = view;
  const role = node.role && colours[node.role];
  context.globalAlpha = alpha;
  context.fillStyle = mark.hit ? colours["hit-soft"] : node.kind === "head" ? colours.surface : colours.sunken;
  context.strokeStyle = mark.picked || mark.focused ? colours.ink : mark.hit ? colours.hit : (role ?? colours["line-strong"]);
  context.lineWidth = (mark.picked || mark.focused ? 3 : mark.hit ? 2.4 : role ? 1.4 : 1) / zoom;
  context.beginPath();
  context.roundRect(x, y, w, h, 4);
  context.fill();
  context.stroke();
  if (role) {
    context.fillStyle = role;
    context.fillRect(x + 1, y + 1, Math.min(5, w / 8), h - 2);
  }
  const middle = bar ? Atlas.circuit.barMiddle(node, view, size) : x + w / 2 + (role ? 2 : 0);
  node.lines.forEach(({ text, size: font }, line) => {
    context.font = `${line ? 500 : 600} ${font}px ${family}`;
    context.fillStyle = line ? (role ?? colours.muted) : colours.ink;
    context.fillText(text, middle, node.lines.length < 2 ? y + h / 2 + 0.5 : y + h * (line ? 0.72 : 0.3));
  });
};

// The names of input and logits stay in sight while any part of their bars is.
Atlas.circuit.barMiddle = ({ box: [x, , w] }, { zoom, x: shift }, [width]) => {
  const left = Math.max(x, (34 - shift) / zoom);
  const right = Math.min(x + w, (width - shift) / zoom);
  return left < right ? (left + right) / 2 : x + w / 2;
};

// Its letter, and on a strip with room for it the heads that share it.
Atlas.circuit.portText = ({ kind, box }, { heads }) => (heads && box[2] > 90 ? `${kind} · ${heads}` : kind);

Atlas.circuit.paintPorts = (context, { view, colours, family }, owner, mark, alpha) => {
  context.globalAlpha = alpha;
  context.lineWidth = (mark.picked || mark.focused ? 1.2 : 0.7) / view.zoom;
  context.strokeStyle = mark.picked || mark.focused ? colours.ink : colours["line-strong"];
  context.fillStyle = colours.sunken;
  for (const { box } of owner.ports) {
    context.fillRect(...box);
    context.strokeRect(...box);
  }
  if (view.zoom < 0.75) return;
  context.font = `500 8.5px ${family}`;
  context.fillStyle = colours.muted;
  for (const port of owner.ports) {
    const [x, y, w, h] = port.box;
    if (port.kind.length === 1) context.fillText(Atlas.circuit.portText(port, owner), x + w / 2, y + h / 2 + 0.5);
  }
};

// ---- texts in boxes: as much as can be read at this zoom; full name and label, or shorter, or nothing

Atlas.circuit.widths = new Map(); // of texts, at one pixel
Atlas.circuit.fitTexts = (nodes, zoom, context, family) => {
  const widths = Atlas.circuit.widths;
  context.font = `600 10px ${family}`;
  const measure = (text, size) => {
    if (!widths.has(text)) widths.set(text, context.measureText(text).width / 10);
    return widths.get(text) * size;
  };
  for (const node of nodes) {
    const [, , w, h] = node.box;
    node.lines = Atlas.circuit.chooseText(node, w - (node.role ? 13 : 4), h, zoom, measure);
  }
};

Atlas.circuit.chooseText = (node, width, height, zoom, measure) => {
  let size = Math.max(12, Math.min(9.5 / zoom, height * 0.95));
  if (size * zoom < 7) return [];
  const full = node.label && `${node.short} ${node.label}`;
  if (node.label && size <= height * 0.44) {
    return [{ text: node.name, size }, { text: Atlas.circuit.clip(node.label, width, size - 1, measure), size: size - 1 }];
  }
  const fits = (text) => measure(text, size) <= width;
  const role = full?.replace(/[\s,;]+-?[\d.]+$/, "");
  if (full && !fits(role) && size * zoom > 8.8) size *= 0.88;
  if (full && (fits(full) || fits(role))) return [{ text: fits(full) ? full : role, size }];
  const clipped = full && Atlas.circuit.clip(full, width, size, measure);
  if (clipped && clipped.length > node.short.length + 4) return [{ text: clipped, size }];
  const text = [node.name, node.short, node.short.replace(/^\d+\./, "h")].find(fits);
  return text ? [{ text, size }] : [];
};

Atlas.circuit.clip = (text, width, size, measure) => {
  if (measure(text, size) <= width) return text;
  let end = text.length;
  while (end > 1 && measure(`${text.slice(0, end)}…`, size) > width) end--;
  return `${text.slice(0, end).trimEnd()}…`;
};
