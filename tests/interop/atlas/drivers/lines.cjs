// What the drivers in JavaScript share; the lines are those of lines.py.

'use strict';

const readline = require('readline');

function say(...words) {
    process.stdout.write(`${words.join(' ').replaceAll('\n', ' ')}\n`);
}

const LACKS = Symbol('the library has no such thing');

// Ends of many calls, in the order of the calls: how many in a row have the same.
function outcomes(ends) {
    const groups = [];
    for (const end of ends) {
        if (groups.length && groups[groups.length - 1][1] === end) {
            groups[groups.length - 1][0] += 1;
        } else {
            groups.push([1, end]);
        }
    }
    return groups.map(([count, end]) => `${count}*${end}`).join(', ');
}

// `call(done)` for `count` requests, of which each ends by done(NAME); `close` follows them.
function flood(count, call, close) {
    return new Promise((resolve) => {
        const ends = new Array(count).fill('no answer');
        const limit = setTimeout(() => resolve(outcomes(ends)), 20000);
        let left = count;
        for (let i = 0; i < count; i++) {
            call((end) => {
                ends[i] = end;
                left -= 1;
                if (left === 0) {
                    clearTimeout(limit);
                    resolve(outcomes(ends));
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
            say(number, result === LACKS ? 'lacks' : `ok ${result ?? ''}`);
        } catch (error) {
            say(number, 'error', name(error));
        }
    });
    input.on('close', () => process.kill(process.pid, 'SIGKILL'));
}

function stat(version, children, acl, size, count, owner) {
    return `${version} ${children} ${acl}, ${size} bytes, ${count} children${owner ? ', owned' : ''}`;
}

module.exports = {serve, flood, stat, LACKS};
