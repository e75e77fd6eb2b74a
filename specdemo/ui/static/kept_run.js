// The name of the race that runs in this tab, by which the page finds it again when it is loaded
// again; read by ui/found_again.py.

const RUN_KEY = "specdemo-run";
const NO_NAME_YET = "waiting"; // its turn has not come

const keptInTab = (act) => {
  try {
    return act(sessionStorage);
  } catch {
    return null; // a browser that keeps nothing
  }
};

export const keepRun = (name = NO_NAME_YET) => keptInTab((kept) => kept.setItem(RUN_KEY, name));

/** The run of this name, or the waiting, is over. */
export const forgetRun = (name = NO_NAME_YET) =>
  keptInTab((kept) => kept.getItem(RUN_KEY) === name && kept.removeItem(RUN_KEY));
