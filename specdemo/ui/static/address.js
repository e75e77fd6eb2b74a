// A race as an address: what a link, or a reload, brings back.

import { typed } from "./events.js";
import { str } from "./format.js";

const MAX_ADDRESS = 8000; // servers on the way refuse longer ones

/** A race that began, or is asked for, as the query of a link. */
export function raceQuery({ prompt, method, pair, rule, sampling, max_new_tokens, ...more }) {
  const { params, against, chosen_dtype: dtype } = more;
  return new URLSearchParams({
    prompt,
    method,
    pair,
    rule,
    seed: sampling.seed,
    temperature: sampling.temperature,
    top_p: sampling.top_p,
    new: max_new_tokens,
    params: JSON.stringify(params),
    ...(dtype && { dtype }),
    ...(against && { against: against.method, against_params: JSON.stringify(against.params) }),
  });
}

/**
 * The query with this race's values beside what stood there before; a prompt too long for an
 * address is left out.
 */
export function withRace(query, start) {
  const kept = new URLSearchParams(query);
  ["against", "against_params", "dtype"].forEach((key) => kept.delete(key));
  raceQuery(start).forEach((value, key) => kept.set(key, value));
  if (String(kept).length > MAX_ADDRESS) kept.delete("prompt");
  return kept;
}

/** A reload brings the prompt and the settings asked for back; `ask` is what the page sent. */
export function remember(ask) {
  const start = { ...typed({ ...ask, kind: "start" }), chosen_dtype: str(ask.chosen_dtype) };
  history.replaceState(history.state, "", `?${withRace(location.search, start)}`);
}
