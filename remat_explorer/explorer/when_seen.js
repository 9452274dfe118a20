// Draws at the next frame, once for however many calls. Where the page is hidden, as JupyterLab does for a moment when its
// theme changes, it draws once it is seen: it may come back at the same size, of which no observer of sizes would tell.
// `draw` returns whether it could.
function whenSeen(root, draw) {
  let framed = false;
  const seen = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    seen.disconnect();
    redraw();
  });
  function redraw() {
    if (framed) return;
    framed = true;
    requestAnimationFrame(() => {
      framed = false;
      if (!draw()) seen.observe(root);
    });
  }
  redraw.end = () => seen.disconnect();
  return redraw;
}
