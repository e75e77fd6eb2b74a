// What the page's reader makes of trace files, for the comparison with Python's in
// tests/page/test_js.py:
// {name: text} as JSON on standard input, {name: {events} or {fault}} on standard output.

import { parseTrace } from "../../specdemo/ui/static/parse.js";

let input = "";
for await (const chunk of process.stdin) input += chunk;
const texts = Object.entries(JSON.parse(input));
console.log(
  JSON.stringify(Object.fromEntries(texts.map(([name, text]) => [name, parseTrace(text)]))),
);
