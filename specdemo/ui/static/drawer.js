// The drawer with the settings, which Gradio opens and closes as an accordion.

/** Escape closes it, and the focus goes back to its button. */
export function closeOnEscape() {
  document.addEventListener("keydown", (e) => {
    const button = document.querySelector("#settings > button");
    if (e.key !== "Escape" || !e.isTrusted || e.defaultPrevented) return;
    if (!button?.classList.contains("open")) return;
    button.click();
    button.focus();
  });
}
