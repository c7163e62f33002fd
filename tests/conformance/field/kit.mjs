// The work of the tools, with the abort signal of the SDK: the means of Node to end a child process.

import { spawn } from 'node:child_process';

const run = (command, args, signal) =>
    new Promise((resolve, reject) => {
        const child = spawn(command, args, { signal, stdio: ['ignore', 'ignore', 'inherit'] });
        child.once('error', reject);
        child.once('exit', code => resolve({ content: [{ type: 'text', text: `exit code ${code}` }] }));
    });

export const echo = text => ({ content: [{ type: 'text', text }] });
export const sleep = (seconds, signal) => run('sleep', [String(seconds)], signal);
export const stubborn = (seconds, signal) =>
    run('sh', ['-c', `trap '' TERM; sleep ${Number(seconds)} & wait`], signal);
