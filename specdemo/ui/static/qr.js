// A QR code, drawn from its modules.

import { s } from "./dom.js";

const QUIET = 4; // modules of white around it, as the standard asks for

/** `rows` are texts of 0 and 1, a character a module; `label` says what the code holds. */
export function qrImage(rows, label) {
  const size = rows.length + 2 * QUIET;
  const dark = rows.flatMap((row, y) =>
    [...row].flatMap((module, x) => (module === "1" ? [`M${x + QUIET} ${y + QUIET}h1v1h-1z`] : [])),
  );
  return s(
    "svg",
    { class: "sd-qr", viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": label },
    s("rect", { width: size, height: size, fill: "#fff" }),
    s("path", { d: dark.join(""), fill: "#000", "shape-rendering": "crispEdges" }),
  );
}
