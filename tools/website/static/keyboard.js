// What is wider than its place can be scrolled by keys, and a link that is a formula says what it reads.
(() => {
  const WIDE = "article :is(pre, table, .table-wrapper, .formula, .site-figure, .output)";
  const reach = () => {
    for (const part of document.querySelectorAll(WIDE)) {
      if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
      else part.removeAttribute("tabindex");
    }
  };
  document.addEventListener("DOMContentLoaded", () => {
    for (const link of document.querySelectorAll("article a:has(math)"))
      link.setAttribute("aria-label", link.textContent.trim());
    reach();
    addEventListener("resize", reach);
  });
})();
