// Where a style enlarges what is drawn, as the presenter's large type does: how much, how many pixels of the screen there
// are for one of the layout, and where a pointer is in an element, in the layout's pixels.
const enlarged = (element) => element.currentCSSZoom ?? 1;
const sharpness = (element) => (window.devicePixelRatio || 1) * enlarged(element);

function pointerIn(element, { clientX, clientY }) {
  const { left, top, width, height } = element.getBoundingClientRect();
  const [x, y, across, down] = [clientX - left, clientY - top, width, height].map((pixels) => pixels / enlarged(element));
  return { x, y, width: across, height: down };
}
