// The tasks by node-zookeeper-client: tasks_node.cjs FOLDER-OF-ITS-MODULES HOSTS.
//
// It lacks all operations that came after ZooKeeper 3.4, and sync.

'use strict';

const readline = require('readline');
const {createRequire} = require('module');

const [folder, hosts] = process.argv.slice(2);
const zookeeper = createRequire(`${folder}/`)('node-zookeeper-client');

const {ACL, CreateMode, Id, Permission} = zookeeper;
const OPTIONS = {sessionTimeout: 10000, spinDelay: 100};
const input = readline.createInterface({input: process.stdin});
const events = [];
const states = [];
let waiting = null; // resolves when an event or a state has come
let number = 0;
let task = 'connect';

function shown(value) {
    if (value === undefined || value === null) {
        return 'none';
    } else if (Buffer.isBuffer(value)) {
        return `"${value}"`;
    } else if (Array.isArray(value)) { // children come in the order of a hash table
        return `[${value.map(shown).sort().join(', ')}]`;
    } else if (value instanceof ACL) {
        return `${value.id.scheme}:${value.id.id}:${value.permission}`;
    } else if (value.specification && value.czxid) { // a stat
        const owned = value.ephemeralOwner.equals(Buffer.alloc(8)) ? 'not owned' : 'owned';
        return `(${value.version}, ${value.cversion}, ${value.aversion}) ${owned} `
            + `${value.dataLength} bytes ${value.numChildren} children`;
    }
    return String(value);
}

function tell(call, result) {
    process.stdout.write(`${task}: ${call} = ${result}\n`);
}

function came() {
    if (waiting) {
        waiting();
    }
}

function watcher(event) {
    events.push(`${event.getName()} ${event.getPath()}`);
    came();
}

// The next of a list that events or states go to.
async function next(list) {
    while (list.length === 0) {
        await new Promise((resolve) => { waiting = resolve; });
    }
    return list.shift();
}

function promised(target, name, words) {
    return new Promise((resolve) => {
        target[name](...words, (error, ...results) => {
            resolve(error ? `${error.getCode()} ${error.getName()}` : results.map(shown).join(' '));
        });
    });
}

async function call(client, name, ...words) {
    const says = words.map((word) => typeof word === 'function' ? 'watch' : shown(word));
    tell([name, ...says].join(' '), await promised(client, name, words));
}

// All events that have come or are on their way.
async function toldEvents(client) {
    const last = `/last-${number++}`;
    const found = [];
    await promised(client, 'exists', [last, watcher]);
    await promised(client, 'create', [last]);
    for (let event = await next(events); !event.endsWith(last); event = await next(events)) {
        found.push(event);
    }
    tell('events', `[${found.join(', ')}]`);
}

async function change(client, name, ...words) {
    await call(client, name, ...words);
    await toldEvents(client);
}

async function until(state) {
    const seen = [];
    do {
        seen.push(await next(states));
    } while (seen.at(-1) !== state);
    tell('states', seen.join(', '));
}

function ask(request) {
    const answered = new Promise((resolve) => input.once('line', resolve));
    process.stdout.write(`! ${request}\n`);
    return answered;
}

function connected(where) {
    const client = zookeeper.createClient(where, OPTIONS);
    client.on('state', (state) => {
        states.push(state.getName());
        came();
    });
    client.connect();
    return client;
}

async function nodes(client) {
    const [x, yy] = [Buffer.from('x'), Buffer.from('yy')];
    task = 'nodes';
    await call(client, 'create', '/t', x);
    await call(client, 'create', '/t', x);
    await call(client, 'create', '/none/x', x);
    await call(client, 'getData', '/t');
    await call(client, 'setData', '/t', yy);
    await call(client, 'getData', '/t');
    for (const name of ['getData', 'getChildren', 'getACL', 'remove', 'exists']) {
        await call(client, name, '/none');
    }
    await call(client, 'setData', '/none', x);
    await call(client, 'create', '/t/ü', Buffer.from('ä'));
    await call(client, 'remove', '/t');
    await call(client, 'removeRecursive', '/t');
    await call(client, 'mkdirp', '/t/a/b');
    await call(client, 'getData', '/t/a');
    task = 'versions';
    await call(client, 'create', '/t/v', x);
    for (const version of [0, 0, 1]) {
        await call(client, 'setData', '/t/v', yy, version);
    }
    await call(client, 'remove', '/t/v', 1);
    await call(client, 'remove', '/t/v', 2);
    task = 'sequence';
    await call(client, 'create', '/t/s-', x, CreateMode.PERSISTENT_SEQUENTIAL);
    await call(client, 'create', '/t/s-', x, CreateMode.EPHEMERAL_SEQUENTIAL);
    task = 'ephemeral';
    await call(client, 'create', '/t/e', x, CreateMode.EPHEMERAL);
    await call(client, 'create', '/t/e/x', x);
    await call(client, 'getData', '/t/e');
    task = 'children';
    await call(client, 'getChildren', '/t');
    await call(client, 'getChildren', '/t/e');
    await call(client, 'listSubTreeBFS', '/t');
    task = 'exists';
    await call(client, 'exists', '/t');
    await call(client, 'exists', '/t/none');
    task = 'configuration';
    await call(client, 'getData', '/zookeeper/config');
}

