"use strict";
// What every view shares: theme, tooltip, numbers, element helpers. Views register themselves in Atlas.views by name.
const Atlas = { views: {}, themeListeners: [] };

Atlas.start = () => {
  Atlas.initTheme();
  for (const root of document.querySelectorAll("[data-view]")) {
    const block = root.querySelector(':scope > script[type="application/json"]');
    Atlas.views[root.dataset.view](root, JSON.parse(block.textContent));
  }
};

// Theme: the system's until the reader chooses; then the reader's.
Atlas.initTheme = () => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const apply = () => {
    document.documentElement.dataset.theme = chosen ?? (system.matches ? "dark" : "light");
    for (const listener of Atlas.themeListeners) listener();
  };
  system.addEventListener("change", apply);
  for (const button of document.querySelectorAll("[data-theme-toggle]")) {
    button.addEventListener("click", () => {
      chosen = Atlas.isDark() ? "light" : "dark";
      apply();
    });
  }
  apply();
};
Atlas.isDark = () => document.documentElement.dataset.theme === "dark";
// Black or white, whichever reads better on a #rrggbb ground (relative luminance, WCAG 2).
Atlas.inkOn = (hex) => {
  const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = [1, 3, 5].map((at) => linear(parseInt(hex.slice(at, at + 2), 16) / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
};
Atlas.colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// Elements. Text always enters as text, never as markup.
Atlas.el = (tag, attributes = {}, ...children) => Atlas.fill(document.createElement(tag), attributes, children);
Atlas.svg = (parent, tag, attributes = {}, ...children) => {
  const node = Atlas.fill(document.createElementNS(parent.namespaceURI, tag), attributes, children);
  parent.appendChild(node);
  return node;
};
Atlas.fill = (node, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) if (value != null) node.setAttribute(name, value);
  node.append(...children.filter((child) => child != null));
  return node;
};

// Numbers: three significant digits to read, all that float32 holds to quote. A true minus sign aligns with the plus.
Atlas.number = (value, digits = 3) => {
  if (value == null) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e5 || size < 1e-4 ? value.toExponential(digits - 1) : String(Number(value.toPrecision(digits)));
  return Atlas.pad(text, size, digits).replace("-", "−");
};
Atlas.pad = (text, size, digits) => {
  if (text.includes("e") || size >= 10 ** (digits - 1)) return text;
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  return Number(text).toFixed(Math.min(decimals, 9));
};
Atlas.signed = (value, digits = 3) => (value > 0 ? "+" : "") + Atlas.number(value, digits);
Atlas.exact = (value) => (value > 0 ? "+" : "") + String(value).replace("-", "−");
Atlas.count = (value) => value.toLocaleString("en-US");

// One tooltip for the page. rows: [name, value] pairs.
Atlas.tip = {
  box: null,
  show(x, y, title, rows = [], foot = "") {
    this.box ??= document.body.appendChild(Atlas.el("div", { class: "tip", role: "tooltip", hidden: "" }));
    const table = Atlas.el("table");
    for (const [name, value] of rows) table.append(Atlas.el("tr", {}, Atlas.el("th", {}, name), Atlas.el("td", {}, value)));
    this.box.replaceChildren(Atlas.el("b", {}, title), table, foot);
    this.box.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.box;
    const left = x + 14 + width > innerWidth ? x - 14 - width : x + 14;
    const top = y + 14 + height > innerHeight ? y - 10 - height : y + 14;
    this.box.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
  },
  hide() {
    if (this.box) this.box.hidden = true;
  },
};

// Saves text as a file, through an object URL that lives only as long as the click.
Atlas.save = (name, type, text) => {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = Atlas.el("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
};
