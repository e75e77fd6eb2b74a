// The cells of the block strip as the page shows them, for the comparison with Python's in
// tests/test_pictures.py: {name of a recording: [[round, part, tokens, verdicts, own], ...]}.

import { mainCells, replayed, targetToken } from "../../specdemo/ui/static/strip_model.js";
import { fold, shippedNames, shippedText } from "./recordings.mjs";

const PARTS = [0, 0.05, 0.2, 0.4, 0.5, 0.6, 0.75, 0.9, 1];

const rows = ({ rounds }) =>
  rounds.flatMap((round) =>
    PARTS.map((part) => {
      const moment = replayed(round, part);
      const cells = mainCells(moment);
      const own = targetToken(moment);
      return [
        round.index,
        part,
        cells.map((cell) => (cell.masked ? null : cell.id)),
        cells.map((cell) => cell.verdict ?? ""),
        own ? [own.at, own.token.id, own.token.source] : null,
      ];
    }),
  );

console.log(
  JSON.stringify(
    Object.fromEntries(
      shippedNames().map((name) => [name, rows(fold(JSON.parse(shippedText(name)).events))]),
    ),
  ),
);
