// The numbers of the settings: Gradio makes an empty one its least, and one beyond its limits the
// nearest, without a word.

import { clamp } from "./format.js";

const FIELDS = "#settings input[type=number], #bench-here input[type=number]";

/** An emptied field gets its number back, a limited one is told; `say` shows a sentence. */
export function guardNumbers(say) {
  let before = ""; // the number when the field got the focus
  const onFocus = ({ target }) => {
    if (target.matches?.(FIELDS)) before = target.value;
  };
  const onInput = (e) => {
    if (e.target.matches?.(FIELDS) && e.target.value === "") e.stopImmediatePropagation();
  };
  const onLeave = ({ target }) => {
    if (!target.matches?.(FIELDS)) return;
    if (target.value === "") {
      target.value = before;
      target.dispatchEvent(new Event("input", { bubbles: true }));
      say(`${nameOfField(target)} cannot be empty; ${before} stays.`);
      return;
    }
    const words = limitWords(target);
    if (words) say(`${nameOfField(target)} ${words}`);
  };
  document.addEventListener("focusin", onFocus, true);
  document.addEventListener("input", onInput, true);
  document.addEventListener("change", onLeave, true);
  document.addEventListener("blur", onLeave, true);
}

/** Nothing where the number is within its limits, or has none. */
function limitWords({ value, min, max }) {
  if (min === "" || max === "") return "";
  const kept = clamp(Number(value), Number(min), Number(max));
  return kept === Number(value) ? "" : `goes from ${min} to ${max}; ${value} becomes ${kept}.`;
}

function nameOfField(field) {
  const spoken = field.getAttribute("aria-label") ?? "";
  const label = field.closest("label")?.querySelector("span")?.textContent ?? "This number";
  return spoken.replace(/^number input for /i, "").trim() || label.trim();
}
