// Pictures of what is on the screen: canvases with the words around them, and plotly's layers as one drawing.

const SHARPNESS = 2; // pixels of a picture per pixel of the page

function groundOf(element) {
  for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (!/^(transparent|rgba\(.*, 0\))$/.test(colour)) return colour;
  }
  return "white";
}

function blobOf(canvas) {
  return new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large"))), "image/png"),
  );
}

function sheet(width, height, ground) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [Math.ceil(width * SHARPNESS), Math.ceil(height * SHARPNESS)];
  const context = canvas.getContext("2d");
  context.scale(SHARPNESS, SHARPNESS);
  context.fillStyle = ground;
  context.fillRect(0, 0, width, height);
  return [canvas, context];
}

function paintWords(context, node, corner) {
  const range = document.createRange();
  range.selectNodeContents(node);
  const box = range.getBoundingClientRect();
  if (!box.width || !node.data.trim()) return;
  const style = getComputedStyle(node.parentElement);
  context.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  context.fillStyle = style.color;
  context.textBaseline = "middle";
  context.fillText(node.data.replace(/\s+/g, " "), box.x - corner.x, box.y - corner.y + box.height / 2, box.width + 2);
}

// A gradient from left to right, as under the colour bar of U; nothing where there is none.
function gradient(context, image, [x, , width]) {
  const colours = image.match(/rgba?\([^)]*\)/g) ?? [];
  if (!image.startsWith("linear-gradient") || colours.length < 2) return "transparent";
  const fill = context.createLinearGradient(x, 0, x + width, 0);
  colours.forEach((colour, i) => fill.addColorStop(i / (colours.length - 1), colour));
  return fill;
}

// Canvases, grounds and words of an element, where they are in the page.
async function canvasPicture(root) {
  const corner = root.getBoundingClientRect();
  const [canvas, context] = sheet(corner.width, corner.height, groundOf(root));
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (node.nodeType === Node.TEXT_NODE) {
      paintWords(context, node, corner);
      continue;
    }
    const box = node.getBoundingClientRect();
    if (!box.width || !box.height || getComputedStyle(node).visibility === "hidden") continue;
    const place = [box.x - corner.x, box.y - corner.y, box.width, box.height];
    const { backgroundColor, backgroundImage } = getComputedStyle(node);
    for (const fill of [backgroundColor, gradient(context, backgroundImage, place)]) {
      context.fillStyle = fill;
      context.fillRect(...place);
    }
    if (node instanceof HTMLCanvasElement && node.width && node.height) context.drawImage(node, ...place);
  }
  return blobOf(canvas);
}

