// Places of the page as addresses: #lesson-STEP and #recording-NAME.

const LESSON = /^#lesson-([\w-]+)$/;
const RECORDING = /^#recording-([\w-]+)$/;

/** The step of the lesson that an address names; null if none. */
export const lessonPlace = (hash) => LESSON.exec(hash)?.[1] ?? null;

/** The recording that an address names; null if none. */
export const recordingPlace = (hash) => RECORDING.exec(hash)?.[1] ?? null;

/** The address names this place now; nothing is loaded. */
export function showPlace(name) {
  history.replaceState(history.state, "", `${location.pathname}${location.search}#${name}`);
}

/** Opens the tab of this name, where the page has tabs. */
export function openTab(name) {
  const tabs = [...document.querySelectorAll('#tabs [role="tab"]')];
  const tab = tabs.find((one) => one.textContent.trim() === name);
  if (tab && tab.getAttribute("aria-selected") !== "true") tab.click();
}
