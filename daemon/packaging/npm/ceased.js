#!/usr/bin/env node
// Runs the program of this machine's package, in place of this process where Node.js can (22.15 and later). `npm install`
// puts the program itself here (install.js), so this script runs only where install scripts are off.
"use strict";
const { program } = require("../program.js");

const args = process.argv.slice(2);
const command = program();
if (process.execve) process.execve(command, [command, ...args], process.env);

const { spawn } = require("child_process");
const child = spawn(command, args, { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
  console.error(`ceased: ${command} cannot be started: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (signal === null) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
