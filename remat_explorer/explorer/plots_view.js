// What the page does with plotly's figure by itself. The band over the selected stage is a rectangle in plotly's own
// drawing: it moves without plotly, which would draw everything anew, and a picture of the drawing contains it. Clicks
// are sent one by one: of what plotly's own widget sends while the kernel is busy only the last thing is kept, and a
// click is followed by news of the pointer. A figure that is not the one it should be is asked for again, and so is one
// that never came: anywidget gives up what does not load within two seconds, and plotly is large. And where its place
// gets another size, it is drawn at that.
const NARROWEST = 2; // pixels of the band, of however many stages
const PATIENCE = 500; // milliseconds for a change to arrive at first
const LOADING = 5000; // milliseconds for a figure to come that loads plotly, and then twice as many each time
const ARRIVED = 1000; // milliseconds at most for a change to arrive at a figure that has just come

function render({ model, el }) {
  const band = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [name, value] of Object.entries({ class: "remat-stage-band", opacity: 0.18, "pointer-events": "none" }))
    band.setAttribute(name, value);
  let [plot, over] = [null, false];
  let [patience, waiting] = [PATIENCE, null];

  function draw() {
    const { xaxis2: x, yaxis2: y } = plot?._fullLayout ?? {};
    const drawing = plot?.querySelector("svg.main-svg");
    if (!drawing || !x?._length || !y?._length) return;
    const [left, right] = ["start", "end"].map((name) => Math.max(0, Math.min(x._length, x.l2p(model.get(name)))));
    const width = Math.max(right - left, NARROWEST);
    const middle = x._offset + (left + right) / 2;
    const place = { x: middle - width / 2, y: y._offset, width, height: y._length, fill: model.get("colour") };
    for (const [name, value] of Object.entries(place)) band.setAttribute(name, value);
    if (band.parentNode !== drawing) drawing.append(band);
  }

  const isThere = () => plot?.isConnected && plot.layout;
  const behind = () => (isThere() ? plot.layout.meta : 0) !== model.get("revision"); // 0 before there is one

  // The time begins anew with every revision: while changes follow each other, none is missed yet.
  function compare() {
    clearTimeout(waiting);
    waiting = null;
    if (behind()) waiting = setTimeout(ask, isThere() ? patience : Math.max(patience, LOADING));
    else patience = PATIENCE;
  }

  function ask() {
    const ended = el.closest(".jupyter-widgets-disconnected"); // no kernel that could send it again
    const isSeen = el.closest(".remat-plots")?.getClientRects().length; // else it need not be drawn yet
    if (behind() && !ended && isSeen) {
      patience = Math.max(LOADING, 2 * patience);
      model.send({ missed: model.get("revision") });
    }
    compare();
  }

  // plotly itself looks at the window alone.
  const sizes = new ResizeObserver(() => plot?._responsiveChartHandler?.());

  // plotly is loaded late, and the figure may be replaced by another one.
  function follow() {
    const found = el.closest(".remat-plots")?.querySelector(".js-plotly-plot");
    if (!found && plot && !plot.isConnected && !waiting) compare(); // it has gone, and none has come
    if (!found?.on || found === plot) return;
    if (plot) sizes.disconnect();
    model.send({ arrived: true });
    plot = found;
    sizes.observe(plot.parentElement);
    for (const event of ["plotly_afterplot", "plotly_relayouting"]) plot.on(event, draw);
    plot.on("plotly_click", ({ points }) => {
      if (points.length) model.send({ trace: points[0].data.name, point: points[0].pointNumber });
    });
    draw();
    patience = Math.min(patience, ARRIVED); // what changed while it was on its way is lost
    compare();
  }

  const changes = new MutationObserver(follow);
  function begin() {
    const home = el.closest(".remat-plots");
    if (home) changes.observe(home, { childList: true, subtree: true });
    else if (!over) requestAnimationFrame(begin);
    follow();
  }
  for (const name of ["start", "end", "colour"]) model.on(`change:${name}`, draw);
  model.on("change:revision", compare);
  begin();
  compare();
  return () => {
    over = true;
    clearTimeout(waiting);
    changes.disconnect();
    sizes.disconnect();
    band.remove();
  };
}

export default { render };
