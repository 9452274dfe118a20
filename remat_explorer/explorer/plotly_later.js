// plotly's own widget, compressed, in place of CODE. To compile it takes half a second, in which nothing is painted. So it
// waits for a view of the figure, which is made when all else is there, and until what stands in for the figure is painted.
// What the kernel says of the figure meanwhile is kept, and told to plotly in its order once it is there. The kernel numbers
// what it says: where something is missing, what follows is not drawn either, for it says of a figure that the page has not
// got what changes in it. The figure then stays behind its revision, and is asked for anew.
const ONCE = Symbol.for("remat_explorer: plotly VERSION"); // all figures of a page share it
const HIDDEN = 500; // milliseconds after which it waits no longer: a hidden page paints nothing
const SAID = ["addTraces", "deleteTraces", "restyle", "relayout", "update"].map((name) => `_py2js_${name}`);
const IN_ORDER = "told:"; // before the names of the events that plotly hears

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

// What the kernel says, one thing after the other: `through` is what plotly hears it by, `begin` tells what has been kept.
function inOrder(given) {
  const whole = changing(given);
  if (!whole?.trigger) return { through: (model) => model, begin: () => {} }; // elsewhere, as in marimo
  let [kept, telling, missed] = [[], null, false];
  let last = given.get("_last_layout_edit_id");

  function tell(said) {
    const number = said.message.layout_edit_id;
    missed ||= number !== last + 1;
    last = number;
    if (missed) return;
    telling = said;
    try {
      whole.trigger(`${IN_ORDER}change:${said.name}`);
    } catch (error) {
      missed = true;
      throw error;
    } finally {
      telling = null;
    }
  }

  for (const name of SAID)
    given.on(`change:${name}`, () => {
      const message = given.get(name);
      if (!message) return; // it is taken back as soon as it is said
      if (kept) kept.push({ name, message });
      else tell({ name, message });
    });
  // The whole state, which has been asked for: plotly draws it once it is there, and never after that.
  for (const name of ["_widget_data", "_widget_layout"])
    given.on(`change:${name}`, () => {
      if (kept) [kept, last] = [[], given.get("_last_layout_edit_id")];
      else missed = true;
    });

  const event = (name) => (SAID.some((said) => name === `change:${said}`) ? IN_ORDER + name : name);
  return {
    through: (model) => ({
      ...model,
      get: (name) => (name === telling?.name ? telling.message : model.get(name)),
      on: (name, heard) => model.on(event(name), heard),
      off: (name, heard) => model.off(name && event(name), heard),
    }),
    begin() {
      const before = kept;
      kept = null;
      before.forEach(tell);
    },
  };
}

export default () => {
  let [given, figure, order] = [null, null, null];
  async function begun() {
    const { default: begin } = await (window[ONCE] ??= compiled());
    const widget = begin();
    await widget.initialize({ ...given, model: order.through(given.model) });
    order.begin();
    return widget;
  }
  return {
    initialize(asked) {
      given = asked;
      order = inOrder(asked.model);
    },
    render: async (asked) => (await (figure ??= begun())).render(asked), // which hears by the model that it began with
  };
};
