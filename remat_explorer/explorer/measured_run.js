// The measured line of plotly's figure, uncovered from left to right at the pace of the run: a clip in front of it, and
// a pen at its end. The line itself is plotly's.
const RUN_NAME = "measured";
let drawn = 0; // clips of the page have names of their own

function render({ model, el }) {
  const svg = (name) => document.createElementNS("http://www.w3.org/2000/svg", name);
  const clip = svg("clipPath");
  clip.id = `remat-measured-run-${++drawn}-${Math.random().toString(36).slice(2)}`;
  const cover = svg("rect");
  clip.append(cover);
  const pen = svg("circle");
  for (const [name, value] of Object.entries({ r: 4, "pointer-events": "none", class: "remat-pen" })) pen.setAttribute(name, value);
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  let [plot, begun, waiting] = [null, 0, 0];

  const shares = () => model.get("moments");

  // The line as plotly has drawn it, or null while there is none.
  function lineOf() {
    const number = plot?._fullData?.findIndex(({ name, visible, x }) => name === RUN_NAME && visible && x?.length > 1) ?? -1;
    if (number < 0) return null;
    const trace = plot._fullData[number];
    const node = [...plot.querySelectorAll("g.trace")].find((group) => group.__data__?.[0]?.trace?.index === trace.index);
    return node ? { trace, node, axes: [plot._fullLayout.xaxis2, plot._fullLayout.yaxis2] } : null;
  }

  // How much of the timeline has run after a share of the time.
  function reached(share) {
    const times = shares();
    let place = 1;
    while (place < times.length - 1 && times[place] < share) place++;
    const [before, after] = [times[place - 1], times[place]];
    const inside = after > before ? (share - before) / (after - before) : 1;
    return Math.min(1, (place - 1 + Math.max(0, Math.min(1, inside))) / (times.length - 1));
  }

  function uncover(line, share) {
    const { trace, node, axes } = line;
    const [across, up] = axes;
    const end = trace.x[trace.x.length - 1];
    const at = reached(share) * end;
    const place = across.l2p(at);
    let i = 0;
    while (i + 1 < trace.x.length && trace.x[i + 1] <= at) i++;
    for (const [name, value] of Object.entries({ x: -10, y: -10, width: Math.max(0, place + 10), height: up._length + 20 }))
      cover.setAttribute(name, value);
    if (clip.ownerSVGElement !== node.ownerSVGElement) node.ownerSVGElement.prepend(clip);
    if (node.style.clipPath === "") node.style.clipPath = `url("#${clip.id}")`;
    pen.setAttribute("cx", place);
    pen.setAttribute("cy", up.l2p(trace.y[i]));
    pen.setAttribute("fill", trace.line.color);
    if (pen.parentNode !== node.parentNode) node.parentNode.append(pen);
  }

  function end() {
    cancelAnimationFrame(waiting);
    begun = 0;
    pen.remove();
    clip.remove();
    const node = lineOf()?.node;
    if (node) node.style.clipPath = "";
    if (plot) plot.dataset.run = "drawn";
  }

  function frame(now) {
    const line = lineOf();
    if (!line || !plot.isConnected) return void (waiting = requestAnimationFrame(follow)); // plotly draws meanwhile
    begun ||= now;
    const share = Math.min(1, (now - begun) / (1000 * model.get("duration")));
    if (share >= 1) return end();
    plot.dataset.run = "drawing";
    plot.dataset.share = reached(share).toFixed(3);
    uncover(line, share);
    waiting = requestAnimationFrame(frame);
  }

  // Until the figure has a measured line; a new figure may take the place of an old one.
  function follow(now) {
    plot = el.closest(".remat-explorer")?.querySelector(".js-plotly-plot") ?? null;
    if (!el.isConnected) return;
    if (lineOf()) frame(now);
    else waiting = requestAnimationFrame(follow);
  }

  function draw() {
    cancelAnimationFrame(waiting);
    if (plot) end();
    if (still.matches || shares().length < 2 || model.get("drawings") === 0) return;
    begun = 0;
    waiting = requestAnimationFrame(follow);
  }

  model.on("change:drawings", draw);
  return () => {
    cancelAnimationFrame(waiting);
    if (plot) end();
  };
}

export default { render };
