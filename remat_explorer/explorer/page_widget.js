// anywidget waits two seconds for a module and what it initializes. On a page that is busy for longer, as one that opens on
// a slow machine, it gives up: the widget is drawn, but nothing that the kernel says reaches it any more. Here it does again,
// and asks for its state, since what was said meanwhile is lost.
const SILENCE = { content: { data: { method: "" } }, metadata: {}, buffers: [] };

// The model itself, of which a module is given some methods only: it comes with every change.
function changing(given) {
  let found = null;
  const take = (model) => (found = model);
  given.on("change:probed", take);
  given.set("probed", !given.get("probed"));
  given.off("change:probed", take);
  return found;
}

async function hearAgain(model) {
  try {
    await model._handle_comm_msg(SILENCE);
  } catch {
    const deaf = model._handle_comm_msg;
    let kind = model;
    while (kind._handle_comm_msg === deaf) kind = Object.getPrototypeOf(kind);
    model.comm?.on_msg((message) => kind._handle_comm_msg.call(model, message));
    model.comm?.send({ method: "request_state" }, {});
  }
}

export default async () => {
  const widget = typeof offered === "function" ? await offered() : offered;
  return {
    ...widget,
    initialize(given) {
      const model = changing(given.model);
      if (model?._handle_comm_msg) hearAgain(model); // elsewhere, as in marimo, nobody gives up
      return widget.initialize?.(given);
    },
  };
};
