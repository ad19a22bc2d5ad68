// The tasks by Apache Curator, and by the ZooKeeper class below it where Curator lacks one: HOSTS.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.CuratorWatcher;
import org.apache.curator.framework.api.transaction.CuratorOp;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.client.FourLetterWordMain;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Id;
import org.apache.zookeeper.data.Stat;

public class CuratorTasks {
    private static final int SESSION_MILLISECONDS = 10_000;
    private static final int CONNECTION_MILLISECONDS = 60_000;
    private static final byte[] X = "x".getBytes(StandardCharsets.UTF_8);
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private static final BufferedReader IN = new BufferedReader(new InputStreamReader(System.in));

    private final BlockingQueue<String> events = new LinkedBlockingQueue<>();
    private final BlockingQueue<ConnectionState> states = new LinkedBlockingQueue<>();
    private final CuratorWatcher watcher = event -> {
        if (event.getType() != Watcher.Event.EventType.None) {
            events.add(event.getType() + " " + event.getPath());
        }
    };
    private final String hosts;
    private CuratorFramework client;
    private String task = "connect";
    private int lastNumber = 0;

    private interface Call {
        Object run() throws Exception;
    }

    private CuratorTasks(String hosts) {
        this.hosts = hosts;
    }

    public static void main(String[] arguments) throws Exception {
        CuratorTasks tasks = new CuratorTasks(arguments[0]);
        tasks.client = tasks.connected(arguments[0]);
        tasks.nodes();
        tasks.lastingNodes();
        tasks.access();
        tasks.transactions();
        tasks.watches();
        tasks.persistentWatches();
        tasks.recipes();
        tasks.sessions();
        tasks.words();
        System.exit(0); // whatever thread is left
    }

    private CuratorFramework connected(String where) throws Exception {
        CuratorFramework made = CuratorFrameworkFactory.newClient(
                where, SESSION_MILLISECONDS, CONNECTION_MILLISECONDS, new RetryNTimes(0, 1));
        made.getConnectionStateListenable().addListener((of, state) -> states.add(state));
        made.start();
        made.blockUntilConnected();
        tell("state", states.take());
        return made;
    }

    private void tell(String call, Object result) {
        OUT.println(task + ": " + call + " = " + shown(result));
    }

    private void call(String what, Call body) throws Exception {
        Object result;
        try {
            result = body.run();
        } catch (KeeperException error) {
            result = error.code().intValue() + " " + error.code() + results(error);
        }
        tell(what, result);
    }

    private static String results(KeeperException error) {
        return error.getResults() == null ? "" : " " + error.getResults().stream()
                .map(result -> "" + ((OpResult.ErrorResult) result).getErr())
                .collect(Collectors.joining(" "));
    }

    private static String shown(Object result) {
        if (result instanceof byte[]) {
            return '"' + new String((byte[]) result, StandardCharsets.UTF_8) + '"';
        } else if (result instanceof Stat) {
            Stat stat = (Stat) result;
            return String.format("(%d, %d, %d) %s %d bytes %d children", stat.getVersion(),
                    stat.getCversion(), stat.getAversion(),
                    stat.getEphemeralOwner() == 0 ? "not owned" : "owned",
                    stat.getDataLength(), stat.getNumChildren());
        } else if (result instanceof List) {
            return ((List<?>) result).stream().map(CuratorTasks::shown).sorted()
                    .collect(Collectors.toList()).toString();
        }
        return String.valueOf(result).strip().replace('\n', ' ');
    }

    private void change(String what, Call body) throws Exception {
        call(what, body);
        allEvents();
    }

    // Those that have come or are on their way.
    private void allEvents() throws Exception {
        String last = "/last-" + lastNumber++;
        client.checkExists().usingWatcher(watcher).forPath(last);
        client.create().forPath(last);
        List<String> found = new ArrayList<>();
        for (String e = events.take(); !e.endsWith(last); e = events.take()) {
            found.add(e);
        }
        OUT.println(task + ": events = " + found);
    }

    private void ask(String request, ConnectionState... expected) throws Exception {
        OUT.println("! " + request);
        IN.readLine();
        for (ConnectionState ignored : expected) {
            tell("state", states.take());
        }
    }

    private void create(String path, CreateMode mode) throws Exception {
        call("create " + mode + " " + path,
                () -> client.create().withMode(mode).forPath(path, X));
    }

    private void get(String path) throws Exception {
        Stat stat = new Stat();
        call("get " + path, () ->
                shown(client.getData().storingStatIn(stat).forPath(path)) + " " + shown(stat));
    }

    private void set(String path, int version) throws Exception {
        call("set version " + version + " " + path, () ->
                client.setData().withVersion(version).forPath(path, X));
    }

