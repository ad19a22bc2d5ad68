// node-zookeeper-client, as its README.md uses it: node_client.cjs FOLDER-OF-ITS-MODULES.

'use strict';

const {createRequire} = require('module');
const {serve, flood, stat, LACKS} = require('./lines.cjs');

const load = createRequire(`${process.argv[2]}/`);
const zookeeper = load('node-zookeeper-client');
const {version} = load('node-zookeeper-client/package.json');
const {ACL, CreateMode, Id, Permission} = zookeeper;

function make(tell) {
    let client;
    const ask = (name, ...words) => new Promise((resolve, reject) => {
        client[name](...words, (error, ...results) => error ? reject(error) : resolve(results));
    });
    const create = async (path, data, mode) => (await ask('create', path, Buffer.from(data), mode))[0];
    const told = (event) => tell.event(event.getName(), event.getPath());
    return {
        connect: (hosts, milliseconds) => new Promise((resolve) => {
            client = zookeeper.createClient(hosts, {sessionTimeout: Number(milliseconds)});
            client.on('state', (state) => tell.state(state.getName()));
            client.once('connected', () => resolve());
            client.connect();
        }),
        create: (path, data) => create(path, data, CreateMode.PERSISTENT),
        sequential: (path, data) => create(path, data, CreateMode.PERSISTENT_SEQUENTIAL),
        ephemeral: (path, data) => create(path, data, CreateMode.EPHEMERAL),
        set: (path, data, number) => ask('setData', path, Buffer.from(data), Number(number)).then(() => ''),
        delete: (path, number) => ask('remove', path, Number(number)).then(() => ''),
        multi: (path, other, number) => new Promise((resolve, reject) => {
            client.transaction().create(path).setData(other, Buffer.from('x'), Number(number))
                .commit((error) => error ? reject(error) : resolve(''));
        }),
        get: async (path) => (await ask('getData', path))[0],
        children: async (path) => (await ask('getChildren', path))[0].sort().join(','),
        stat: async (path) => {
            const [s] = await ask('exists', path);
            return s ? stat(s.version, s.cversion, s.aversion, s.dataLength, s.numChildren,
                !s.ephemeralOwner.equals(Buffer.alloc(8))) : 'none';
        },
        auth: async (scheme, credentials) => client.addAuthInfo(scheme, Buffer.from(credentials)) && '',
        mine: async (path, data) => (await ask('create', path, Buffer.from(data),
            [new ACL(Permission.ALL, new Id('auth', ''))]))[0],
        flood: (path, count, size, close) => flood(
            Number(count),
            (done) => client.setData(path, Buffer.alloc(Number(size), 'x'), (error) => done(error ? error.getName() : 'ok')),
            () => close && client.close()),
        watch: (kind, path) => kind === 'data' ? ask('getData', path, told).then(() => '')
            : kind === 'children' ? ask('getChildren', path, told).then(() => '')
            : kind === 'exists' ? ask('exists', path, told).then(() => '') : LACKS,
        close: () => new Promise((resolve) => {
            client.once('disconnected', () => resolve());
            client.close();
        }),
    };
}

serve(make, version, (error) => error.getName ? error.getName() : error.name);
