// What Gradio's own fields lack for the keyboard.

const close = (list) =>
  list.dispatchEvent(new window.KeyboardEvent("keydown", { key: "Escape", bubbles: true }));

/** A dropdown's list is closed when the focus leaves it; Ctrl + Enter in the prompt runs. */
export function helpFields() {
  document.addEventListener("focusout", ({ target }) => {
    if (target.getAttribute?.("role") === "combobox") setTimeout(() => close(target));
  });
  document.addEventListener("keydown", (e) => {
    const runs = e.key === "Enter" && (e.ctrlKey || e.metaKey) && e.target.closest("#prompt");
    if (runs) document.getElementById("run").click();
  });
}
