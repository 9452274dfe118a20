"use strict";
// Draws the figures of a page in the colours of its ground.

const CONFIG = { responsive: true, displaylogo: false, modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]] };
const darkness = matchMedia("(prefers-color-scheme: dark)");
const narrow = matchMedia("(max-width: 720px)");
const parsed = (id) => JSON.parse(document.getElementById(id).textContent);

function themed({ light, dark }, isDark) {
  const figure = structuredClone(light);
  for (const [path, value] of isDark ? dark : []) {
    const last = path.at(-1);
    const holder = path.slice(0, -1).reduce((at, key) => at[key], figure);
    holder[last] = value;
  }
  return figure;
}

// Where there is no room for a legend beside a figure it stands below, and the title breaks.
const BELOW = { orientation: "h", x: 0, xanchor: "left", yref: "container", y: 0, yanchor: "bottom" };
function narrowed({ title = "", legend = {}, margin = {}, height = 400, ...layout }) {
  const { text, ...look } = title.text === undefined ? { text: title } : title;
  return {
    ...layout,
    height: height + 70,
    margin: { ...margin, l: 56, r: 8, b: 130 },
    legend: { ...legend, ...BELOW, font: { ...legend.font, size: 11 }, title: { ...legend.title, side: "top" } },
    title: { ...look, text: String(text).replace(": ", ":<br>"), font: { ...look.font, size: 13 } },
  };
}

function drawAll(isDark) {
  for (const place of document.querySelectorAll(".figure")) {
    const { data, layout } = themed(parsed(`${place.id}-data`), isDark);
    Plotly.react(place, data, narrow.matches && !place.closest(".broad") ? narrowed(layout) : layout, CONFIG);
  }
}

function keepDrawn() {
  drawAll(darkness.matches);
  for (const changing of [darkness, narrow]) changing.addEventListener("change", () => drawAll(darkness.matches));
  addEventListener("beforeprint", () => darkness.matches && drawAll(false));
  addEventListener("afterprint", () => darkness.matches && drawAll(true));
}
