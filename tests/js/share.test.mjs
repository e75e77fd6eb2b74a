import assert from "node:assert/strict";
import { test } from "node:test";

import { isLoopback } from "../../specdemo/ui/static/share_box.js";

test("an address of this computer alone is told from one that others open", () => {
  for (const host of ["127.0.0.1", "127.3.2.1", "localhost", "a.localhost", "[::1]", "0.0.0.0"])
    assert.ok(isLoopback(host), host);
  for (const host of ["192.168.1.5", "127.example.org", "notlocalhost", "example.org", "[::2]"])
    assert.ok(!isLoopback(host), host);
});
