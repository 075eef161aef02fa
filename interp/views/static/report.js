"use strict";
// Marks in the contents the section in sight: the last one whose heading has passed the upper third of the window.
Atlas.views.report = (root) => {
  const links = [...root.querySelectorAll(".contents a")];
  const parts = links.map((link) => document.getElementById(link.hash.slice(1)));
  let frame = null;
  const mark = () => {
    frame = null;
    const bottom = scrollY > 0 && innerHeight + scrollY >= document.documentElement.scrollHeight - 4;
    const passed = parts.filter((part) => part.getBoundingClientRect().top < innerHeight / 3).length;
    const current = bottom ? links.length - 1 : Math.max(0, passed - 1);
    links.forEach((link, index) => (index === current ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current")));
  };
  addEventListener("scroll", () => (frame ??= requestAnimationFrame(mark)), { passive: true });
  mark();
};