    private void nodes() throws Exception {
        task = "nodes";
        Stat stat = new Stat();
        create("/t", CreateMode.PERSISTENT);
        create("/t", CreateMode.PERSISTENT);
        create("/none/x", CreateMode.PERSISTENT);
        call("create2 /t/2", () -> client.create().storingStatIn(stat).forPath("/t/2", X));
        tell("stat", stat);
        call("create or set /t/2", () -> client.create().orSetData().forPath("/t/2", X));
        call("create parents /t/a/b/c",
                () -> client.create().creatingParentsIfNeeded().forPath("/t/a/b/c", X));
        get("/t");
        get("/t/a");
        get("/none");
        set("/t", -1);
        set("/none", -1);
        call("delete /t", () -> client.delete().forPath("/t"));
        call("delete /none", () -> client.delete().forPath("/none"));
        call("delete quietly /none", () -> client.delete().quietly().forPath("/none"));
        call("delete all /t/a",
                () -> client.delete().guaranteed().deletingChildrenIfNeeded().forPath("/t/a"));
        call("children /none", () -> client.getChildren().forPath("/none"));
        create("/t/ü", CreateMode.PERSISTENT);
        task = "versions";
        create("/t/v", CreateMode.PERSISTENT);
        for (int version : new int[] {0, 0, 1}) {
            set("/t/v", version);
        }
        for (int version : new int[] {1, 2}) {
            call("delete version " + version,
                    () -> client.delete().withVersion(version).forPath("/t/v"));
        }
        task = "sequence";
        create("/t/s-", CreateMode.PERSISTENT_SEQUENTIAL);
        create("/t/s-", CreateMode.EPHEMERAL_SEQUENTIAL);
        call("create protected", () -> client.create().withProtection()
                .withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath("/t/p-")
                .replaceAll("_c_[-0-9a-f]{36}", "..."));
        task = "ephemeral";
        create("/t/e", CreateMode.EPHEMERAL);
        create("/t/e/x", CreateMode.PERSISTENT);
        get("/t/e");
        task = "exists";
        call("exists /t", () -> client.checkExists().forPath("/t"));
        call("exists /none", () -> client.checkExists().forPath("/none"));
    }

    private void lastingNodes() throws Exception {
        task = "container";
        create("/t/box", CreateMode.CONTAINER);
        call("create container parents", () ->
                client.create().creatingParentContainersIfNeeded().forPath("/t/boxes/x/y", X));
        get("/t/boxes");
        task = "ttl";
        for (CreateMode mode : List.of(CreateMode.PERSISTENT_WITH_TTL,
                CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL)) {
            call("create " + mode,
                    () -> client.create().withTtl(3_600_000).withMode(mode).forPath("/t/ttl", X));
        }
        get("/t/ttl");
        ZooKeeper zk = client.getZookeeperClient().getZooKeeper();
        task = "children";
        call("children /t/boxes", () -> client.getChildren().forPath("/t/boxes"));
        task = "count";
        call("all children of /", () -> zk.getAllChildrenNumber("/"));
        call("all children of /t", () -> zk.getAllChildrenNumber("/t"));
        call("all children of /none", () -> zk.getAllChildrenNumber("/none"));
        task = "ephemerals";
        call("ephemerals /t/e", () -> zk.getEphemerals("/t/e"));
        call("ephemerals /none", () -> zk.getEphemerals("/none"));
        task = "sync";
        for (String path : List.of("/t", "/none")) {
            client.sync().inBackground((of, event) ->
                    events.add(event.getResultCode() + " " + event.getPath())).forPath(path);
            tell("sync " + path, events.take());
        }
        task = "configuration";
        call("config", () -> client.getConfig().forEnsemble());
        call("reconfig", () -> client.reconfig().leaving("3").forEnsemble());
    }

