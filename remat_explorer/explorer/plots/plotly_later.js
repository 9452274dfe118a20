// plotly's own widget, compressed, in place of CODE. To compile it takes half a second, in which nothing is painted. So it
// waits for a view of the figure, which is made when all else is there, and until what stands in for the figure is painted.
const ONCE = Symbol.for("remat_explorer: plotly VERSION"); // all figures of a page share it
const HIDDEN = 500; // milliseconds after which it waits no longer: a hidden page paints nothing

function painted() {
  const frame = new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return Promise.race([frame, new Promise((done) => setTimeout(done, HIDDEN))]);
}

async function compiled() {
  const characters = atob("CODE");
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  const inflated = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const code = await new Response(inflated).arrayBuffer();
  await painted();
  const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  try {
    return await import(address);
  } finally {
    URL.revokeObjectURL(address);
  }
}

export default () => {
  let [given, figure] = [null, null];
  async function begun() {
    const { default: begin } = await (window[ONCE] ??= compiled());
    const widget = begin();
    await widget.initialize(given);
    return widget;
  }
  return {
    initialize: (asked) => void (given = asked),
    render: async (asked) => (await (figure ??= begun())).render(asked),
  };
};
