// Replaces bin/ceased by the program, so that no Node.js stands between a host and ceased. Failure is no error: the
// script that is there runs the program, too.
"use strict";
const fs = require("fs");
const path = require("path");
const { program } = require("./program.js");

const place = path.join(__dirname, "bin", "ceased");
const fresh = `${place}.new`;
try {
  try {
    fs.linkSync(program(), fresh);
  } catch {
    fs.copyFileSync(program(), fresh);
    fs.chmodSync(fresh, 0o755);
  }
  fs.renameSync(fresh, place);
} catch (error) {
  console.error(`ceased: ${place} stays a script: ${error.message}`);
}
