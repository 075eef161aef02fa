"use strict";
// Reading a chart: the point nearest to the pointer, or the next one by arrow key, with the values of all lines there.
Atlas.views.curve = (root, data) => {
  const svg = root.querySelector(":scope > svg");
  const cursor = svg.querySelector("[data-cursor]");
  let current = -1;

  const show = (index) => {
    current = index;
    const [x, place, ...values] = data.points[index];
    cursor.replaceChildren();
    Atlas.svg(cursor, "path", { d: `M${place} 14V272` });
    const rows = [];
    values.forEach((pair, line) => {
      if (!pair) return;
      rows.push([data.names[line], Atlas.number(pair[0], 4)]);
      Atlas.svg(cursor, "circle", { cx: place, cy: pair[1], r: 5.5 });
    });
    const box = svg.getBoundingClientRect();
    const highest = Math.min(...values.filter(Boolean).map(([, y]) => y));
    const at = [box.left + (place / 680) * box.width, box.top + (highest / 320) * box.height - 8];
    Atlas.tip.show(...at, `${data.x}: ${String(x).replace("-", "−")}`, rows);
  };
  const hide = () => {
    cursor.replaceChildren();
    Atlas.tip.hide();
  };

  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * 680;
    const distance = ([, place]) => Math.abs(place - x);
    show(data.points.reduce((best, point, index) => (distance(point) < distance(data.points[best]) ? index : best), 0));
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return hide();
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return undefined;
    event.preventDefault();
    return show(Math.min(data.points.length - 1, Math.max(0, current + step)));
  });
};