// plotly draws in several layers, one above the other.
function plotDrawing(plot) {
  const { offsetWidth: width, offsetHeight: height } = plot; // of the layout, however large it is shown
  const name = "http://www.w3.org/2000/svg";
  const drawing = document.createElementNS(name, "svg");
  for (const [key, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) {
    drawing.setAttribute(key, value);
  }
  const ground = document.createElementNS(name, "rect");
  ground.setAttribute("width", width);
  ground.setAttribute("height", height);
  ground.setAttribute("fill", groundOf(plot));
  drawing.append(ground, ...[...plot.querySelectorAll("svg.main-svg")].map((layer) => layer.cloneNode(true)));
  for (const drag of drawing.querySelectorAll(".drag, .hoverlayer")) drag.remove();
  return new XMLSerializer().serializeToString(drawing);
}

async function drawingPicture(drawing) {
  const address = URL.createObjectURL(new Blob([drawing], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const [canvas, context] = sheet(image.width, image.height, "white");
    context.drawImage(image, 0, 0);
    return await blobOf(canvas);
  } finally {
    URL.revokeObjectURL(address);
  }
}

// What `find` finds, at once or within five seconds: the plots are gone for a moment while another figure replaces them.
async function soon(find) {
  for (let attempt = 0; attempt < 50 && !find(); attempt++) await new Promise((done) => setTimeout(done, 100));
  return find();
}

async function picture(explorer, kind) {
  const shown = (selector) => [...explorer.querySelectorAll(selector)].find((found) => found.offsetWidth);
  const canvases = {
    "matrices-png": [".remat-matrices", "matrices are"],
    "memory-png": [".remat-map", "memory map is"],
    "model-png": [".remat-model", "model is"],
  }[kind];
  if (canvases) {
    const root = shown(canvases[0]);
    if (!root) throw new Error(`the ${canvases[1]} not on the screen`);
    return canvasPicture(root);
  }
  const plot = await soon(() => shown(".js-plotly-plot:has(svg.main-svg)"));
  if (!plot) throw new Error("the plots are not on the screen");
  const drawing = plotDrawing(plot);
  return kind === "plots-png" ? drawingPicture(drawing) : new Blob([drawing], { type: "image/svg+xml" });
}

// The button Export, its menu, and what the browser does of it: pictures and downloads.

const SAVE = "Save in the working directory of the kernel; no existing file is ever replaced";
const DOWNLOAD = "Download with the browser";

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function button(text, title, action) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.title = title;
  made.addEventListener("click", action);
  return made;
}

// A row for each kind; what changes later is which of them can be chosen.
function rowsOf(menu, model) {
  return model.get("entries").map(([kind, label]) => {
    const choose = (download) => () => {
      menu.hidePopover();
      model.send({ did: "choose", kind, download });
    };
    const row = document.createElement("div");
    if (!model.get("saving")) {
      row.append(button(label, DOWNLOAD, choose(true)));
      return row;
    }
    row.append(button(label, SAVE, choose(false)), button("↓", DOWNLOAD, choose(true)));
    row.lastChild.setAttribute("aria-label", `${label}: download`);
    return row;
  });
}

function enable(menu, model) {
  model.get("entries").forEach(([, , missing], i) => {
    [...menu.children[i].children].forEach((one, second) => {
      one.disabled = Boolean(missing);
      one.title = missing || (second || !model.get("saving") ? DOWNLOAD : SAVE);
    });
  });
}

export default () => {
  const places = new Set(); // a widget may be shown several times; one of them answers
  const parts = [];

  async function answer(model, message, buffers) {
    if (message.do === "download") {
      parts[message.part] = buffers[0];
      if (message.part + 1 === message.parts) save(new Blob(parts.splice(0)), message.name);
      return;
    }
    try {
      const [place] = places;
      if (!place) throw new Error("no explorer is on the screen");
      const blob = await picture(place.closest(".remat-explorer"), message.kind);
      if (message.download) save(blob, message.name);
      else model.send({ did: "picture", kind: message.kind }, undefined, [await blob.arrayBuffer()]);
    } catch (error) {
      model.send({ did: "fail", why: error.message });
    }
  }

  return {
    initialize({ model }) {
      model.on("msg:custom", (message, buffers) => answer(model, message, buffers));
    },
    render({ model, el }) {
      places.add(el);
      el.classList.add("remat-export");
      const menu = document.createElement("div");
      menu.className = "remat-export-menu";
      menu.popover = "auto";
      const opener = button("Export ▾", "Save or download graph, solution, report, pictures and traces", () => {
        const { right, bottom } = opener.getBoundingClientRect();
        menu.togglePopover();
        menu.style.left = `${Math.max(0, right - menu.offsetWidth)}px`;
        menu.style.top = `${Math.min(bottom, innerHeight - menu.offsetHeight)}px`;
        menu.querySelector("button:enabled")?.focus();
      });
      opener.setAttribute("aria-haspopup", "menu");
      menu.addEventListener("keydown", (event) => {
        const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        const all = [...menu.querySelectorAll("div > button:first-child:enabled")];
        const row = event.target.parentElement.firstChild;
        all[(all.indexOf(row) + step + all.length) % all.length].focus();
      });
      menu.append(...rowsOf(menu, model));
      const update = () => enable(menu, model);
      model.on("change:entries", update);
      update();
      el.append(opener, menu);
      return () => {
        places.delete(el);
        model.off("change:entries", update);
      };
    },
  };
};
