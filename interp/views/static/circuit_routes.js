"use strict";
// Geometry of a circuit's edges. Pure: everything comes in as arguments. World units are CSS pixels at zoom 1.
Atlas.circuit = {};

// Widens or narrows the drawing, never its letters, to the shape of the space it is shown in.
Atlas.circuit.stretch = (data, aspect) => {
  const factor = Math.min(2, Math.max(0.75, (aspect * data.height) / data.width));
  const wide = ([x, y, w, h]) => [x * factor, y, w * factor, h];
  for (const thing of [...data.nodes, ...data.groups, ...data.ports]) thing.box = wide(thing.box);
  data.unused = data.unused.map(([x, y]) => [x * factor, y]);
  data.width *= factor;
  data.column *= factor;
};

// A cubic curve for each edge, leaving a box at its top and entering a port at its bottom, and points along it to hit-test.
Atlas.circuit.routes = (data) => {
  const pitch = Math.max(...data.bands.map(([, top, bottom]) => bottom - top));
  const largest = Math.max(...data.edges.map((edge) => Math.abs(edge[2])), 1e-30);
  return data.edges.map(([from, to, score], index) => {
    const curve = Atlas.circuit.curve(data, data.nodes[from], data.ports[to], pitch);
    return { index, from, to, score, strength: Math.abs(score) / largest, curve, ...Atlas.circuit.trace(curve) };
  });
};

Atlas.circuit.curve = (data, source, port, pitch) => {
  const [sx, sy, sw] = source.box;
  const [px, py, pw, ph] = port.box;
  const target = port.node == null ? data.groups[port.group] : data.nodes[port.node];
  const fromBar = source.kind === "input";
  const toBar = port.kind === "logits";
  const end = py + ph;
  const centre = { from: sx + sw / 2, to: px + pw / 2 };
  if (fromBar && toBar) return [sx + 5, sy, sx + 5, sy - 20, sx + 5, end + 20, sx + 5, end];
  if (port.kind === "mlp" && source.layer === target.layer) return Atlas.circuit.sideways(centre.from, sy, target.box);
  // Ends spread over a box by where the other end lies, so that edges in one direction neither coincide nor cross there.
  const place = (x, width, other) => x + (Math.min(1, Math.max(0, other / data.width)) - 0.5) * width * 0.72;
  const x0 = fromBar ? 0 : place(centre.from, sw * 0.7, toBar ? centre.from : centre.to);
  const x3 = toBar ? 0 : place(centre.to, pw, fromBar ? centre.to : centre.from);
  if (fromBar) return Atlas.circuit.lane(data, { x: x3, sy, end, fromBar, layer: target.layer }, pitch);
  if (toBar) return Atlas.circuit.lane(data, { x: x0, sy, end, fromBar, layer: source.layer }, pitch);
  const rise = sy - end;
  const bend = Math.min(Math.max(rise * 0.45, 14), 260);
  const bow = Math.abs(x3 - x0) < data.column * 0.6 && rise > pitch * 0.9
    ? (source.layer % 2 ? 1 : -1) * Math.min(data.column * (0.5 + 0.35 * Math.min(1, rise / data.height)), rise * 0.9) : 0;
  return [x0, sy, x0 + bow, sy - bend, x3 + bow, end + bend, x3, end];
};

// Into an MLP of the same layer: over the heads between, into its left side.
Atlas.circuit.sideways = (x, y, [left, top, , height]) => {
  const middle = top + height / 2;
  return [x, y, x, y - 30, left - Math.min(70, (left - x) * 0.5), middle - 14, left, middle];
};

// Between a bar and a node far from it: up the gap beside the node's column, one lane per layer.
Atlas.circuit.lane = (data, { x, sy, end, fromBar, layer }, pitch) => {
  const left = data.nodes.find((node) => node.kind === "input").box[0];
  const gap = left + Math.round((x - left) / data.column) * data.column;
  const lane = gap + ((((layer * 5) % 11) - 5) / 11) * data.column * 0.16;
  if (sy - end < pitch * 0.9) return [x, sy, x, sy - (sy - end) / 3, x, end + (sy - end) / 3, x, end];
  const turn = Math.max(46, data.column * 0.3);
  return fromBar ? [lane, sy, lane, end + 16, x, end + turn, x, end] : [x, sy, x, sy - turn, lane, sy - 16, lane, end];
};

// 25 points along the curve and the rectangle around them.
Atlas.circuit.trace = ([x0, y0, x1, y1, x2, y2, x3, y3]) => {
  const points = new Float32Array(50);
  const bounds = [Infinity, Infinity, -Infinity, -Infinity];
  for (let step = 0; step <= 24; step++) {
    const t = step / 24;
    const u = 1 - t;
    const x = u * u * u * x0 + 3 * u * u * t * x1 + 3 * u * t * t * x2 + t * t * t * x3;
    const y = u * u * u * y0 + 3 * u * u * t * y1 + 3 * u * t * t * y2 + t * t * t * y3;
    points[2 * step] = x;
    points[2 * step + 1] = y;
    bounds[0] = Math.min(bounds[0], x);
    bounds[1] = Math.min(bounds[1], y);
    bounds[2] = Math.max(bounds[2], x);
    bounds[3] = Math.max(bounds[3], y);
  }
  return { points, bounds };
};

// The edge nearest to a point, within `reach`; of equally near ones the stronger.
Atlas.circuit.hit = (routes, x, y, reach) => {
  let best = null;
  let nearest = reach * reach;
  for (const route of routes) {
    const [left, top, right, bottom] = route.bounds;
    if (x < left - reach || x > right + reach || y < top - reach || y > bottom + reach) continue;
    const distance = Atlas.circuit.distance(route.points, x, y);
    if (distance < nearest) {
      nearest = distance;
      best = route;
    }
  }
  return best;
};

Atlas.circuit.distance = (points, x, y) => {
  let nearest = Infinity;
  for (let i = 0; i < points.length - 2; i += 2) {
    const dx = points[i + 2] - points[i];
    const dy = points[i + 3] - points[i + 1];
    const t = Math.min(1, Math.max(0, ((x - points[i]) * dx + (y - points[i + 1]) * dy) / (dx * dx + dy * dy || 1)));
    nearest = Math.min(nearest, (points[i] + t * dx - x) ** 2 + (points[i + 1] + t * dy - y) ** 2);
  }
  return nearest;
};
