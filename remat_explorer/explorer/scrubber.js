// The stages: steps to either side, a player, a slider, and how fast they play.
const STAGE_TIME = 150; // milliseconds that a stage is shown for while playing at speed 1
const SPEEDS = [1, 2, 4];
const SHAPES = {
  back: "M11 2 5 8l6 6z M3 2h2v12H3z",
  play: "M4 2l9 6-9 6z",
  pause: "M4 2h3v12H4z M9 2h3v12H9z",
  forward: "M5 2l6 6-6 6z M11 2h2v12h-2z",
};

// The browser is the clock, so that stages never come faster than they can be drawn: one for all views of a model.
// It rests while a picture with a clock of its own is shown.
function initialize({ model }) {
  let clock = 0;
  const last = () => model.get("stages") - 1;
  const change = (name, value) => {
    model.set(name, value);
    model.save_changes();
  };
  const run = () => {
    clearInterval(clock);
    if (model.get("playing") && model.get("clocked")) clock = setInterval(tick, STAGE_TIME / model.get("speed"));
  };
  const tick = () => {
    if (model.get("stage") < last()) change("stage", model.get("stage") + 1);
    if (model.get("stage") >= last()) change("playing", false);
  };
  model.on("change:playing", () => {
    if (model.get("playing") && model.get("stage") >= last()) change("stage", 0); // it had been played to the end
    run();
  });
  for (const name of ["clocked", "speed"]) model.on(`change:${name}`, run);
  run();
  return () => clearInterval(clock);
}

function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "remat-stage-bar";
  const move = (stage) => {
    model.set("stage", Math.max(0, Math.min(model.get("stages") - 1, stage)));
    model.save_changes();
  };
  const button = (shape, label, press) => {
    const made = document.createElement("button");
    made.type = "button";
    made.innerHTML = '<svg viewBox="0 0 16 16" width="12" height="12" aria-hidden="true"><path fill="currentColor"/></svg>';
    name(made, shape, label);
    made.addEventListener("click", press);
    root.append(made);
    return made;
  };
  function name(button, shape, label, hint = label) {
    button.querySelector("path").setAttribute("d", SHAPES[shape]);
    button.title = hint;
    button.setAttribute("aria-label", label);
  }

  const back = button("back", "Previous stage", () => move(model.get("stage") - 1));
  const play = button("play", "Play the stages", () => {
    model.set("playing", !model.get("playing"));
    model.save_changes();
  });
  const forward = button("forward", "Next stage", () => move(model.get("stage") + 1));
  const slider = document.createElement("input");
  slider.type = "range";
  slider.title = "The selected stage; arrow keys, Page up and Page down move it";
  slider.setAttribute("aria-label", "The selected stage");
  slider.addEventListener("input", () => move(Number(slider.value)));
  const label = document.createElement("span");
  label.className = "label";
  const speed = document.createElement("select");
  speed.title = "How fast the stages play";
  speed.setAttribute("aria-label", "Speed");
  for (const times of SPEEDS) speed.add(new Option(`${times}×`, times));
  speed.addEventListener("change", () => {
    model.set("speed", Number(speed.value));
    model.save_changes();
  });
  root.append(slider, label, speed);
  el.append(root);

  function draw() {
    const [stage, last] = [model.get("stage"), model.get("stages") - 1];
    const nothing = last < 0;
    slider.max = Math.max(0, last);
    slider.value = stage;
    slider.setAttribute("aria-valuetext", nothing ? "none" : `stage ${stage} of 0 to ${last}`);
    label.textContent = nothing ? "no schedule yet" : `stage ${stage}`;
    label.title = nothing ? "" : `Each stage, 0 to ${last}, computes one new operation, and others again where that needs them`;
    slider.disabled = play.disabled = nothing;
    back.disabled = nothing || stage === 0;
    forward.disabled = nothing || stage === last;
  }

  function showPlayer() {
    speed.value = model.get("speed");
    speed.hidden = !model.get("playing");
    if (model.get("playing")) name(play, "pause", "Stop", "Stop here (Space in the matrices)");
    else name(play, "play", "Play the stages", "Play the stages one after another, up to the last (Space in the matrices)");
  }

  const hearers = { stage: draw, stages: draw, playing: showPlayer, speed: showPlayer };
  for (const [trait, hear] of Object.entries(hearers)) model.on(`change:${trait}`, hear);
  draw();
  showPlayer();
  return () => {
    for (const [trait, hear] of Object.entries(hearers)) model.off(`change:${trait}`, hear);
  };
}

export default { initialize, render };
