"use strict";
// Painting of a circuit on a canvas: ground, edges, then nodes above them. World units are CSS pixels at zoom 1.

// Line width in world units: proportional to |score|, never thinner than can be seen, growing slower than the zoom.
Atlas.circuit.width = (route, zoom, least = 0.7) =>
  (Math.max(least, 6 * route.strength) / zoom) * Math.min(2.2, Math.max(1, Math.sqrt(zoom)));

// Paints layer lines, unused heads and the shown edges, weak ones first, edges in focus last; then nodes.
// scene: {data, shown, focus (Set of edge numbers or null), hover, view: {zoom, x, y}, size: [width, height], colours,
// marks: {nodes, groups} (what each is: idle, near, picked, hit, focused), dimmed, hideIdle, family}
Atlas.circuit.paint = (context, ratio, scene) => {
  const { view, size, data, focus, shown, colours } = scene;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, size[0], size[1]);
  context.setTransform(ratio * view.zoom, 0, 0, ratio * view.zoom, ratio * view.x, ratio * view.y);
  Atlas.circuit.paintGround(context, data, view, colours);
  const visible = Atlas.circuit.visible(shown, view, size);
  const crowd = shown.length > 600;
  const floor = Math.max(0.16, Math.min(0.7, 9 / Math.sqrt(shown.length + 1) - 0.05));
  context.lineCap = "butt";
  const behind = focus ? visible.filter((route) => !focus.has(route.index)) : [];
  for (const route of behind) Atlas.circuit.stroke(context, route, view.zoom, colours, scene.picked ? 0.06 : 0.12, false);
  for (const route of visible) {
    if (focus && !focus.has(route.index)) continue;
    const alpha = focus ? 0.92 : Math.min(0.95, floor + 0.5 * Math.sqrt(route.strength));
    Atlas.circuit.stroke(context, route, view.zoom, colours, alpha, focus != null || !crowd || route.strength > 0.08);
  }
  if (scene.hover) Atlas.circuit.stroke(context, scene.hover, view.zoom, colours, 1, true, 2.5);
  Atlas.circuit.paintNodes(context, scene);
  context.globalAlpha = 1;
};

Atlas.circuit.visible = (shown, view, size) => {
  const left = -view.x / view.zoom;
  const top = -view.y / view.zoom;
  const right = left + size[0] / view.zoom;
  const bottom = top + size[1] / view.zoom;
  const inside = shown.filter(({ bounds }) => bounds[2] >= left && bounds[0] <= right && bounds[3] >= top && bounds[1] <= bottom);
  return inside.reverse();
};

Atlas.circuit.paintGround = (context, data, view, colours) => {
  context.globalAlpha = 1;
  context.setLineDash([]);
  context.strokeStyle = colours.line;
  context.lineWidth = 1 / view.zoom;
  context.beginPath();
  for (const [, top] of data.bands) {
    context.moveTo(0, top);
    context.lineTo(data.width, top);
  }
  context.globalAlpha = 0.6;
  context.stroke();
  context.globalAlpha = 1;
  context.fillStyle = colours.line;
  context.beginPath();
  for (const [x, y] of data.unused) {
    context.moveTo(x + 3, y);
    context.arc(x, y, 3, 0, 7);
  }
  context.fill();
};

// One edge: solid with an arrowhead where positive, dashed with a bar where negative. Ends need room, so crowds go without.
Atlas.circuit.stroke = (context, route, zoom, colours, alpha, ends, extra = 0) => {
  const [x0, y0, x1, y1, x2, y2, x3, y3] = route.curve;
  const width = Atlas.circuit.width(route, zoom, alpha > 0.9 ? 1.2 : 0.7) + extra / zoom;
  const colour = route.score < 0 ? colours.neg : colours.pos;
  context.globalAlpha = alpha;
  context.strokeStyle = colour;
  context.lineWidth = width;
  if (ends) context.setLineDash(route.score < 0 ? [Math.max(6 / zoom, width * 1.6), Math.max(3.5 / zoom, width * 0.9)] : []);
  else context.setLineDash([]);
  context.beginPath();
  context.moveTo(x0, y0);
  context.bezierCurveTo(x1, y1, x2, y2, x3, y3);
  context.stroke();
  if (ends) Atlas.circuit.paintEnd(context, route, Math.max(width * 0.9, 2.4 / zoom), colour);
};

// The end mark, pointing the way the curve arrives.
Atlas.circuit.paintEnd = (context, route, half, colour) => {
  const [, , , , x2, y2, x, y] = route.curve;
  const length = Math.hypot(x - x2, y - y2) || 1;
  const dx = (x - x2) / length;
  const dy = (y - y2) / length;
  context.setLineDash([]);
  context.beginPath();
  if (route.score < 0) {
    context.moveTo(x - dy * half * 1.5, y + dx * half * 1.5);
    context.lineTo(x + dy * half * 1.5, y - dx * half * 1.5);
    context.lineWidth = half * 0.9;
    context.stroke();
    return;
  }
  const back = half * 2.4;
  context.moveTo(x, y);
  context.lineTo(x - dx * back - dy * half * 1.25, y - dy * back + dx * half * 1.25);
  context.lineTo(x - dx * back + dy * half * 1.25, y - dy * back - dx * half * 1.25);
  context.fillStyle = colour;
  context.fill();
};
