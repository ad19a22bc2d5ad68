// What the drivers in JavaScript share; the lines are those of lines.py.

'use strict';

const readline = require('readline');

function say(...words) {
    process.stdout.write(`${words.join(' ').replaceAll('\n', ' ')}\n`);
}

// Ends of many calls: how many of each, in the order of their first.
function outcomes(ends, count) {
    const counts = new Map();
    for (const end of ends) {
        counts.set(end, (counts.get(end) || 0) + 1);
    }
    if (ends.length < count) {
        counts.set('no answer', count - ends.length);
    }
    return [...counts].map(([end, number]) => `${number}*${end}`).join(', ');
}

// `call(done)` for `count` requests, of which each ends by done(NAME); `close` follows them.
function flood(count, call, close) {
    return new Promise((resolve) => {
        const ends = [];
        const limit = setTimeout(() => resolve(outcomes(ends, count)), 20000);
        for (let i = 0; i < count; i++) {
            call((end) => {
                ends.push(end);
                if (ends.length === count) {
                    clearTimeout(limit);
                    resolve(outcomes(ends, count));
                }
            });
        }
        close();
    });
}

// `make` returns an object of the commands, functions that return promises.
function serve(make, version, name) {
    const sessions = new Map();
    say('ready', version);
    const input = readline.createInterface({input: process.stdin});
    input.on('line', async (line) => {
        const [number, session, command, ...words] = line.split(' ');
        if (command === 'exit') {
            process.exit(0);
        }
        if (!sessions.has(session)) {
            sessions.set(session, make({
                state: (state) => say('*', session, 'state', state),
                event: (type, path) => say('*', session, 'event', type, path),
            }));
        }
        const commands = sessions.get(session);
        if (!commands[command]) {
            say(number, 'lacks');
            return;
        }
        try {
            const result = await commands[command](...words);
            say(number, result === null ? 'lacks' : `ok ${result === undefined ? '' : result}`);
        } catch (error) {
            say(number, 'error', name(error));
        }
    });
    input.on('close', () => process.kill(process.pid, 'SIGKILL'));
}

module.exports = {serve, flood};
