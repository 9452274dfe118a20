// What ipywidgets leaves on the page of a kernel that has ended looks alive, and raises an error at each click.
// Here it is told in words, and takes no clicks and keys until a kernel answers again.
const WORDS = "The kernel was restarted or has ended: run the cell again.";

function render({ model, el }) {
  const banner = document.createElement("div");
  banner.className = "remat-gone";
  banner.setAttribute("role", "alert");
  el.append(banner);
  // only what changes is told: until then the kernel is there
  function tell() {
    const explorer = el.closest(".remat-explorer");
    const ended = explorer?.classList.contains("jupyter-widgets-disconnected") ?? false;
    banner.textContent = ended ? WORDS : "";
    for (const row of explorer?.children ?? []) row.inert = ended && !row.contains(el);
  }
  // the explorer's own view hears of it beside this one, before or after
  const later = () => setTimeout(tell);
  model.on("comm_live_update", later);
  return () => model.off("comm_live_update", later);
}

export default { render };
