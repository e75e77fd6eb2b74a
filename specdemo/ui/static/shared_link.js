// A page opened by a link that names a prompt: the stage waits for Run, no recording plays on it.

import { flow } from "./format.js";
import { recordingPlace } from "./place.js";

const PRESS_RUN =
  "This link brings a prompt: press Run to race it, or choose a recorded race below.";

/** Shows the prompt that the address names; false where it names none, or a recording. */
export function showSharedPrompt(view) {
  const query = new URLSearchParams(location.search);
  const prompt = query.get("prompt");
  if (!view.isMain || !prompt || recordingPlace(location.hash)) return false;
  const { ar, spec } = view.lanes;
  const drafts = (query.get("against") ?? "ar") !== "ar";
  ar.name(drafts ? "Draft and verify" : "Plain decoding", "");
  spec.name(query.get("method") === "ar" ? "Plain decoding" : "Draft and verify", "");
  view.label = "shared prompt";
  view.prompt.textContent = flow(prompt);
  view.say(PRESS_RUN, "status");
  view.schedule();
  return true;
}
