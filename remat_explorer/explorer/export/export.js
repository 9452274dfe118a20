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
