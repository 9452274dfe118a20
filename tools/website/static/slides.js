// The page of slides: marks its sections as slides, and turns them by keys.
document.addEventListener("DOMContentLoaded", () => {
  const begin = document.querySelector(".slides-begin");
  if (!begin) return;
  document.documentElement.classList.add("slides-page");
  const whole = begin.closest("section");
  const parts = [...whole.querySelectorAll(":scope > section")];
  const title = document.createElement("div"); // what comes before the first section of its own
  title.append(...[...whole.childNodes].filter((node) => !parts.includes(node)));
  whole.prepend(title);
  const slides = [title, ...parts];
  for (const slide of slides) slide.classList.add("slide");
  const steps = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1, Home: -99, End: 99 };
  document.addEventListener("keydown", (event) => {
    const step = steps[event.key];
    if (!step || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const away = slides.map((slide) => Math.abs(slide.getBoundingClientRect().top));
    const next = away.indexOf(Math.min(...away)) + step;
    slides[Math.max(0, Math.min(slides.length - 1, next))].scrollIntoView();
  });
});
