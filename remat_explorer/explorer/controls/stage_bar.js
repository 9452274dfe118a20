// The stages: a slider, steps to either side, a player, and what the selected one does. Whoever has the model plays.
function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "remat-stage-bar";
  const button = (text, label, press) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.title = label;
    made.setAttribute("aria-label", label);
    made.addEventListener("click", press);
    root.append(made);
    return made;
  };
  const move = (stage) => {
    model.set("stage", Math.max(0, Math.min(model.get("stages") - 1, stage)));
    model.save_changes();
  };
  const back = button("‹", "Previous stage", () => move(model.get("stage") - 1));
  const play = button("▶", "Play the stages", () => {
    model.set("playing", !model.get("playing"));
    model.save_changes();
  });
  const forward = button("›", "Next stage", () => move(model.get("stage") + 1));
  const slider = document.createElement("input");
  slider.type = "range";
  slider.setAttribute("aria-label", "The selected stage");
  slider.addEventListener("input", () => move(Number(slider.value)));
  const label = document.createElement("span");
  label.className = "label";
  const sentence = document.createElement("span");
  sentence.className = "sentence";
  root.append(slider, label, sentence);
  el.append(root);

  function draw() {
    const [stage, stages] = [model.get("stage"), model.get("stages")];
    slider.max = stages - 1;
    slider.value = stage;
    label.textContent = `Stage ${stage} of 0–${stages - 1}`;
    back.disabled = stage === 0;
    forward.disabled = stage === stages - 1;
  }

  function say() {
    sentence.innerHTML = model.get("sentence"); // its text is escaped
    sentence.title = sentence.textContent;
  }

  function showPlayer() {
    const playing = model.get("playing");
    play.textContent = playing ? "❙❙" : "▶";
    play.title = playing ? "Stop here" : "Play the stages one after the other, up to the last (Space in the matrices)";
    play.setAttribute("aria-label", playing ? "Stop" : "Play the stages");
  }

  for (const name of ["stage", "stages"]) model.on(`change:${name}`, draw);
  model.on("change:sentence", say);
  model.on("change:playing", showPlayer);
  draw();
  say();
  showPlayer();
}

export default { render };