    private void access() throws Exception {
        task = "acl";
        ZooKeeper zk = client.getZookeeperClient().getZooKeeper();
        List<ACL> mine = ZooDefs.Ids.CREATOR_ALL_ACL;
        call("acl /t", () -> client.getACL().forPath("/t"));
        call("who am I", () -> zk.whoAmI().size());
        call("create early", () -> client.create().withACL(mine).forPath("/t/early"));
        zk.addAuthInfo("digest", "u:p".getBytes(StandardCharsets.UTF_8));
        call("who am I", () -> zk.whoAmI().stream()
                .map(info -> info.getAuthScheme() + ":" + info.getUser())
                .collect(Collectors.toList()));
        call("create /t/mine", () -> client.create().withACL(mine).forPath("/t/mine"));
        call("acl /t/mine", () -> client.getACL().forPath("/t/mine"));
        call("set acl /t/mine", () -> client.setACL().withVersion(0).withACL(List.of(
                new ACL(ZooDefs.Perms.READ, new Id("ip", "10.0.0.1")))).forPath("/t/mine"));
        get("/t/mine");
        call("acl /t/mine", () -> client.getACL().forPath("/t/mine"));
        call("exists /t/mine", () -> client.checkExists().forPath("/t/mine"));
        call("children /t/mine", () -> client.getChildren().forPath("/t/mine"));
        create("/t/mine/x", CreateMode.PERSISTENT);
        call("create /t/read",
                () -> client.create().withACL(ZooDefs.Ids.READ_ACL_UNSAFE).forPath("/t/read"));
        set("/t/read", -1);
        call("delete /t/read", () -> client.delete().forPath("/t/read"));
        for (String scheme : List.of("none", "digest", "ip", "world")) {
            call("set acl " + scheme + ":x", () -> client.setACL().withACL(List.of(
                    new ACL(ZooDefs.Perms.ALL, new Id(scheme, "x")))).forPath("/t"));
        }
        call("set acl version 7", () -> client.setACL().withVersion(7)
                .withACL(ZooDefs.Ids.OPEN_ACL_UNSAFE).forPath("/t"));
    }

    private void transactions() throws Exception {
        task = "transactions";
        for (int version : new int[] {0, 1, 2}) {
            List<CuratorOp> ops = List.of(
                    client.transactionOp().check().withVersion(version).forPath("/t"),
                    client.transactionOp().create().forPath("/t/m", X),
                    client.transactionOp().create().withMode(CreateMode.EPHEMERAL_SEQUENTIAL)
                            .forPath("/t/m/s-", X),
                    client.transactionOp().setData().withVersion(0).forPath("/t/m", X),
                    client.transactionOp().delete().forPath("/t/m/s-0000000000"));
            call("check version " + version + ", create, set, delete", () ->
                    client.transaction().forOperations(ops).stream().map(result ->
                            result.getType() + " " + result.getForPath() + " "
                            + result.getResultPath() + " " + shown(result.getResultStat()))
                            .collect(Collectors.joining(", ")));
        }
        get("/t/m");
    }

    private void watches() throws Exception {
        task = "watches";
        call("exists", () -> client.checkExists().usingWatcher(watcher).forPath("/t/w"));
        change("create", () -> client.create().forPath("/t/w", X));
        call("get", () -> client.getData().usingWatcher(watcher).forPath("/t/w"));
        change("set", () -> client.setData().forPath("/t/w", X));
        change("set", () -> client.setData().forPath("/t/w", X));
        call("children", () -> client.getChildren().usingWatcher(watcher).forPath("/t/w"));
        change("create child", () -> client.create().forPath("/t/w/x", X));
        change("create child", () -> client.create().forPath("/t/w/y", X));
        call("children", () -> client.getChildren().usingWatcher(watcher).forPath("/t/w"));
        call("exists", () -> client.checkExists().usingWatcher(watcher).forPath("/t/w"));
        change("delete all", () -> client.delete().deletingChildrenIfNeeded().forPath("/t/w"));
        call("exists", () -> client.checkExists().usingWatcher(watcher).forPath("/t/w"));
        for (Watcher.WatcherType type : List.of(Watcher.WatcherType.Children,
                Watcher.WatcherType.Data, Watcher.WatcherType.Any)) {
            change("remove " + type,
                    () -> client.watchers().remove(watcher).ofType(type).forPath("/t/w"));
        }
        change("create", () -> client.create().forPath("/t/w", X));
    }

    private void persistentWatches() throws Exception {
        task = "persistent";
        for (AddWatchMode mode : AddWatchMode.values()) {
            call("add " + mode, () ->
                    client.watchers().add().withMode(mode).usingWatcher(watcher).forPath("/t/w"));
            change("set", () -> client.setData().forPath("/t/w", X));
            change("create child", () -> client.create().forPath("/t/w/x", X));
            change("set child", () -> client.setData().forPath("/t/w/x", X));
            change("create grandchild", () -> client.create().forPath("/t/w/x/y", X));
            change("transaction", () -> client.transaction().forOperations(
                    client.transactionOp().setData().forPath("/t/w", X),
                    client.transactionOp().create().forPath("/t/w/z", X),
                    client.transactionOp().delete().forPath("/t/w/z")).size());
            change("delete all", () -> client.delete().deletingChildrenIfNeeded().forPath("/t/w"));
            change("create", () -> client.create().forPath("/t/w", X));
            change("remove", () -> client.watchers().remove(watcher)
                    .ofType(Watcher.WatcherType.Any).forPath("/t/w"));
            change("set", () -> client.setData().forPath("/t/w", X));
        }
    }