async function access(client) {
    const acl = (permission, scheme, id) => [new ACL(permission, new Id(scheme, id))];
    task = 'acl';
    await call(client, 'getACL', '/t');
    await call(client, 'create', '/t/early', acl(Permission.ALL, 'auth', ''));
    client.addAuthInfo('digest', Buffer.from('u:p'));
    await call(client, 'create', '/t/mine', acl(Permission.ALL, 'auth', ''));
    await call(client, 'getACL', '/t/mine');
    await call(client, 'setACL', '/t/mine', acl(Permission.READ, 'ip', '10.0.0.1'), 0);
    for (const name of ['getData', 'getACL', 'exists', 'getChildren']) {
        await call(client, name, '/t/mine');
    }
    await call(client, 'create', '/t/mine/x');
    await call(client, 'create', '/t/read', acl(Permission.READ, 'world', 'anyone'));
    await call(client, 'setData', '/t/read', Buffer.from('x'));
    await call(client, 'remove', '/t/read');
    for (const scheme of ['none', 'digest', 'ip', 'world']) {
        await call(client, 'create', '/t/wrong', acl(Permission.ALL, scheme, 'x'));
    }
    await call(client, 'setACL', '/t', ACL.OPEN_ACL_UNSAFE, 7);
}

async function transactions(client) {
    task = 'transactions';
    for (const version of [0, 1]) {
        const results = await new Promise((resolve) => {
            client.transaction().check('/t', version).create('/t/m', Buffer.from('x'))
                .create('/t/m/s-', Buffer.from('x'), CreateMode.EPHEMERAL_SEQUENTIAL)
                .setData('/t/m', Buffer.from('y'), 0).remove('/t/m/s-0000000000')
                .commit((error, parts) => resolve([error ? error.getCode() : 0, ...parts.map(
                    (part) => `${part.type} ${part.err} ${part.path} ${shown(part.stat)}`)]));
        });
        tell(`check version ${version}, create, set, remove`, results.join(', '));
    }
    await call(client, 'getData', '/t/m');
}

async function watches(client) {
    task = 'watches';
    await call(client, 'exists', '/t/w', watcher);
    await change(client, 'create', '/t/w', Buffer.from('x'));
    await call(client, 'getData', '/t/w', watcher);
    await change(client, 'setData', '/t/w', Buffer.from('y'));
    await change(client, 'setData', '/t/w', Buffer.from('z'));
    await call(client, 'getChildren', '/t/w', watcher);
    await change(client, 'create', '/t/w/x');
    await change(client, 'create', '/t/w/y');
    await call(client, 'getChildren', '/t/w', watcher);
    await call(client, 'exists', '/t/w', watcher);
    await change(client, 'removeRecursive', '/t/w');
    await call(client, 'exists', '/t/w', watcher);
    await change(client, 'create', '/t/w');
}

async function sessions(client) {
    task = 'cut';
    await call(client, 'create', '/t/cut');
    await call(client, 'create', '/t/of-session', CreateMode.EPHEMERAL);
    await call(client, 'getData', '/t/cut', watcher);
    await call(client, 'getChildren', '/t', watcher);
    await call(client, 'exists', '/t/new', watcher);
    await ask('cut /t/cut');
    await until('SYNC_CONNECTED');
    await call(client, 'getData', '/t/of-session');
    await toldEvents(client);
    await change(client, 'create', '/t/new');
    task = 'expiry';
    await ask('expire /t/of-session');
    await until('EXPIRED');
    const other = connected(hosts);
    await until('SYNC_CONNECTED');
    await call(other, 'exists', '/t/of-session');
    task = 'chroot';
    const inner = connected(`${hosts}/t`);
    await until('SYNC_CONNECTED');
    await call(inner, 'create', '/of-session', CreateMode.EPHEMERAL);
    await call(inner, 'create', '/s-', CreateMode.EPHEMERAL_SEQUENTIAL);
    await call(inner, 'getChildren', '/');
    await call(other, 'getData', '/t/of-session');
    task = 'close';
    await call(other, 'exists', '/t/of-session', watcher);
    inner.close();
    tell('event', await next(events));
    await call(other, 'getChildren', '/t');
    client.close();
    other.close();
}

async function main() {
    const client = connected(hosts);
    await until('SYNC_CONNECTED');
    tell('timeout', client.getSessionTimeout());
    await nodes(client);
    await access(client);
    await transactions(client);
    await watches(client);
    await sessions(client);
    input.close();
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
