// Draws the figures of a page with the site's own copy of plotly, which is loaded where there are figures only.
(() => {
  const here = document.currentScript.src;
  const draw = (figure) => {
    const script = figure.querySelector("script");
    const { data, layout, frames } = JSON.parse(script.textContent);
    script.remove();
    const drawing = figure.appendChild(document.createElement("div"));
    const config = { responsive: !layout.width, displaylogo: false };
    window.Plotly.newPlot(drawing, { data, layout, frames, config });
  };
  document.addEventListener("DOMContentLoaded", () => {
    const figures = [...document.querySelectorAll(".site-figure")];
    if (!figures.length) return;
    const plotly = document.createElement("script");
    plotly.src = new URL("plotly.min.js", here).href;
    plotly.onload = () => figures.forEach(draw);
    document.head.append(plotly);
  });
})();
