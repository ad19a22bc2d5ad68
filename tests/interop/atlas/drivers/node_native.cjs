// The package `zookeeper` (a binding of the C client), as its README.md uses it:
// node_native.cjs FOLDER-OF-ITS-MODULES.

'use strict';

const {createRequire} = require('module');
const {serve, flood, stat, LACKS} = require('./lines.cjs');

const load = createRequire(`${process.argv[2]}/`);
const ZooKeeper = load('zookeeper');
const {version} = load('zookeeper/package.json');
const K = ZooKeeper.constants;
const NAMES = new Map(Object.entries(K).filter(([name]) => name.startsWith('Z') && !name.startsWith('ZOO_')).map(([n, v]) => [v, n]));
const TYPES = new Map([[1, 'created'], [2, 'deleted'], [3, 'changed'], [4, 'child'], [-1, 'session']]);

const nameOf = (code) => NAMES.get(code) || `code ${code}`;

function make(tell) {
    let client;
    const ask = (name, ...words) => new Promise((resolve, reject) => {
        const code = client[name](...words, (rc, error, ...results) => {
            if (rc === 0) {
                resolve(results);
            } else {
                reject(Object.assign(new Error(error), {rc}));
            }
        });
        if (typeof code === 'number' && code !== 0) {
            reject(Object.assign(new Error('at once'), {rc: code}));
        }
    });
    const create = async (path, data, flags) => (await ask('a_create', path, data, flags))[0];
    const told = (type, state, path) => {
        if (type !== -1) { // a watch is told of the session, too
            tell.event(TYPES.get(type), path);
        }
    };
    return {
        connect: (hosts, milliseconds) => new Promise((resolve) => {
            client = new ZooKeeper({
                connect: hosts, timeout: Number(milliseconds), debug_level: K.ZOO_LOG_LEVEL_ERROR,
                host_order_deterministic: true,
            });
            for (const name of ['connect', 'connecting', 'close', 'error']) {
                client.on(name, () => tell.state(name));
            }
            client.once('connect', () => resolve());
            client.init({});
        }),
        create: (path, data) => create(path, data, K.ZOO_PERSISTENT),
        sequential: (path, data) => create(path, data, K.ZOO_PERSISTENT_SEQUENTIAL || K.ZOO_SEQUENCE),
        ephemeral: (path, data) => create(path, data, K.ZOO_EPHEMERAL),
        set: (path, data, number) => ask('a_set', path, data, Number(number)).then(() => ''),
        delete: (path, number) => ask('a_delete_', path, Number(number)).then(() => ''),
        get: async (path) => (await ask('a_get', path, false))[1],
        children: async (path) => (await ask('a_get_children', path, false))[0].sort().join(','),
        stat: async (path) => {
            const [s] = await ask('a_exists', path, false);
            return stat(s.version, s.cversion, s.aversion, s.dataLength, s.numChildren, Number(s.ephemeralOwner));
        },
        flood: (path, count, size, close) => flood(
            Number(count),
            (done) => {
                const code = client.a_set(path, 'x'.repeat(Number(size)), -1, (rc) => done(rc ? nameOf(rc) : 'ok'));
                if (typeof code === 'number' && code !== 0) {
                    done(nameOf(code));
                }
            },
            () => close && client.close()),
        watch: (kind, path) => kind === 'data' ? ask('aw_get', path, told).then(() => '')
            : kind === 'children' ? ask('aw_get_children', path, told).then(() => '') : LACKS,
        close: async () => {
            client.close();
        },
    };
}

serve(make, version, (error) => error.rc === undefined ? error.name : nameOf(error.rc));