    private void recipes() throws Exception {
        task = "cache";
        client.create().forPath("/t/cached", X);
        CuratorCache cache = CuratorCache.build(client, "/t/cached");
        cache.listenable().addListener(CuratorCacheListener.builder()
                .forAll((type, old, data) ->
                        events.add(type + " " + (data == null ? old : data).getPath()))
                .forInitialized(() -> events.add("initialized")).build());
        cache.start();
        tell("start", events.take() + ", " + events.take());
        client.create().forPath("/t/cached/x", X);
        tell("create", events.take());
        client.setData().forPath("/t/cached/x", X);
        tell("set", events.take());
        client.delete().forPath("/t/cached/x");
        tell("delete", events.take());
        cache.close();
        task = "recipes";
        CuratorFramework other = connected(hosts);
        InterProcessMutex first = new InterProcessMutex(client, "/r/lock");
        InterProcessMutex second = new InterProcessMutex(other, "/r/lock");
        first.acquire();
        tell("other acquires", second.acquire(100, TimeUnit.MILLISECONDS));
        tell("participants", first.getParticipantNodes().size());
        first.release();
        tell("other acquires", second.acquire(SESSION_MILLISECONDS, TimeUnit.MILLISECONDS));
        second.release();
        DistributedAtomicLong number =
                new DistributedAtomicLong(other, "/r/number", new RetryNTimes(3, 1));
        tell("add", number.add(5L).postValue() + " " + number.increment().postValue());
        SharedCount count = new SharedCount(client, "/r/count", 7);
        count.start();
        tell("count", count.getCount() + " " + count.trySetCount(count.getVersionedValue(), 8));
        count.close();
        other.close();
    }

    private void sessions() throws Exception {
        task = "cut";
        states.clear();
        create("/t/cut", CreateMode.PERSISTENT);
        create("/t/of-session", CreateMode.EPHEMERAL);
        client.watchers().add().withMode(AddWatchMode.PERSISTENT_RECURSIVE)
                .usingWatcher(watcher).forPath("/t/w");
        client.getData().usingWatcher(watcher).forPath("/t/cut");
        client.getChildren().usingWatcher(watcher).forPath("/t");
        client.checkExists().usingWatcher(watcher).forPath("/t/new");
        ask("cut /t/cut", ConnectionState.SUSPENDED, ConnectionState.RECONNECTED);
        get("/t/of-session");
        allEvents();
        change("create /t/new", () -> client.create().forPath("/t/new"));
        change("create /t/w/new", () -> client.create().forPath("/t/w/new"));
        tooMuch();
        otherHands();
        task = "expiry";
        ask("expire /t/of-session", ConnectionState.SUSPENDED, ConnectionState.LOST,
                ConnectionState.RECONNECTED);
        call("exists", () -> client.checkExists().forPath("/t/of-session"));
        task = "chroot";
        CuratorFramework inner = connected(hosts + "/t");
        call("create", () ->
                inner.create().withMode(CreateMode.EPHEMERAL).forPath("/of-session", X));
        call("create", () ->
                inner.create().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath("/s-", X));
        call("namespace", () -> client.usingNamespace("t").getData().forPath("/of-session"));
        call("children", () -> inner.getChildren().forPath("/").size());
        get("/t/of-session");
        task = "close";
        call("exists", () -> client.checkExists().usingWatcher(watcher).forPath("/t/of-session"));
        inner.close();
        tell("event", events.take());
        call("children", () -> client.getChildren().forPath("/t"));
        client.close();
    }

    // A server ends the connection whose request has more than a mebibyte.
    private void tooMuch() throws Exception {
        task = "size";
        for (int size : new int[] {1_000_000, 1_100_000}) {
            call("create " + size + " bytes",
                    () -> client.create().forPath("/t/size-" + size, new byte[size]));
        }
        tell("state", states.take());
        tell("state", states.take());
        call("exists", () -> client.checkExists().forPath("/t/size-1100000"));
    }

    // The session at a second connection with a wrong password: it ends the first one, not more.
    private void otherHands() throws Exception {
        task = "password";
        long session = client.getZookeeperClient().getZooKeeper().getSessionId();
        BlockingQueue<Object> seen = new LinkedBlockingQueue<>();
        ZooKeeper other = new ZooKeeper(hosts, SESSION_MILLISECONDS,
                event -> seen.add(event.getState()), session, new byte[16]);
        tell("other's state", seen.take());
        other.close();
        tell("state", states.take());
        tell("state", states.take());
        get("/t/of-session");
    }

    private void words() throws Exception {
        task = "words";
        String[] parts = hosts.split(":");
        int port = Integer.parseInt(parts[1]);
        for (String word : List.of("ruok", "isro", "srvr", "envi")) {
            String answer = FourLetterWordMain.send4LetterWord(parts[0], port, word);
            tell(word, Arrays.stream(answer.split("\n")).map(line -> line.split("[:=]")[0])
                    .collect(Collectors.joining(", ")));
        }
    }
}
