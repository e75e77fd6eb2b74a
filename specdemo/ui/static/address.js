// A race as an address: what a link, or a reload, brings back.

const MAX_ADDRESS = 8000; // servers on the way refuse longer ones

/** A race that began, or is asked for, as the query of a link. */
function raceQuery(start) {
  const { sampling = {} } = start;
  return new URLSearchParams({
    prompt: str(start.prompt),
    method: str(start.method),
    pair: str(start.pair),
    rule: str(start.rule),
    seed: num(sampling.seed),
    temperature: num(sampling.temperature),
    top_p: num(sampling.top_p, 1),
    new: num(start.max_new_tokens),
    params: JSON.stringify(start.params || {}),
  });
}

/** A reload brings the prompt and the settings asked for back: they stand in the address, beside what stood there before. */
function remember(ask) {
  const kept = new URLSearchParams(location.search);
  raceQuery(ask).forEach((value, key) => kept.set(key, value));
  if (String(kept).length > MAX_ADDRESS) kept.delete("prompt");
  history.replaceState(history.state, "", `?${kept}`);
}
