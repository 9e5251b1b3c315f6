// Runs before the page is drawn, so that it does not flash in the wrong colours: the chosen theme, or that of the system.
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    let chosen = null;
    try {
      chosen = localStorage.getItem("maos.theme");
    } catch {
      // storage may be forbidden; the system decides then
    }
    document.documentElement.dataset.theme = chosen || (system.matches ? "dark" : "light");
  };
  apply();
  system.addEventListener("change", apply);
})();
